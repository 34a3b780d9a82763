// Package must ends a test when a step fails that the rest of it needs.
package must

import "testing"

// Succeed ends the test if there is an error. It must run in the test's own goroutine.
func Succeed(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
