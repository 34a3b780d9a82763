package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// ErrUpdated is why Watch ends.
var ErrUpdated = errors.New("the configuration file was updated")

// lookInterval is how often the file is looked at whatever the kernel tells: the path may lead through links in other directories.
const lookInterval = 10 * time.Second

// Watch returns ErrUpdated when the file says something else than what was read, so that whoever has started the program starts it
// again; nil when ctx ends.
//
// A new text that is wrong would end the program for good. It is logged, and what was read stays in force.
func (f *File) Watch(ctx context.Context, log *slog.Logger) error {
	changes := follow(filepath.Dir(f.Path), log)
	defer changes.stop()
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	told := ""
	for {
		changed, err := f.look()
		switch {
		case changed:
			return fmt.Errorf("%w: %s", ErrUpdated, f.Path)
		case err == nil:
			told = ""
		case err.Error() != told: // once, and not with every look
			told = err.Error()
			log.Error("the configuration file was updated and cannot be used; what it said before stays in force", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changes.seen:
		case err := <-changes.missed: // above all an overflow of the kernel's queue: anything may have happened
			log.Debug("changes of the configuration file may have been missed; looking at it", "error", err)
		case <-ticker.C:
		}
	}
}

// look reports whether the file says something else now that can be used. It says why it cannot.
func (f *File) look() (changed bool, err error) {
	content, err := os.ReadFile(f.Path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // it is being replaced
	}
	if err == nil && bytes.Equal(content, f.content) {
		return false, nil
	}
	_, err = Read(f.Path)
	return err == nil, err
}

// signals come when something in a directory may have changed.
type signals struct {
	seen   <-chan fsnotify.Event
	missed <-chan error
	stop   func()
}

// follow asks for a signal for each change in a directory. A file of a mounted ConfigMap is a link through another one in the same
// directory, ..data, which an update replaces. Without inotify there are no signals, and looking now and then has to do.
func follow(dir string, log *slog.Logger) signals {
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		err = watcher.Add(dir)
	}
	if err != nil {
		log.Warn("cannot be told of changes of the configuration file; looking for them from time to time instead",
			"folder", dir, "interval", lookInterval, "error", err)
	}
	if watcher == nil {
		return signals{stop: func() {}}
	}
	return signals{seen: watcher.Events, missed: watcher.Errors, stop: func() {
		if err := watcher.Close(); err != nil {
			log.Warn("closing an inotify instance failed", "folder", dir, "error", err)
		}
	}}
}
