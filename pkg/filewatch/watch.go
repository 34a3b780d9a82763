// Package filewatch detects changes in the contents of a file that the program has read, so that the program can be
// restarted with them.
package filewatch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/boundedio"
)

// ErrUpdated is returned by Watch after a change.
var ErrUpdated = errors.New("a configuration file was updated")

// pollInterval is how often the file is read. An inotify watch would have to follow every link and directory on the
// path. These files have a few kilobytes, so reading them costs less and detects every kind of change.
const pollInterval = time.Second

// File is a file that the program has read.
type File struct {
	// Path is the path of the file.
	Path string
	// Content is the content that was read and is active.
	Content []byte
	// Check reads the file again, as the program does at startup, and returns why it cannot be used.
	Check func() error
	// Failed, if not nil, is called with each new reason why the file cannot be used, and with nil when it can be used
	// again.
	Failed func(error)
}

// maxSize is the largest file that is read, in bytes. A ConfigMap holds up to a megabyte.
const maxSize = 16 << 20

// ReadFile reads a configuration file. It fails if the file is too large for one.
func ReadFile(path string) ([]byte, error) { return boundedio.ReadFile(path, maxSize) }

// Read returns a file with its current content.
func Read(path string, check func() error) (File, error) {
	content, err := ReadFile(path)
	if err != nil {
		return File{}, fmt.Errorf("read a configuration file: %w", err)
	}
	return File{Path: path, Content: content, Check: check}, nil
}

// Watch returns ErrUpdated when the content of the file differs from Content, so that the program's supervisor restarts
// it. It returns nil when ctx ends.
//
// Restarting with an invalid content would stop the program for good. So Watch logs it, and Content stays active.
func (f File) Watch(ctx context.Context, log *slog.Logger) error {
	log = log.With("file", f.Path)
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	logged := "" // why the file could not be used at the last poll
	for {
		changed, err := f.poll()
		switch {
		case changed:
			return fmt.Errorf("%w: %s", ErrUpdated, f.Path)
		case err == nil && logged != "":
			logged = ""
			f.notifyFailed(nil)
		case err != nil && err.Error() != logged: // log a reason once, not with every poll
			logged = err.Error()
			log.Error("an updated configuration file cannot be used; keeping the last valid one", "error", err)
			f.notifyFailed(err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (f File) notifyFailed(reason error) {
	if f.Failed != nil {
		f.Failed(reason)
	}
}

// poll reports whether the file has new content that can be used. The error is why it cannot be used.
func (f File) poll() (changed bool, err error) {
	content, err := ReadFile(f.Path)
	for {
		switch {
		case errors.Is(err, os.ErrNotExist):
			return false, nil // the file is being replaced
		case err != nil:
			return false, fmt.Errorf("read a configuration file: %w", err)
		case bytes.Equal(content, f.Content):
			return false, nil
		}
		checkErr := f.Check()
		checked := content
		// Check reads the file itself. If the file changed in between, the result may be about other content.
		if content, err = ReadFile(f.Path); err == nil && bytes.Equal(content, checked) {
			return checkErr == nil, checkErr
		}
	}
}
