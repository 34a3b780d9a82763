// Package golden compares a test's output with a file, and writes the file if the test runs with -update.
package golden

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Update says whether to write the files.
var Update = flag.Bool("update", false, "write what the tests make into the files that they compare it with")

// File fails the test if a file has a different text.
func File(t testing.TB, file, got string) {
	t.Helper()
	if *Update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-file +made); if it should be so, run the test with -update:\n%s", file, diff)
	}
}

// Tables fails the test if a document has different tables. Each table stands between two comments with its name.
func Tables(t testing.TB, file string, byName map[string]string) {
	t.Helper()
	given, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(given)
	for name, table := range byName {
		begin, end := fmt.Sprintf("<!-- begin: %s -->\n", name), fmt.Sprintf("<!-- end: %s -->", name)
		before, rest, hasBegin := strings.Cut(text, begin)
		_, after, hasEnd := strings.Cut(rest, end)
		if !hasBegin || !hasEnd {
			t.Fatalf("%s lacks %q or %q", file, begin, end)
		}
		text = before + begin + table + end + after
	}
	File(t, file, text)
}
