package certs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
)

// failures tells what does not work: an observer each time, and the log when it is another error than the last.
type failures struct {
	log      *slog.Logger
	observer Observer

	mu   sync.Mutex
	told map[string]string // the last error of an operation on an object
}

// tell tells of an error, or that there is none any more. It returns the error with what it is about. A context that was cancelled
// is no failure worth telling.
func (f *failures) tell(ctx context.Context, operation Operation, object string, err error) error {
	if err == nil {
		f.mended(operation, object)
		return nil
	}
	err = fmt.Errorf("%s: %s: %w", operation, object, err)
	if errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	f.observer.CertificateFailed(operation, err)
	if f.isNew(operation, object, err.Error()) {
		f.log.Error("certificates: something failed and is tried again", "operation", string(operation), "object", object, "error", err)
	}
	return err
}

func (f *failures) isNew(operation Operation, object, text string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.told == nil {
		f.told = map[string]string{}
	}
	key := string(operation) + " " + object
	before := f.told[key]
	f.told[key] = text
	return before != text
}

// mended notes that an operation works.
func (f *failures) mended(operation Operation, object string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.told, string(operation)+" "+object)
}
