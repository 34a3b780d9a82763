package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Tree is a snapshot of a folder.
type Tree struct {
	// Dir is the folder. For a single file it is the folder that contains the file.
	Dir string
	// Files are the manifests, sorted, as slash-separated paths relative to the folder.
	Files []string
	// Unreadable are the files and subfolders that cannot be read, with the error.
	Unreadable map[string]error
	// Watched are the directories, or the single file, in which any change may change the tree or one of its files.
	// Changes of links on the path to them are not visible there.
	Watched []string
	// Links are the names that are symbolic links, with the error of each broken one.
	Links map[string]error
}

// ErrorOf returns why a file, or a directory on the path to it, cannot be read; nil if it can.
func (t *Tree) ErrorOf(name string) error {
	for ; name != "."; name = path.Dir(name) {
		if failure := t.Unreadable[name]; failure != nil {
			return failure
		}
		if failure := t.Links[name]; failure != nil {
			return failure
		}
	}
	return nil
}

// scanner walks a folder. It skips names that begin with a dot: editors keep swap files there, and a mounted ConfigMap
// keeps its generations there and links to them from its visible names.
type scanner struct {
	dir     string
	tree    Tree
	visited map[string]bool // directories by real path, to walk each once however many links refer to it
}

// Scan lists the manifests below a directory, or a single file with any name. It fails if the directory or file cannot
// be read.
func Scan(dir string) (Tree, error) {
	if info, err := os.Stat(dir); err == nil && info.Mode().IsRegular() {
		return Tree{Dir: filepath.Dir(dir), Files: []string{filepath.Base(dir)}, Watched: []string{dir}}, nil
	}
	s := scanner{dir: dir, visited: make(map[string]bool)}
	s.tree = Tree{Dir: dir, Unreadable: make(map[string]error), Links: make(map[string]error)}
	if err := s.scanDirectory(""); err != nil {
		return Tree{}, err
	}
	slices.Sort(s.tree.Files)
	slices.Sort(s.tree.Watched)
	s.tree.Watched = slices.Compact(s.tree.Watched)
	return s.tree, nil
}

// scanDirectory walks one directory, given relative to the folder.
func (s *scanner) scanDirectory(name string) error {
	full := filepath.Join(s.dir, name)
	if _, err := os.Stat(full); err != nil {
		return fmt.Errorf("read the folder: %w", err)
	}
	realPath, err := filepath.EvalSymlinks(full)
	if err != nil {
		return fmt.Errorf("read the folder: %w", err)
	}
	if s.visited[realPath] {
		return nil
	}
	s.visited[realPath] = true
	entries, err := os.ReadDir(full)
	if err != nil {
		return fmt.Errorf("read the folder: %w", err)
	}
	s.tree.Watched = append(s.tree.Watched, full)
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), ".") {
			s.addEntry(path.Join(name, entry.Name()), entry.Type()&fs.ModeSymlink != 0)
		}
	}
	return nil
}

// addEntry adds one name of a directory to the tree. A name that was removed since the directory was read is skipped.
func (s *scanner) addEntry(name string, isLink bool) {
	full := filepath.Join(s.dir, name)
	stat, err := os.Stat(full)
	if isLink {
		s.tree.Links[name] = err
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && !isLink:
	case err != nil:
		if isManifest(name) {
			s.tree.Unreadable[name] = err
		}
	case stat.IsDir():
		if err := s.scanDirectory(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.tree.Unreadable[name] = err
		}
	case stat.Mode().IsRegular() && isManifest(name):
		s.tree.Files = append(s.tree.Files, name)
		if isLink {
			s.watchTarget(full)
		}
	}
}

// watchTarget adds the directory of a link's target to the watched ones, because writes there are visible nowhere else.
func (s *scanner) watchTarget(link string) {
	if target, err := filepath.EvalSymlinks(link); err == nil {
		s.tree.Watched = append(s.tree.Watched, filepath.Dir(target))
	}
}

func isManifest(name string) bool {
	_, ok := FormatOf(name)
	return ok
}
