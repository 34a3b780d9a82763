package manifest

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"
)

// packText returns a text as compressed or archived by a program.
func packText(t *testing.T, text string, pack func(to io.Writer) (io.WriteCloser, error)) string {
	t.Helper()
	var file bytes.Buffer
	writer, err := pack(&file)
	if err == nil {
		_, err = io.WriteString(writer, text)
	}
	if err == nil {
		err = writer.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return file.String()
}

// zipped is a file in a zip archive. Closing it closes the archive.
type zipped struct {
	io.Writer
	io.Closer
}

// TestBinaryFormatsAreReported checks that the error contains the format of a binary file.
func TestBinaryFormatsAreReported(t *testing.T) {
	text := annotated("a/b")
	for want, file := range map[string]string{
		"gzip": packText(t, text, func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil }),
		"zip archive": packText(t, text, func(w io.Writer) (io.WriteCloser, error) {
			archive := zip.NewWriter(w)
			file, err := archive.Create("web.yaml")
			return zipped{file, archive}, err
		}),
		"tar archive": packText(t, text, func(w io.Writer) (io.WriteCloser, error) {
			archive := tar.NewWriter(w)
			return archive, archive.WriteHeader(&tar.Header{Name: "web.yaml", Mode: 0o600, Size: int64(len(text))})
		}),
		"bzip2": "BZh91AY&SY", "xz": "\xfd7zXZ\x00\x00\x04", "zstd": "\x28\xb5\x2f\xfd\x04",
	} {
		for _, format := range []Format{YAML, JSON} {
			var got []string
			for part := range Parts(format, []byte(file), serviceType) {
				got = append(got, part.Fault.Reason)
			}
			if len(got) != 1 || !strings.Contains(got[0], want) || !strings.Contains(got[0], "; unpack it first, with ") {
				t.Errorf("%s: got %q", want, got)
			}
		}
		if got := explainSyntaxError([]byte(file), io.ErrUnexpectedEOF); got.Line != 1 || !strings.Contains(got.Reason, want) {
			t.Errorf("%s: got %+v", want, got)
		}
	}
}
