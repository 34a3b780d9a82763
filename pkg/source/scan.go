package source

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

// tree is what a folder holds at one moment.
type tree struct {
	// files are the manifests, sorted, relative to the folder and with slashes.
	files []string
	// unreadable are the files and subfolders that cannot be looked at, with the reason.
	unreadable map[string]error
	// watched are the directories in which any change may change the tree or a file of it.
	watched []string
}

// scanner walks a folder. Names that begin with a dot are passed over: editors keep their swap files there, and a mounted
// ConfigMap its generations; its visible names are links into them.
type scanner struct {
	dir     string
	out     tree
	visited map[inode]bool // directories, to walk each once however many links lead to it
}

// scan lists the manifests below a directory. It fails if the directory itself cannot be read.
func scan(dir string) (tree, error) {
	s := scanner{dir: dir, out: tree{unreadable: make(map[string]error)}, visited: make(map[inode]bool)}
	if err := s.directory(""); err != nil {
		return tree{}, err
	}
	slices.Sort(s.out.files)
	slices.Sort(s.out.watched)
	s.out.watched = slices.Compact(s.out.watched)
	return s.out, nil
}

// directory walks one directory, named relative to the folder.
func (s *scanner) directory(name string) error {
	full := filepath.Join(s.dir, name)
	stat, err := os.Stat(full)
	if err != nil {
		return fmt.Errorf("reading the folder: %w", err)
	}
	identity := stampOf(stat).inode
	if s.visited[identity] {
		return nil
	}
	s.visited[identity] = true
	entries, err := os.ReadDir(full)
	if err != nil {
		return fmt.Errorf("reading the folder: %w", err)
	}
	s.out.watched = append(s.out.watched, full)
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), ".") {
			s.entry(path.Join(name, entry.Name()), entry.Type()&fs.ModeSymlink != 0)
		}
	}
	return nil
}

// entry adds one name of a directory to the tree. What vanished since the directory was read is gone, and that is all.
func (s *scanner) entry(name string, isLink bool) {
	full := filepath.Join(s.dir, name)
	stat, err := os.Stat(full)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !isLink:
	case err != nil:
		if isManifestName(name) {
			s.out.unreadable[name] = err
		}
	case stat.IsDir():
		if err := s.directory(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.out.unreadable[name] = err
		}
	case stat.Mode().IsRegular() && isManifestName(name):
		s.out.files = append(s.out.files, name)
		if isLink {
			s.watchTarget(full)
		}
	}
}

// watchTarget has the directory watched in which a link's file lives: writing there shows nowhere else.
func (s *scanner) watchTarget(link string) {
	if target, err := filepath.EvalSymlinks(link); err == nil {
		s.out.watched = append(s.out.watched, filepath.Dir(target))
	}
}
