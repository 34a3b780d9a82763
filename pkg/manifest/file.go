package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"path"

	"github.com/vicinity-proxy/vicinity/pkg/boundedio"
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

// FormatOf returns the format of a file by its name; false if manifests have no such name.
func FormatOf(name string) (format Format, ok bool) {
	switch path.Ext(name) {
	case ".yaml", ".yml":
		return YAML, true
	case ".json":
		return JSON, true
	}
	return YAML, false
}

// FormatOfText recognizes the format of a text by the name of its file, and if that says nothing by its beginning: JSON
// values may follow one another, which YAML does not know.
func FormatOfText(name string, text []byte) Format {
	format, ok := FormatOf(name)
	if ok || !bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) {
		return format
	}
	var first json.RawMessage
	if json.NewDecoder(bytes.NewReader(text)).Decode(&first) != nil {
		return YAML
	}
	return JSON
}

// notText are the beginnings of files that hold no text, and what to do about them.
var notText = []struct{ begin, what string }{
	{"\xff\xfe", "the file is UTF-16; save it as UTF-8"},
	{"\xfe\xff", "the file is UTF-16; save it as UTF-8"},
	{"\x1f\x8b", "the file is compressed with gzip; unpack it first, with gunzip"},
	{"BZh", "the file is compressed with bzip2; unpack it first, with bunzip2"},
	{"\xfd7zXZ\x00", "the file is compressed with xz; unpack it first, with unxz"},
	{"\x28\xb5\x2f\xfd", "the file is compressed with zstd; unpack it first, with unzstd"},
	{"PK\x03\x04", "the file is a zip archive; unpack it first, with unzip"},
}

// faultOfFormat says why a file is no text by how it begins, or because it is a tar archive; nil if it may be text.
func faultOfFormat(text []byte) *ParseError {
	const tar, tarAt = "ustar", 257 // POSIX.1-1988
	if len(text) > tarAt && bytes.HasPrefix(text[tarAt:], []byte(tar)) {
		return &ParseError{Reason: "the file is a tar archive; unpack it first, with tar -x"}
	}
	for _, format := range notText {
		if bytes.HasPrefix(text, []byte(format.begin)) {
			return &ParseError{Reason: format.what}
		}
	}
	return nil
}

// Read reads the text of a file to its end. It fails if there are more than MaxSize bytes.
func Read(name string, file io.Reader) ([]byte, error) {
	text, err := boundedio.ReadAll(file, MaxSize)
	if errors.As(err, new(boundedio.Error)) {
		err = &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return text, err
}
