package folder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/vicinity-proxy/vicinity/pkg/manifest"
)

// A burst of changes ends when nothing happened for quietTime, and is cut off after burstTime so that a folder that
// never rests is read nonetheless.
const (
	quietTime = 50 * time.Millisecond
	burstTime = 500 * time.Millisecond
)

// pollInterval is how often the folder is looked at where the kernel cannot report changes.
const pollInterval = 2 * time.Second

// followAttempts bounds how often a tree is walked again because it changed while it was being watched. The next
// change walks it anyway.
const followAttempts = 10

// watch waits for changes below a directory.
type watch struct {
	dir     string
	log     *slog.Logger
	poll    time.Duration
	watcher *fsnotify.Watcher // nil when polling
	// neighbours is the directory of which only the folder's own entry matters; empty if all of it does.
	neighbours string
	// isBlind: the folder is away just now, and with it everything that could be watched.
	isBlind bool
	// again: look again after a while, whether or not anything happens.
	again bool
}

// newWatch returns a watch that watches nothing yet. Without inotify (each user may have 128 instances by default) it
// polls.
func newWatch(dir string, log *slog.Logger) *watch {
	if absolute, err := filepath.Abs(dir); err == nil {
		dir = absolute // fails only without a working directory, and then a relative folder cannot be read either
	}
	w := &watch{dir: filepath.Clean(dir), log: log, poll: pollInterval}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		w.fallBack(fmt.Errorf("creating an inotify instance: %w", err))
		return w
	}
	w.watcher = watcher
	return w
}

// fallBack makes the watch poll from now on.
func (w *watch) fallBack(err error) {
	w.log.Warn("cannot watch the folder; looking for changes from time to time instead",
		"folder", w.dir, "interval", w.poll, "error", err)
	w.close()
	w.watcher = nil
}

func (w *watch) close() {
	if w.watcher == nil {
		return
	}
	if err := w.watcher.Close(); err != nil {
		w.log.Warn("closing an inotify instance failed", "folder", w.dir, "error", err)
	}
}

// follow watches every directory of the tree as it is now. A directory that appeared before its parent was watched is
// found by walking again, until a walk finds nothing new.
func (w *watch) follow() {
	var watched []string
	for range followAttempts {
		found, err := manifest.Scan(w.dir)
		w.isBlind = err != nil
		if w.watcher == nil {
			return
		}
		wanted := w.withParent(found.Watched)
		if slices.Equal(wanted, watched) {
			return
		}
		for _, dir := range wanted {
			if !w.add(dir) {
				return
			}
		}
		watched = wanted
	}
}

// withParent adds the directory that the folder itself is in: the folder may be a link that is turned to another
// folder, or be deleted and created again.
func (w *watch) withParent(dirs []string) []string {
	parent := filepath.Dir(w.dir)
	w.neighbours = parent
	if slices.Contains(dirs, parent) {
		w.neighbours = ""
		return dirs
	}
	return append([]string{parent}, dirs...)
}

// add watches one directory, and reports whether the watch goes on. A directory that is watched already is watched
// anew: it may be another one by the same name.
func (w *watch) add(dir string) bool {
	err := w.watcher.Add(dir)
	if err == nil {
		return true
	}
	// What vanished or may not be read is no part of the tree; the watch on its parent reports when that changes.
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR) {
		return true
	}
	w.fallBack(fmt.Errorf("watching %s: %w", dir, err))
	return false
}

// wait returns true after something may have changed, and false when the context has ended.
func (w *watch) wait(ctx context.Context) bool {
	if w.watcher == nil {
		return sleep(ctx, w.poll)
	}
	var look <-chan time.Time
	if w.isBlind || w.again {
		ticker := time.NewTicker(w.poll)
		defer ticker.Stop()
		look = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case event := <-w.watcher.Events:
			if w.concerns(event) {
				return w.settle(ctx)
			}
		case err := <-w.watcher.Errors:
			// Above all an overflow of the kernel's queue: anything may have happened.
			w.log.Warn("changes may have been missed; reading the folder again", "folder", w.dir, "error", err)
			return w.settle(ctx)
		case <-look:
			return true
		}
	}
}

// concerns reports whether an event is about the folder, and not about one of its neighbours.
func (w *watch) concerns(event fsnotify.Event) bool {
	return filepath.Dir(event.Name) != w.neighbours || event.Name == w.dir
}

// settle waits for the end of a burst, and returns false when the context has ended.
func (w *watch) settle(ctx context.Context) bool {
	end := time.NewTimer(burstTime)
	defer end.Stop()
	quiet := time.NewTimer(quietTime)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-end.C:
			return true
		case <-quiet.C:
			return true
		case event := <-w.watcher.Events:
			if w.concerns(event) {
				quiet.Reset(quietTime)
			}
		case err := <-w.watcher.Errors:
			w.log.Debug("changes may have been missed; the folder is about to be read", "folder", w.dir, "error", err)
		}
	}
}

// sleep waits for a while, and returns false when the context has ended.
func sleep(ctx context.Context, duration time.Duration) bool {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
