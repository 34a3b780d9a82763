package cli

import (
	"io"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/printable"
)

// Progress shows a person at a terminal how far a command is, in one line.
type Progress struct {
	to   io.Writer // nil if it is no terminal
	last time.Time
}

// NewProgress returns a Progress that shows its line where errors go.
func NewProgress(stderr io.Writer) *Progress { return &Progress{to: Terminal(stderr)} }

// Show replaces the line, ten times a second at most.
func (p *Progress) Show(format string, args ...any) {
	if p.to != nil && time.Since(p.last) > time.Second/10 {
		printable.Fprintf(p.to, "\r\x1b[K"+format, args...)
		p.last = time.Now()
	}
}

// End removes the line.
func (p *Progress) End() {
	if p.to != nil {
		printable.Fprintf(p.to, "\r\x1b[K")
	}
}
