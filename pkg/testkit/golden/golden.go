// Package golden compares the output of a test with a file. With -update it writes the file instead.
package golden

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Update is set if the files should be written.
var Update = flag.Bool("update", false, "write the output of the tests to the golden files")

// File fails the test if the text of a file differs from got.
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
		t.Errorf("%s (-want +got); to accept the change, run the test with -update:\n%s", file, diff)
	}
}

// Tables fails the test if the tables of a document differ from those in byName. Each table is between two comments
// that contain its name.
func Tables(t testing.TB, file string, byName map[string]string) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
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
