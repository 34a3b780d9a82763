package node

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// cloneImages gives a node the images of a containerd that has ended. No program writes to what an image was unpacked
// to, so the files are shared; the databases are copied, because each containerd goes on with its own. Importing the
// images anew would take seconds on every node.
func cloneImages(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("reading the images: %w", err)
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return fmt.Errorf("reading the images: %w", err)
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
			return link(path, target)
		}
	})
}

func cloneFolder(entry fs.DirEntry, target string) error {
	status, err := entry.Info()
	if err != nil {
		return fmt.Errorf("reading the images: %w", err)
	}
	if err := os.MkdirAll(target, 0o755); err != nil {
		return fmt.Errorf("making a folder for images: %w", err)
	}
	if err := os.Chmod(target, status.Mode()); err != nil { // the umask has no say
		return fmt.Errorf("making a folder for images: %w", err)
	}
	return nil
}

func cloneSymlink(path, target string) error {
	destination, err := os.Readlink(path)
	if err != nil {
		return fmt.Errorf("reading the images: %w", err)
	}
	if err := os.Symlink(destination, target); err != nil {
		return fmt.Errorf("sharing the images: %w", err)
	}
	return nil
}
