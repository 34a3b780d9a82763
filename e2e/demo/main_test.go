package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/site"
)

// roleVariable makes this test binary act as the proxy.
const roleVariable = "DEMO_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "ends at once":
		fmt.Println("no kernel support")
		os.Exit(3)
	case "is never ready":
		fmt.Println("starting")
		for { // not select, which without cgo is a deadlock
			time.Sleep(time.Hour)
		}
	}
	os.Exit(m.Run())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// showWith runs the demo with this test binary as the proxy, and returns the exit status, the output and the error.
func showWith(ctx context.Context, t *testing.T, role string) (int, string, error) {
	t.Helper()
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	t.Setenv(roleVariable, role)
	self, err := os.Executable()
	must(t, err)
	var printed strings.Builder
	page := &page{w: &printed}
	err = show(ctx, page, self)
	remaining, globErr := filepath.Glob(filepath.Join(temporary, "*"))
	must(t, globErr)
	if len(remaining) > 0 {
		t.Errorf("the demo left %v", remaining)
	}
	status := conclude(ctx, page, err)
	return status, printed.String(), err
}

// TestTheDemo runs the demo, like make demo.
func TestTheDemo(t *testing.T) {
	var printed strings.Builder
	if err := show(t.Context(), &page{w: &printed}, site.Program(t, "proxy")); err != nil {
		t.Fatalf("%v\n%s", err, printed.String())
	}
	for act := 1; act <= 7; act++ {
		if headline := fmt.Sprintf("\n━━ %d. ", act); strings.Count(printed.String(), headline) != 1 {
			t.Errorf("act %d was not printed once:\n%s", act, printed.String())
		}
	}
	if results := strings.Count(printed.String(), "\n✓ "); results != 5 {
		t.Errorf("%d results, want one for acts 1 to 3 and one for each later act:\n%s", results, printed.String())
	}
}

func TestOutputOfEndedProxyIsShown(t *testing.T) {
	status, _, err := showWith(t.Context(), t, "ends at once")
	if err == nil || !strings.Contains(err.Error(), "the proxy on node-a1 exited (exit status 3)") ||
		!strings.Contains(err.Error(), "no kernel support") {
		t.Errorf("got %v, want the proxy's exit status and its last output", err)
	}
	if status != exitFailed {
		t.Errorf("exit status %d, want %d", status, exitFailed)
	}
}

func TestInterruptedDemoRemovesEverything(t *testing.T) {
	ctx, interrupt := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer interrupt()
	status, printed, _ := showWith(ctx, t, "is never ready")
	if status != exitInterrupted {
		t.Errorf("exit status %d, want %d", status, exitInterrupted)
	}
	if !strings.Contains(printed, "Interrupted.") {
		t.Errorf("no message about the interruption:\n%s", printed)
	}
}

func TestMissingProxyIsReported(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "proxy")
	want := "there is no program " + missing + ": run `make build` first, or name another with --proxy"
	if err := check(missing); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
