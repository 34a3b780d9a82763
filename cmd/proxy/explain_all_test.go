package main

import (
	"strings"
	"testing"
)

// TestExplainCountsWhatIsLeftOut for people, who can ask for everything; programs always get everything.
func TestExplainCountsWhatIsLeftOut(t *testing.T) {
	for args, want := range map[string]int{"": 2, "--all": 7, "-o json": 7} {
		got := proxyCommand(t, words("explain --manifests "+shop+" --node node-c1 shop/cart "+args)...)
		left := strings.Count(got.stdout, "✗ ") + strings.Count(got.stdout, `"message": "The endpoint'`)
		if got.status != 0 || left != want || strings.Contains(got.stdout, "--all lists") != (args == "") {
			t.Errorf("%q: status %d, %d lines, want %d:\n%s%s", args, got.status, left, want, got.stdout, got.stderr)
		}
	}
}
