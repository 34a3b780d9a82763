package folder

import (
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/limited"
	"github.com/vicinity-proxy/vicinity/pkg/manifest"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// settleTime is how long a file must be left alone before its stamp is trusted, and while the folder is followed, before
// what happened to it counts. Two writes within the resolution of a file system's clock (up to two seconds) leave the same
// stamp.
const settleTime = 2 * time.Second

// errEmptied is why a file that held objects is not believed when it is empty: a shell truncates the
// file in "kubectl get ... > file" before kubectl has asked for anything.
var errEmptied = errors.New("it is empty, as a file is while it is being written; delete it to remove its objects")

// stamp distinguishes the states of a file without reading it, whatever its name.
type stamp struct {
	device, inode     uint64
	size              int64
	modified, changed syscall.Timespec
}

// version is what a file held when it was read; the zero value is a file that is not there.
type version struct {
	sum      [sha256.Size]byte
	contents contents
}

// file is one file of the folder.
type file struct {
	stamp     stamp
	isSettled bool // the stamp would differ if the file had changed since
	// version is the one that counts.
	version
	// failure is why the file could not be read the last time.
	failure error
	// coming is the version that was found last, while it does not count yet; since is when it was first found.
	coming *version
	since  time.Time
}

// read reads a file again if it may have changed, and returns its new state: the same file if nothing is new. What the
// file holds counts when it has been the same for as long as it takes to settle. A program may write a file slowly: what
// it has not written yet has not been deleted, and a text that ends at a random place may well be valid up to there.
func (f *file) read(dir, name string, view convert.View, settle time.Duration, now time.Time) *file {
	updated := *f
	text, err := updated.newText(filepath.Join(dir, name), now)
	if err == nil && text == nil && f.coming == nil {
		return f
	}
	updated.failure = err
	if err == nil && text != nil && len(text) == 0 && f.mayHoldObjects() {
		updated.failure = errEmptied
	}
	if updated.failure != nil {
		updated.coming = nil
		if err != nil {
			updated.stamp = stamp{}
		}
		return &updated
	}
	if text != nil {
		switch sum := sha256.Sum256(text); {
		case sum == f.sum:
			updated.coming = nil
		case f.coming == nil || sum != f.coming.sum:
			updated.coming, updated.since = &version{sum, decode(name, text, view)}, now
		}
	}
	if updated.coming != nil && now.Sub(updated.since) >= settle {
		updated.version, updated.coming = *updated.coming, nil
	}
	return &updated
}

// vanish takes in that the file is not there, and returns its new state: nil as soon as that counts.
func (f *file) vanish(settle time.Duration, now time.Time) *file {
	updated := file{version: f.version, coming: f.coming, since: f.since}
	if f.coming == nil || f.coming.sum != [sha256.Size]byte{} {
		updated.coming, updated.since = &version{}, now
	}
	if now.Sub(updated.since) >= settle {
		return nil
	}
	return &updated
}

// mayHoldObjects reports whether the file held objects, as far as known, when it was read last.
func (f *file) mayHoldObjects() bool {
	wasRead := f.sum != [sha256.Size]byte{}
	return wasRead && (len(f.contents.claims) > 0 || !f.contents.isComplete)
}

// newText returns the text of a file and notes its stamp, or returns nil if the stamp says that nothing changed.
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
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("it is not a regular file")}
	}
	if info.Size() > manifest.MaxSize {
		return nil, limited.Error{Limit: manifest.MaxSize}
	}
	found := stampOf(info)
	if f.isSettled && found == f.stamp && f.failure == nil {
		return nil, nil
	}
	text, err := manifest.Read(name, opened)
	if err != nil {
		return nil, err
	}
	f.stamp = found
	f.isSettled = now.Sub(time.Unix(found.changed.Unix())) > settleTime
	return text, nil
}

func stampOf(info os.FileInfo) stamp {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return stamp{size: info.Size()}
	}
	return stamp{stat.Dev, stat.Ino, stat.Size, stat.Mtim, stat.Ctim}
}
