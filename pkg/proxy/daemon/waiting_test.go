package daemon

import (
	"testing"
	"time"
)

// patience is how long something may take that happens at once on an idle machine.
const patience = time.Minute

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("not after %s: %s", patience, what)
}
