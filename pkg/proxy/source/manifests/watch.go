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

// A burst of changes ends when nothing has happened for quietTime. It is limited to burstTime, so that a folder that
// changes all the time is still read.
const (
	quietTime = 50 * time.Millisecond
	burstTime = 500 * time.Millisecond
)

// linkCheckInterval is the interval of checking where the folder and the links in it lead. pollInterval is the interval
// of reading the whole folder if the kernel cannot report changes.
const (
	linkCheckInterval = time.Second
	pollInterval      = 2 * time.Second
)

// maxAttempts bounds how often a tree is walked, or loaded, again because it changed during the walk. The next
// change or the next check causes another one anyway.
const maxAttempts = 10

// watch waits for changes below a directory.
type watch struct {
	dir     string
	log     *slog.Logger
	poll    time.Duration
	watcher *fsnotify.Watcher // nil when polling
	// linkInodes are the inodes to which the folder and the links in it led when the tree was last walked, by name.
	linkInodes map[string]inode
	// isMissing reports whether the folder is currently missing, and with it everything that could be watched.
	isMissing bool
	// recheck requests another check after linkCheckInterval even without an event. deadline is the time of the next check
	// at the latest; zero means none.
	recheck  bool
	deadline time.Time
}

// newWatch returns a watch that does not watch anything yet. Without inotify (each user may have 128 instances by
// default) it polls.
func newWatch(dir string, log *slog.Logger) *watch {
	if absolute, err := filepath.Abs(dir); err == nil {
		dir = absolute // fails only without a working directory, and then a relative folder cannot be read either
	}
	w := &watch{dir: filepath.Clean(dir), log: log, poll: pollInterval}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		w.switchToPolling(fmt.Errorf("create inotify instance: %w", err))
		return w
	}
	w.watcher = watcher
	return w
}

// switchToPolling makes the watch poll from now on.
func (w *watch) switchToPolling(err error) {
	w.log.Warn("failed to watch the folder; polling instead",
		"folder", w.dir, "interval", w.poll, "error", err)
	w.close()
	w.watcher = nil
}

func (w *watch) close() {
	if w.watcher == nil {
		return
	}
	if err := w.watcher.Close(); err != nil {
		w.log.Warn("failed to close inotify instance", "folder", w.dir, "error", err)
	}
}

// watchTree watches every directory of the current tree. To find a directory that appeared before its parent was
// watched, it walks again, until a walk finds nothing new and no link has changed.
func (w *watch) watchTree() {
	var watched []string
	for range maxAttempts {
		found, err := manifest.Scan(w.dir)
		w.isMissing = err != nil
		before := w.linkInodes
		w.linkInodes = linkTargets(w.dir, found.Links)
		if w.watcher == nil || slices.Equal(found.Watched, watched) && maps.Equal(w.linkInodes, before) {
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

// inode identifies a file, regardless of its name.
type inode struct{ device, number uint64 }

// linkTargets returns the inodes to which a folder and the links in it lead.
func linkTargets(dir string, links map[string]error) map[string]inode {
	targets := map[string]inode{".": linkTarget(dir)}
	for name := range links {
		targets[name] = linkTarget(filepath.Join(dir, name))
	}
	return targets
}

// linkTarget returns the inode to which a path leads; the zero value if it does not exist.
func linkTarget(path string) inode {
	info, err := os.Stat(path)
	if err != nil {
		return inode{}
	}
	s := stampOf(info)
	return inode{s.device, s.inode}
}

// hasLinkChanged reports whether the folder or a link in it leads elsewhere than when the tree was last walked.
func (w *watch) hasLinkChanged() bool {
	for name, before := range w.linkInodes {
		if linkTarget(filepath.Join(w.dir, name)) != before {
			return true
		}
	}
	return false
}

// add watches one directory, and reports whether the watch continues. A directory that is already watched is added
// again: it may be another one with the same name.
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
	w.switchToPolling(fmt.Errorf("watch %s: %w", dir, err))
	return false
}

// wait returns true after something may have changed, and false when the context has ended.
func (w *watch) wait(ctx context.Context) bool {
	if w.watcher == nil {
		return sleep(ctx, min(w.poll, w.maxWait()))
	}
	linkChecks := time.NewTicker(linkCheckInterval)
	defer linkChecks.Stop()
	deadline := time.NewTimer(w.maxWait())
	defer deadline.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-w.watcher.Events:
			return w.waitForBurstEnd(ctx)
		case err := <-w.watcher.Errors:
			// Usually an overflow of the kernel's queue, after which anything may have changed.
			w.log.Warn("changes may have been missed; reading the folder again", "folder", w.dir, "error", err)
			return w.waitForBurstEnd(ctx)
		case <-deadline.C:
			return true
		case <-linkChecks.C:
			if w.isMissing || w.recheck || w.hasLinkChanged() {
				return w.waitForBurstEnd(ctx)
			}
		}
	}
}

// maxWait returns how long to wait at most: until the deadline, but at most a minute, because the clock may be set,
// and at least quietTime, so that a folder that changes all the time is not read continuously.
func (w *watch) maxWait() time.Duration {
	if w.deadline.IsZero() {
		return math.MaxInt64
	}
	return min(max(time.Until(w.deadline), quietTime), time.Minute)
}

// waitForBurstEnd waits for the end of a burst, and returns false when the context has ended.
func (w *watch) waitForBurstEnd(ctx context.Context) bool {
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

// sleep waits for a duration, and returns false when the context has ended.
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
