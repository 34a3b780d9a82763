// Package logs captures the output of a program or a logger, for a test that reads it concurrently.
package logs

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// Log is the output so far. Its zero value is empty. It is safe for concurrent use.
type Log struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

// New returns an empty log. If the test fails, it prints the content of the log when it ends.
func New(t testing.TB, name string) *Log {
	t.Helper()
	l := &Log{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, l)
		}
	})
	return l
}

// Write appends to the log.
func (l *Log) Write(text []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.Write(text)
}

// String returns the content of the log.
func (l *Log) String() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.String()
}

// Has reports whether the log contains a text.
func (l *Log) Has(text string) bool { return strings.Contains(l.String(), text) }

// Count returns the number of occurrences of a text.
func (l *Log) Count(text string) int { return strings.Count(l.String(), text) }

// Lines returns the lines that contain a text. Every line contains the empty text.
func (l *Log) Lines(text string) []string {
	var found []string
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, text) {
			found = append(found, strings.TrimSuffix(line, "\n"))
		}
	}
	return found
}

// WaitFor waits until the log contains a text.
func (l *Log) WaitFor(t testing.TB, text string) {
	t.Helper()
	wait.Success(t, "the log contains "+text, func() error {
		if l.Has(text) {
			return nil
		}
		return missingText{l}
	})
}

// missingText formats the log only if the wait fails.
type missingText struct{ log *Log }

func (e missingText) Error() string { return "log:\n" + e.log.String() }

// Logger returns a logger that writes key=value lines to the log, from level Info.
func (l *Log) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
