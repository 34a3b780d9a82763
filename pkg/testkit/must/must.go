// Package must ends a test when a step fails that the rest of the test needs.
package must

import "testing"

// Succeed ends the test if err is not nil. It must be called in the test's own goroutine.
func Succeed(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
