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
func (f *Files) ReadAll(names []string, stdin io.Reader) {
	var files []string
	seen := map[string]bool{}
	for _, name := range names {
		for _, file := range f.filesOf(name) {
			if clean := filepath.Clean(file); !seen[clean] {
				seen[clean] = true
				f.assignIndex(displayName(file))
				files = append(files, file)
			}
		}
	}
	fileCtx := loadContext(files)
	for _, file := range files {
		f.readFile(file, stdin, fileCtx)
	}
}

// isExcluded reports whether a file is excluded, and if so records it as skipped.
func (f *Files) isExcluded(file string) bool {
	pattern := excludedBy(f.exclude, file)
	if pattern != "" {
		f.skip(file, classification{excludedFile, "excluded by " + pattern})
	}
	return pattern != ""
}

// filesOf returns the files of an argument.
func (f *Files) filesOf(name string) []string {
	if name == Stdin {
		return []string{Stdin}
	}
	if status, err := os.Stat(name); err != nil || !status.IsDir() {
		if f.isExcluded(name) {
			return nil
		}
		return []string{name}
	}
	tree, err := manifest.Scan(name)
	if err != nil {
		f.addReadError(name, err)
		return nil
	}
	for _, unreadable := range slices.Sorted(maps.Keys(tree.Unreadable)) {
		if file := filepath.Join(name, unreadable); !f.isExcluded(file) {
			f.addReadError(file, tree.Unreadable[unreadable])
		}
	}
	if len(tree.Files) == 0 && len(tree.Unreadable) == 0 {
		f.addError(location{file: name}, "", "no .yaml, .yml or .json files in this folder")
	}
	files := make([]string, 0, len(tree.Files))
	for _, file := range tree.Files {
		if file := filepath.Join(name, filepath.FromSlash(file)); !f.isExcluded(file) {
			files = append(files, file)
		}
	}
	return files
}

// readFile reads one file, or standard input, according to its classification.
func (f *Files) readFile(name string, stdin io.Reader, fileCtx *fileContext) {
	text, err := readAny(name, stdin)
	if err != nil {
		f.addReadError(displayName(name), err)
		return
	}
	if name == Stdin {
		f.readStdin(text)
		return
	}
	class, isKnown := fileCtx.classify(name)
	switch {
	case !isKnown:
		f.readText(name, text)
		return
	case class.role == kustomizationFile:
		f.readInlinePatches(name, text)
	case class.role == patchFile && f.readPatches(name, text):
		return
	}
	f.skip(name, class)
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

func (f *Files) readStdin(text []byte) {
	if len(bytes.TrimSpace(text)) == 0 {
		// In a pipeline only the last command's exit status counts: the previous command may have failed.
		f.addError(location{file: stdinName}, "", "standard input is empty")
		return
	}
	f.readText(stdinName, text)
}

// displayName returns the name of a file in the output.
func displayName(name string) string {
	if name == Stdin {
		return stdinName
	}
	return name
}

// addReadError records why a file or folder cannot be read.
func (f *Files) addReadError(name string, err error) {
	reason := err.Error()
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		reason = pathErr.Err.Error()
	}
	f.addError(location{file: name}, "", "cannot be read: "+reason)
}
