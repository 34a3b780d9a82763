package manifests

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/vicinity-proxy/vicinity/pkg/manifest"
)

// A burst of changes ends when nothing has happened for quietTime. It is cut off after burstTime, so that a folder that
// never rests is still read.
const (
	quietTime = 50 * time.Millisecond
	burstTime = 500 * time.Millisecond
)

// linkCheckInterval is how often we check where the folder and the links in it lead. pollInterval is how often the whole
// folder is read if the kernel cannot report changes.
const (
	linkCheckInterval = time.Second
	pollInterval      = 2 * time.Second
)

// followAttempts bounds how often a tree is walked, or loaded, again because it changed meanwhile. The next change, or
// the next look, does it anyway.
const followAttempts = 10

// watch waits for changes below a directory.
type watch struct {
	dir     string
	log     *slog.Logger
	poll    time.Duration
	watcher *fsnotify.Watcher // nil when polling
	// watched are where the folder and the links in it led when the tree was walked last, by name.
	watched map[string]inode
	// isBlind: the folder is away just now, and with it everything that could be watched.
	isBlind bool
	// again: look again after a while, whether or not anything happens. until is when to look at the latest; zero: at no
	// given time.
	again bool
	until time.Time
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
		w.switchToPolling(fmt.Errorf("creating an inotify instance: %w", err))
		return w
	}
	w.watcher = watcher
	return w
}

// switchToPolling makes the watch poll from now on.
func (w *watch) switchToPolling(err error) {
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
// found by walking again, until a walk finds nothing new, and no link was turned meanwhile.
func (w *watch) follow() {
	var watched []string
	for range followAttempts {
		found, err := manifest.Scan(w.dir)
		w.isBlind = err != nil
		before := w.watched
		w.watched = linkTargets(w.dir, found.Links)
		if w.watcher == nil || slices.Equal(found.Watched, watched) && maps.Equal(w.watched, before) {
			return
		}
		for _, dir := range found.Watched {
			if !w.add(dir) {
				return
			}
		}
		watched = found.Watched
	}
}

// inode is a file's identity, whatever its name.
type inode struct{ device, number uint64 }

// linkTargets returns where a folder and the links in it lead.
func linkTargets(dir string, links map[string]error) map[string]inode {
	places := map[string]inode{".": linkTarget(dir)}
	for name := range links {
		places[name] = linkTarget(filepath.Join(dir, name))
	}
	return places
}

// linkTarget returns what a path leads to; the zero value for nothing.
func linkTarget(path string) inode {
	info, err := os.Stat(path)
	if err != nil {
		return inode{}
	}
	at := stampOf(info)
	return inode{at.device, at.inode}
}

// hasLinkChanged reports whether the folder or a link in it leads elsewhere than when the tree was walked last.
func (w *watch) hasLinkChanged() bool {
	for name, before := range w.watched {
		if linkTarget(filepath.Join(w.dir, name)) != before {
			return true
		}
	}
	return false
}

// add watches one directory, and reports whether the watch goes on. A directory that is watched already is watched
// anew: it may be another one by the same name.
func (w *watch) add(dir string) bool {
	err := w.watcher.Add(dir)
	if err == nil {
		return true
	}
	// A directory that vanished or may not be read is not part of the tree. The watch on its parent reports when that
	// changes; the folder itself is checked regularly.
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR) {
		return true
	}
	w.switchToPolling(fmt.Errorf("watching %s: %w", dir, err))
	return false
}

// wait returns true after something may have changed, and false when the context has ended.
func (w *watch) wait(ctx context.Context) bool {
	if w.watcher == nil {
		return sleep(ctx, min(w.poll, w.waitQuiet()))
	}
	looks := time.NewTicker(linkCheckInterval)
	defer looks.Stop()
	rest := time.NewTimer(w.waitQuiet())
	defer rest.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-w.watcher.Events:
			return w.waitStable(ctx)
		case err := <-w.watcher.Errors:
			// This is above all an overflow of the kernel's queue: anything may have happened.
			w.log.Warn("changes may have been missed; reading the folder again", "folder", w.dir, "error", err)
			return w.waitStable(ctx)
		case <-rest.C:
			return true
		case <-looks.C:
			if w.isBlind || w.again || w.hasLinkChanged() {
				return w.waitStable(ctx)
			}
		}
	}
}

// waitQuiet returns how long to wait at most: until the due time, but never long, because somebody may set the clock, and
// never so briefly that a restless folder is read all the time.
func (w *watch) waitQuiet() time.Duration {
	if w.until.IsZero() {
		return math.MaxInt64
	}
	return min(max(time.Until(w.until), quietTime), time.Minute)
}

// waitStable waits for the end of a burst, and returns false when the context has ended.
func (w *watch) waitStable(ctx context.Context) bool {
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
		case <-w.watcher.Events:
			quiet.Reset(quietTime)
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
