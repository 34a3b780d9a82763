// Package endure_test proves that the proxy keeps forwarding when it is killed and when somebody else changes its tables: the real
// program, a real kernel, real connections. It needs root, nft and Go.
package endure_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// patience is how long something may take that happens at once on an idle machine.
const patience = 30 * time.Second

// program is the proxy, which TestMain builds.
var program string

func TestMain(m *testing.M) {
	status, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

func runTests(m *testing.M) (status int, err error) {
	if err := lookAtSources(); err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "endure")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program = filepath.Join(dir, "proxy")
	if output, err := exec.Command("go", "build", "-o", program, "../../cmd/proxy").CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build the proxy: %w\n%s", err, output)
	}
	return m.Run(), nil
}

// lookAtSources looks at what the proxy is built from. `go test` repeats an old result as long as everything that a test looked at
// stays the same, and does not know what the compiler reads that the test starts.
func lookAtSources() error {
	for _, root := range []string{"../../cmd", "../../pkg"} {
		err := filepath.WalkDir(root, func(_ string, _ fs.DirEntry, err error) error { return err })
		if err != nil {
			return fmt.Errorf("look at the sources of the proxy: %w", err)
		}
	}
	return nil
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("not after %s: %s", patience, what)
}
