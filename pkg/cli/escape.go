package cli

import (
	"bytes"
	"io"
	"sync"

	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

// escapeWriter wraps standard output or error and escapes characters that would control the terminal.
type escapeWriter struct {
	w     io.Writer
	mutex sync.Mutex
	rest  []byte // an incomplete character
}

func newEscapeWriter(w io.Writer) *escapeWriter { return &escapeWriter{w: w} }

// Write writes text, escaped.
func (e *escapeWriter) Write(text []byte) (int, error) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	all := text
	if len(e.rest) > 0 {
		all = append(e.rest, text...)
	}
	escaped, rest := sanitize.Escape(all)
	e.rest = bytes.Clone(rest)
	if _, err := e.w.Write(escaped); err != nil {
		return 0, err
	}
	return len(text), nil
}

// flush writes the bytes of a character that was never completed.
func (e *escapeWriter) flush() {
	for _, b := range e.rest {
		sanitize.Fprintf(e.w, "\\x%02x", b)
	}
	e.rest = nil
}
