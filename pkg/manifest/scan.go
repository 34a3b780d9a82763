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

// Tree is what a folder holds at one moment.
type Tree struct {
	// Dir is the folder. For a single file it is the folder that the file is in.
	Dir string
	// Files are the manifests, sorted, relative to the folder and with slashes.
	Files []string
	// Unreadable are the files and subfolders that cannot be looked at, with the reason.
	Unreadable map[string]error
	// Watched are the directories, or the single file, in which any change may change the tree or a file of it. Changes of
	// links on the way to them do not show there.
	Watched []string
	// Links are the names that are links, with the reason of each that leads nowhere.
	Links map[string]error
}

// ErrorOf returns why a file, or a directory on the way to it, cannot be looked at; nil if it can.
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

// scanner walks a folder. Names that begin with a dot are skipped: editors keep their swap files there, and a mounted
// ConfigMap its generations; its visible names are links into them.
type scanner struct {
	dir     string
	out     Tree
	visited map[string]bool // directories by where they are, to walk each once however many links lead to it
}

// Scan lists the manifests below a directory, or a single file, whatever its name. It fails if the directory, or the file,
// cannot be read.
func Scan(dir string) (Tree, error) {
	if info, err := os.Stat(dir); err == nil && info.Mode().IsRegular() {
		return Tree{Dir: filepath.Dir(dir), Files: []string{filepath.Base(dir)}, Watched: []string{dir}}, nil
	}
	s := scanner{dir: dir, visited: make(map[string]bool)}
	s.out = Tree{Dir: dir, Unreadable: make(map[string]error), Links: make(map[string]error)}
	if err := s.directory(""); err != nil {
		return Tree{}, err
	}
	slices.Sort(s.out.Files)
	slices.Sort(s.out.Watched)
	s.out.Watched = slices.Compact(s.out.Watched)
	return s.out, nil
}

// directory walks one directory, named relative to the folder.
func (s *scanner) directory(name string) error {
	full := filepath.Join(s.dir, name)
	if _, err := os.Stat(full); err != nil {
		return fmt.Errorf("reading the folder: %w", err)
	}
	place, err := filepath.EvalSymlinks(full)
	if err != nil {
		return fmt.Errorf("reading the folder: %w", err)
	}
	if s.visited[place] {
		return nil
	}
	s.visited[place] = true
	entries, err := os.ReadDir(full)
	if err != nil {
		return fmt.Errorf("reading the folder: %w", err)
	}
	s.out.Watched = append(s.out.Watched, full)
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), ".") {
			s.entry(path.Join(name, entry.Name()), entry.Type()&fs.ModeSymlink != 0)
		}
	}
	return nil
}

// entry adds one name of a directory to the tree. A name that vanished since the directory was read is simply gone.
func (s *scanner) entry(name string, isLink bool) {
	full := filepath.Join(s.dir, name)
	stat, err := os.Stat(full)
	if isLink {
		s.out.Links[name] = err
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && !isLink:
	case err != nil:
		if isManifest(name) {
			s.out.Unreadable[name] = err
		}
	case stat.IsDir():
		if err := s.directory(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.out.Unreadable[name] = err
		}
	case stat.Mode().IsRegular() && isManifest(name):
		s.out.Files = append(s.out.Files, name)
		if isLink {
			s.watchTarget(full)
		}
	}
}

// watchTarget adds the directory in which a link's file is to those watched: writing there shows nowhere else.
func (s *scanner) watchTarget(link string) {
	if target, err := filepath.EvalSymlinks(link); err == nil {
		s.out.Watched = append(s.out.Watched, filepath.Dir(target))
	}
}

func isManifest(name string) bool {
	_, ok := FormatOf(name)
	return ok
}
