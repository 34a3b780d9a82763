package manifest

import (
	"fmt"
	"io"
	"io/fs"
	"path"
)

// MaxSize bounds what is read of one file, in bytes. Sixty megabytes hold 44,000 Services.
const MaxSize = 256 << 20

// Format is how a file is written.
type Format int

// The formats.
const (
	YAML Format = iota // a JSON document is one of YAML too
	JSON
)

// FormatOf returns the format of a file by its name; false if it is none of manifests.
func FormatOf(name string) (format Format, ok bool) {
	switch path.Ext(name) {
	case ".yaml", ".yml":
		return YAML, true
	case ".json":
		return JSON, true
	}
	return YAML, false
}

// Read reads the text of a file to its end. It fails if there are more than MaxSize bytes.
func Read(name string, file io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(file, MaxSize+1))
	if err != nil {
		return nil, err
	}
	if len(text) > MaxSize {
		return nil, TooLarge(name, int64(len(text)))
	}
	return text, nil
}

// TooLarge says that a file has more than MaxSize bytes.
func TooLarge(name string, size int64) error {
	reason := fmt.Errorf("it has %d bytes, and no more than %d are read", size, MaxSize)
	return &fs.PathError{Op: "read", Path: name, Err: reason}
}
