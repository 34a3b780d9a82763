// Package wait waits in a test for an event that happens soon. It polls so often that a wait takes at most 10 % longer
// than the event.
package wait

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Timeout bounds a wait for an event that happens immediately on an idle machine: the machine may be busy with other
// tests.
const Timeout = 2 * time.Minute

// The minimum and maximum pause between two polls.
const (
	minPause = time.Millisecond
	maxPause = 250 * time.Millisecond
)

// Until waits until a condition holds. After Timeout it ends the test with a message that contains what.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	Within(t, Timeout, what, holds)
}

// Within waits until a condition holds, and ends the test if that takes longer than timeout.
func Within(t testing.TB, timeout time.Duration, what string, holds func() bool) {
	t.Helper()
	if !poll(timeout, holds) {
		t.Fatalf("after %s, not yet: %s", timeout, what)
	}
}

// Success waits until a step succeeds. After Timeout it ends the test with the last error.
func Success(t testing.TB, what string, step func() error) {
	t.Helper()
	var err error
	if !poll(Timeout, func() bool { err = step(); return err == nil }) {
		t.Fatalf("after %s, not yet: %s: %v", Timeout, what, err)
	}
}

// Equal waits until a value equals the wanted one. After Timeout it ends the test with the difference.
func Equal[T any](t testing.TB, what string, want T, value func() T) {
	t.Helper()
	var got T
	if !poll(Timeout, func() bool { got = value(); return cmp.Equal(want, got) }) {
		t.Fatalf("after %s, not yet: %s (-want +got):\n%s", Timeout, what, cmp.Diff(want, got))
	}
}

// Receive waits for a value from a channel. After Timeout it ends the test.
func Receive[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	var value T
	select {
	case value = <-ch:
	case <-time.After(Timeout):
		t.Fatalf("after %s, not yet: %s", Timeout, what)
	}
	return value
}

// poll reports whether a condition becomes true in time. It polls once more at the end.
func poll(timeout time.Duration, holds func() bool) bool {
	for start := time.Now(); ; {
		passed := time.Since(start)
		if holds() {
			return true
		}
		if passed >= timeout {
			return false
		}
		time.Sleep(min(max(passed/10, minPause), maxPause))
	}
}
