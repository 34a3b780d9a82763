package binaries

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lock waits until no other build of the module runs, in this process or another. The kernel releases the lock of a
// process that is killed.
func lock(path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("create cache folder for the lab's programs: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the lab's programs: %w", err)
	}
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX)
		switch err {
		case nil:
			return func() { file.Close() }, nil
		case unix.EINTR: // Go's own preemption signals
		default:
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
	}
}
