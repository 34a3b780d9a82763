package check

import (
	"bytes"
	"encoding/json"
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
	// Stdin is standard input on the command line.
	Stdin = "-"
	// stdinName is standard input in the output.
	stdinName = "<stdin>"
)

// ReadAll reads files, folders and standard input, in their order, each file once.
func (c *Files) ReadAll(names []string, stdin io.Reader) {
	seen := map[string]bool{}
	for _, name := range names {
		for _, file := range c.filesOf(name) {
			if clean := filepath.Clean(file); !seen[clean] {
				seen[clean] = true
				c.readFile(file, stdin)
			}
		}
	}
}

// filesOf returns the files that an argument stands for.
func (c *Files) filesOf(name string) []string {
	if name == Stdin {
		return []string{Stdin}
	}
	if status, err := os.Stat(name); err != nil || !status.IsDir() {
		return []string{name}
	}
	tree, err := manifest.Scan(name)
	if err != nil {
		c.cannotRead(name, err)
		return nil
	}
	for _, unreadable := range slices.Sorted(maps.Keys(tree.Unreadable)) {
		c.cannotRead(filepath.Join(name, unreadable), tree.Unreadable[unreadable])
	}
	if len(tree.Files) == 0 && len(tree.Unreadable) == 0 {
		c.fail(place{file: name}, "", "there is no .yaml, .yml or .json file in this folder")
	}
	files := make([]string, 0, len(tree.Files))
	for _, file := range tree.Files {
		files = append(files, filepath.Join(name, filepath.FromSlash(file)))
	}
	return files
}

// readFile reads one file, or standard input.
func (c *Files) readFile(name string, stdin io.Reader) {
	file := stdin
	if name == Stdin {
		name = stdinName
	} else {
		opened, err := os.Open(name)
		if err != nil {
			c.cannotRead(name, err)
			return
		}
		defer func() { _ = opened.Close() }() // nothing was written that closing could lose
		file = opened
	}
	text, err := manifest.Read(name, file)
	if err != nil {
		c.cannotRead(name, err)
		return
	}
	if name == stdinName && len(bytes.TrimSpace(text)) == 0 {
		// In a pipeline only the last command's exit status counts: the command before may have failed.
		c.fail(place{file: name}, "", "there is nothing on standard input")
		return
	}
	c.readText(name, text)
}

// cannotRead records why a file or folder cannot be read.
func (c *Files) cannotRead(name string, err error) {
	reason := err.Error()
	if atPath, ok := errors.AsType[*fs.PathError](err); ok {
		reason = atPath.Err.Error()
	}
	c.fail(place{file: name}, "", "cannot be read: "+reason)
}

// formatOf recognizes the format of a file by its name, and if that says nothing by its beginning: JSON values may
// follow one another, which YAML does not know.
func formatOf(name string, text []byte) manifest.Format {
	format, ok := manifest.FormatOf(name)
	if ok || !bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) {
		return format
	}
	var first json.RawMessage
	if json.NewDecoder(bytes.NewReader(text)).Decode(&first) != nil {
		return manifest.YAML
	}
	return manifest.JSON
}
