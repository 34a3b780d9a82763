// Package logs keeps what a program or a logger writes, for a test that reads it at the same time.
package logs

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// Log is what was written so far. Its zero value is empty. It may be written and read concurrently.
type Log struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

// New returns an empty log. If the test fails, it shows what the log has at the end.
func New(t testing.TB, of string) *Log {
	t.Helper()
	l := &Log{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of %s:\n%s", of, l)
		}
	})
	return l
}

// Write appends.
func (l *Log) Write(text []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.Write(text)
}

// String returns all that was written.
func (l *Log) String() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.String()
}

// Has reports whether a text was written.
func (l *Log) Has(text string) bool { return strings.Contains(l.String(), text) }

// Count returns how often a text was written.
func (l *Log) Count(text string) int { return strings.Count(l.String(), text) }

// Lines returns the lines that have a text in them; the empty text is in every line.
func (l *Log) Lines(text string) []string {
	var found []string
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, text) {
			found = append(found, strings.TrimSuffix(line, "\n"))
		}
	}
	return found
}

// WaitFor waits until a text was written.
func (l *Log) WaitFor(t testing.TB, text string) {
	t.Helper()
	wait.Success(t, "the log says "+text, func() error {
		if l.Has(text) {
			return nil
		}
		return notYet{l}
	})
}

// notYet shows the log only if the wait fails.
type notYet struct{ log *Log }

func (e notYet) Error() string { return "it says:\n" + e.log.String() }

// Logger returns a logger that writes lines of key=value into the log, from level Info on.
func (l *Log) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
