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

// MaxSize is the largest file that is read, in bytes. Sixty megabytes hold 44,000 Services.
const MaxSize = 256 << 20

// Format is the format of a file.
type Format int

// The formats.
const (
	YAML Format = iota // includes JSON documents
	JSON
)

// FormatOf returns the format of a file by its name; ok is false if it is not the name of a manifest.
func FormatOf(name string) (format Format, ok bool) {
	switch path.Ext(name) {
	case ".yaml", ".yml":
		return YAML, true
	case ".json":
		return JSON, true
	}
	return YAML, false
}

// FormatOfText returns the format of a text by the name of its file or, failing that, by its first value: JSON values
// may follow one another, which is not valid YAML.
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

// binaryFormats are the first bytes of files that are not text, with the error to report.
var binaryFormats = []struct{ begin, what string }{
	{"\xff\xfe", "the file is UTF-16; save it as UTF-8"},
	{"\xfe\xff", "the file is UTF-16; save it as UTF-8"},
	{"\x1f\x8b", "the file is compressed with gzip; unpack it first, with gunzip"},
	{"BZh", "the file is compressed with bzip2; unpack it first, with bunzip2"},
	{"\xfd7zXZ\x00", "the file is compressed with xz; unpack it first, with unxz"},
	{"\x28\xb5\x2f\xfd", "the file is compressed with zstd; unpack it first, with unzstd"},
	{"PK\x03\x04", "the file is a zip archive; unpack it first, with unzip"},
}

// binaryFormatError returns an error if the text is in a binary format, by its first bytes or as a tar archive; nil
// otherwise.
func binaryFormatError(text []byte) *ParseError {
	const tarMagic, tarOffset = "ustar", 257 // POSIX.1-1988
	if len(text) > tarOffset && bytes.HasPrefix(text[tarOffset:], []byte(tarMagic)) {
		return &ParseError{Reason: "the file is a tar archive; unpack it first, with tar -x"}
	}
	for _, format := range binaryFormats {
		if bytes.HasPrefix(text, []byte(format.begin)) {
			return &ParseError{Reason: format.what}
		}
	}
	return nil
}

// Read reads a file to its end. It fails if there are more than MaxSize bytes.
func Read(name string, file io.Reader) ([]byte, error) {
	text, err := boundedio.ReadAll(file, MaxSize)
	if errors.As(err, new(boundedio.Error)) {
		err = &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return text, err
}
