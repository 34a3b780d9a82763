package logs_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/logs"
)

func TestConcurrentReadsAndWrites(t *testing.T) {
	var log logs.Log
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for range 100 {
				log.Logger().Info("a line", "key", "value")
			}
		})
	}
	log.WaitFor(t, "a line")
	writers.Wait()
	if got := log.Count(`level=INFO msg="a line" key=value` + "\n"); got != 400 {
		t.Errorf("%d lines were written, want 400", got)
	}
}

func TestLines(t *testing.T) {
	var log logs.Log
	_, _ = log.Write([]byte("one\ntwo\ntwo and a half\nth"))
	if got := log.Lines("two"); !slices.Equal(got, []string{"two", "two and a half"}) {
		t.Errorf("lines: %q", got)
	}
	if got := log.Lines(""); len(got) != 4 || !log.Has("th") || log.Has("three") {
		t.Errorf("lines: %q", got)
	}
}

// failingTB is a failing test that records its log.
type failingTB struct {
	testing.TB
	cleanups []func()
	shown    []any
}

func (*failingTB) Helper()                       {}
func (*failingTB) Failed() bool                  { return true }
func (f *failingTB) Cleanup(cleanup func())      { f.cleanups = append(f.cleanups, cleanup) }
func (f *failingTB) Logf(_ string, shown ...any) { f.shown = shown }

func TestFailedTestPrintsLog(t *testing.T) {
	f := &failingTB{TB: t}
	log := logs.New(f, "the proxy")
	log.Logger().Warn("beware")
	for _, cleanup := range f.cleanups {
		cleanup()
	}
	if len(f.shown) != 2 || f.shown[0] != "the proxy" || !strings.Contains(f.shown[1].(*logs.Log).String(), "beware") {
		t.Errorf("shown: %v", f.shown)
	}
}
