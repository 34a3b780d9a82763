package filewatch

import (
	"log/slog"

	"github.com/fsnotify/fsnotify"
)

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
		log.Warn("cannot be told of changes of a configuration file; looking for them from time to time instead",
			"interval", lookInterval, "error", err)
	}
	if watcher == nil {
		return signals{stop: func() {}}
	}
	return signals{seen: watcher.Events, missed: watcher.Errors, stop: func() {
		if err := watcher.Close(); err != nil {
			log.Warn("closing an inotify instance failed", "error", err)
		}
	}}
}
