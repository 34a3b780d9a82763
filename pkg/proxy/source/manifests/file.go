package manifests

import (
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/boundedio"
	"github.com/vicinity-proxy/vicinity/pkg/manifest"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// stableAfter is how long a file must be unchanged before its stamp is trusted, and before it may remove objects. Two
// writes within the resolution of a file system's clock (up to two seconds) leave the same stamp.
const stableAfter = 2 * time.Second

// errEmptyFile is the error for an empty file that had objects before. It is not applied: a shell truncates the file in
// "kubectl get ... > file" before kubectl has sent a request.
var errEmptyFile = errors.New("the file is empty, perhaps because it is still being written; delete it to remove its objects")

// stamp distinguishes the states of a file without reading it, regardless of its name.
type stamp struct {
	device, inode     uint64
	size              int64
	modified, changed syscall.Timespec
}

// file is the state of one file of the folder.
type file struct {
	stamp     stamp
	isSettled bool // the stamp would differ if the file had changed since
	// version is the active version.
	version
	// failure is the error of the last attempt to read the file.
	failure error
	// candidate is the newest version, while it is not active yet; since is when it was first read.
	candidate *version
	since     time.Time
}

// read reads a file again if it may have changed, and returns its new state. It does not change f. A file that is not
// watched becomes active at once.
func (f *file) read(dir, name string, view convert.View, isWatched bool, now time.Time) *file {
	updated := *f
	text, err := updated.newText(filepath.Join(dir, name), now)
	updated.failure = err
	if err == nil && text != nil && len(text) == 0 && f.mayHaveObjects() {
		updated.failure = errEmptyFile
	}
	if updated.failure != nil {
		updated.candidate = nil
		if err != nil {
			updated.stamp = stamp{}
		}
		return &updated
	}
	if text != nil {
		updated.observe(name, text, view, now)
	}
	if updated.candidate != nil && (!isWatched || isStable(&f.version, updated.candidate, now.Sub(updated.since))) {
		updated.promote()
	}
	return &updated
}

// observe processes a text that was read. since is kept while the text stays the same.
func (f *file) observe(name string, text []byte, view convert.View, now time.Time) {
	sum := sha256.Sum256(text)
	switch {
	case sum == f.sum:
		f.candidate = nil
	case f.candidate == nil || sum != f.candidate.sum:
		f.candidate = &version{sum: sum, size: len(text), contents: decode(name, text, view)}
		f.since = now
	}
}

// promote makes the candidate the active version.
func (f *file) promote() {
	promoted := *f.candidate
	if !promoted.contents.isComplete {
		promoted.missing = promoted.droppedObjects(&f.version)
	}
	f.version, f.candidate = promoted, nil
}

// mayHaveObjects reports whether the file may have had objects when it was last read.
func (f *file) mayHaveObjects() bool {
	wasRead := f.sum != [sha256.Size]byte{}
	return wasRead && (len(f.contents.objects) > 0 || !f.contents.isComplete)
}

// newText returns the text of a file and records its stamp, or returns nil if the stamp shows that it is unchanged.
func (f *file) newText(name string, now time.Time) ([]byte, error) {
	// On a pipe an ordinary open would wait for a writer.
	opened, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = opened.Close() }() // it was only read, so closing loses nothing
	info, err := opened.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("not a regular file")}
	}
	if info.Size() > manifest.MaxSize {
		return nil, boundedio.Error{Limit: manifest.MaxSize}
	}
	newStamp := stampOf(info)
	if f.isSettled && newStamp == f.stamp && f.failure == nil {
		return nil, nil
	}
	text, err := manifest.Read(name, opened)
	if err != nil {
		return nil, err
	}
	f.stamp = newStamp
	f.isSettled = now.Sub(time.Unix(newStamp.changed.Unix())) > stableAfter
	return text, nil
}

func stampOf(info os.FileInfo) stamp {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return stamp{size: info.Size()}
	}
	return stamp{stat.Dev, stat.Ino, stat.Size, stat.Mtim, stat.Ctim}
}
