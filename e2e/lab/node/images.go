package node

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// cloneImages copies the images of a containerd that has exited to a node. No program writes to unpacked images, so the
// files are shared. The databases are copied, because each containerd changes its own. Importing the images again would
// take seconds on every node.
func cloneImages(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("read the images: %w", err)
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return fmt.Errorf("read the images: %w", err)
		}
		target := filepath.Join(to, relative)
		switch {
		case entry.IsDir():
			return cloneFolder(entry, target)
		case entry.Type()&fs.ModeSymlink != 0:
			return cloneSymlink(path, target)
		case filepath.Ext(path) == ".db":
			return copyFile(path, target)
		default:
			return linkOrCopy(path, target)
		}
	})
}

func cloneFolder(entry fs.DirEntry, target string) error {
	status, err := entry.Info()
	if err != nil {
		return fmt.Errorf("read the images: %w", err)
	}
	if err := os.MkdirAll(target, 0o755); err != nil {
		return fmt.Errorf("create folder for images: %w", err)
	}
	if err := os.Chmod(target, status.Mode()); err != nil { // overrides the umask
		return fmt.Errorf("create folder for images: %w", err)
	}
	return nil
}

func cloneSymlink(path, target string) error {
	destination, err := os.Readlink(path)
	if err != nil {
		return fmt.Errorf("read the images: %w", err)
	}
	if err := os.Symlink(destination, target); err != nil {
		return fmt.Errorf("share the images: %w", err)
	}
	return nil
}
