package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/e2e/lab/cluster"
)

// A lab's keeper holds a lock on a file in its folder while it lives. The kernel releases the lock however the keeper
// ends, and reports its holder. A process id in a file could by now belong to another process.

func lockFile(folder cluster.Folder) string { return filepath.Join(string(folder), "lock") }

var wholeFile = unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}

var errAlreadyRunning = errors.New("a lab is already running")

// takeLock takes the lock for the rest of this process's life. The file must not be opened again, because closing it would
// release the lock (fcntl(2)).
func takeLock(folder cluster.Folder) error {
	file, err := unix.Open(lockFile(folder), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return fmt.Errorf("open %s: %w", lockFile(folder), err)
	}
	lock := wholeFile
	err = unix.FcntlFlock(uintptr(file), unix.F_SETLK, &lock)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return errAlreadyRunning
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", lockFile(folder), err)
	}
	return nil
}

// keeperOf returns the process id of the keeper of a folder's lab, or 0 if none runs.
func keeperOf(folder cluster.Folder) (pid int, err error) {
	file, err := os.Open(lockFile(folder))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("find a running lab: %w", err)
	}
	defer file.Close()
	lock := wholeFile
	if err := unix.FcntlFlock(file.Fd(), unix.F_GETLK, &lock); err != nil {
		return 0, fmt.Errorf("find a running lab: %w", err)
	}
	if lock.Type == unix.F_UNLCK {
		return 0, nil
	}
	return int(lock.Pid), nil
}
