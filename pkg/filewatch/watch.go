// Package filewatch notices when the contents of a file that the program has read change, so that the program can be
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

// ErrUpdated is why Watch ends.
var ErrUpdated = errors.New("a configuration file was updated")

// pollInterval is how often the file is read. A watch by inotify would have to follow every link and directory on the way
// to it. Each of these files has a few kilobytes, so reading them costs less, and shows every kind of change.
const pollInterval = time.Second

// File is a file that the program has read.
type File struct {
	// Path is where it is.
	Path string
	// Content is what was read, and is in force.
	Content []byte
	// Check reads the file anew, as the program does when it starts, and says why it cannot be used.
	Check func() error
	// Failed, unless it is nil, is called with each new reason why the file cannot be used, and with nil when it can be
	// used again.
	Failed func(error)
}

// maxSize bounds what is read of a file, in bytes. A ConfigMap holds a megabyte.
const maxSize = 16 << 20

// ReadFile reads a configuration file. It fails if the file is too large for a configuration.
func ReadFile(path string) ([]byte, error) { return boundedio.ReadFile(path, maxSize) }

// Read returns a file with what it says now.
func Read(path string, check func() error) (File, error) {
	content, err := ReadFile(path)
	if err != nil {
		return File{}, fmt.Errorf("read a configuration file: %w", err)
	}
	return File{Path: path, Content: content, Check: check}, nil
}

// Watch returns ErrUpdated when the file's contents differ from what was read, so that the program's supervisor starts
// it again; nil when ctx ends.
//
// A new text that is wrong would end the program for good. It is logged, and what was read stays in force.
func (f File) Watch(ctx context.Context, log *slog.Logger) error {
	log = log.With("file", f.Path)
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	logged := "" // why the file could not be used at the last look
	for {
		changed, err := f.poll()
		switch {
		case changed:
			return fmt.Errorf("%w: %s", ErrUpdated, f.Path)
		case err == nil && logged != "":
			logged = ""
			f.log(nil)
		case err != nil && err.Error() != logged: // once, and not with every look
			logged = err.Error()
			log.Error("an updated configuration file cannot be used; keeping the last good one", "error", err)
			f.log(err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (f File) log(reason error) {
	if f.Failed != nil {
		f.Failed(reason)
	}
}

// poll reports whether the file has other contents now that can be used. The error says why they cannot be used.
func (f File) poll() (changed bool, err error) {
	content, err := ReadFile(f.Path)
	for {
		switch {
		case errors.Is(err, os.ErrNotExist):
			return false, nil // it is being replaced
		case err != nil:
			return false, fmt.Errorf("read a configuration file: %w", err)
		case bytes.Equal(content, f.Content):
			return false, nil
		}
		unusable := f.Check()
		checked := content
		// The check reads the file itself. If that changed meanwhile, its answer may be about another text.
		if content, err = ReadFile(f.Path); err == nil && bytes.Equal(content, checked) {
			return unusable == nil, unusable
		}
	}
}
