package cli

import (
	"bytes"
	"io"
	"sync"

	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

// escapeWriter is standard output or error; it makes visible what would control the terminal.
type escapeWriter struct {
	to    io.Writer
	mutex sync.Mutex
	rest  []byte // the beginning of a character
}

func newEscapeWriter(to io.Writer) *escapeWriter { return &escapeWriter{to: to} }

// Write writes text.
func (e *escapeWriter) Write(text []byte) (int, error) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	all := text
	if len(e.rest) > 0 {
		all = append(e.rest, text...)
	}
	escaped, rest := sanitize.Escape(all)
	e.rest = bytes.Clone(rest)
	if _, err := e.to.Write(escaped); err != nil {
		return 0, err
	}
	return len(text), nil
}

// end writes what is left over: the beginning of a character that was never completed.
func (e *escapeWriter) end() {
	for _, b := range e.rest {
		sanitize.Fprintf(e.to, "\\x%02x", b)
	}
	e.rest = nil
}
