package check

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/manifest"
)

const (
	// Stdin stands for standard input on the command line.
	Stdin = "-"
	// stdinName stands for standard input in the output.
	stdinName = "<stdin>"
)

// ReadAll reads files, folders and standard input, in order, each file once.
func (c *Files) ReadAll(names []string, stdin io.Reader) {
	var files []string
	seen := map[string]bool{}
	for _, name := range names {
		for _, file := range c.filesOf(name) {
			if clean := filepath.Clean(file); !seen[clean] {
				seen[clean] = true
				c.number(shownName(file))
				files = append(files, file)
			}
		}
	}
	around := loadContext(files)
	for _, file := range files {
		c.readFile(file, stdin, around)
	}
}

// isExcluded reports whether a file is excluded, and if so records it as skipped.
func (c *Files) isExcluded(file string) bool {
	pattern := excludedBy(c.exclude, file)
	if pattern != "" {
		c.skip(file, classification{excludedFile, "excluded by " + pattern})
	}
	return pattern != ""
}

// filesOf returns the files of an argument.
func (c *Files) filesOf(name string) []string {
	if name == Stdin {
		return []string{Stdin}
	}
	if status, err := os.Stat(name); err != nil || !status.IsDir() {
		if c.isExcluded(name) {
			return nil
		}
		return []string{name}
	}
	tree, err := manifest.Scan(name)
	if err != nil {
		c.cannotRead(name, err)
		return nil
	}
	for _, unreadable := range slices.Sorted(maps.Keys(tree.Unreadable)) {
		if file := filepath.Join(name, unreadable); !c.isExcluded(file) {
			c.cannotRead(file, tree.Unreadable[unreadable])
		}
	}
	if len(tree.Files) == 0 && len(tree.Unreadable) == 0 {
		c.addError(location{file: name}, "", "no .yaml, .yml or .json files in this folder")
	}
	files := make([]string, 0, len(tree.Files))
	for _, file := range tree.Files {
		if file := filepath.Join(name, filepath.FromSlash(file)); !c.isExcluded(file) {
			files = append(files, file)
		}
	}
	return files
}

// readFile reads one file, or standard input, according to its classification.
func (c *Files) readFile(name string, stdin io.Reader, around *fileContext) {
	text, err := readAny(name, stdin)
	if err != nil {
		c.cannotRead(shownName(name), err)
		return
	}
	if name == Stdin {
		c.readStdin(text)
		return
	}
	means, isKnown := around.of(name)
	switch {
	case !isKnown:
		c.readText(name, text)
		return
	case means.role == kustomizationFile:
		c.readInlinePatches(name, text)
	case means.role == patchFile && c.readPatches(name, text):
		return
	}
	c.skip(name, means)
}

// readAny reads a file, or standard input, to its end.
func readAny(name string, stdin io.Reader) ([]byte, error) {
	if name == Stdin {
		return manifest.Read(stdinName, stdin)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // opened for reading only, so closing loses nothing
	return manifest.Read(name, file)
}

func (c *Files) readStdin(text []byte) {
	if len(bytes.TrimSpace(text)) == 0 {
		// In a pipeline only the last command's exit status counts: the previous command may have failed.
		c.addError(location{file: stdinName}, "", "standard input is empty")
		return
	}
	c.readText(stdinName, text)
}

// shownName returns the name of a file in the output.
func shownName(name string) string {
	if name == Stdin {
		return stdinName
	}
	return name
}

// cannotRead records why a file or folder cannot be read.
func (c *Files) cannotRead(name string, err error) {
	reason := err.Error()
	if atPath, ok := errors.AsType[*fs.PathError](err); ok {
		reason = atPath.Err.Error()
	}
	c.addError(location{file: name}, "", "cannot be read: "+reason)
}
