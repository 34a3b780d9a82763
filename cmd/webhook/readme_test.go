package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "rewrite the tables in README.md")

// TestTheTables holds README.md to the rules and flags that there are.
func TestTheTables(t *testing.T) {
	const file = "README.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := string(text)
	for name, table := range map[string]string{
		"rules": webhookCommand(t, "", "rules", "-o", "markdown").stdout,
		"flags": flagTable(),
	} {
		want = between(t, want, name, table)
	}
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("run 'go test ./cmd/webhook -run TheTables -update' (-want +got):\n%s", diff)
	}
}

// between puts a table between the two markers of its name.
func between(t *testing.T, text, name, table string) string {
	t.Helper()
	begin, end := fmt.Sprintf("<!-- begin: %s -->\n", name), fmt.Sprintf("<!-- end: %s -->", name)
	before, rest, hasBegin := strings.Cut(text, begin)
	_, after, hasEnd := strings.Cut(rest, end)
	if !hasBegin || !hasEnd {
		t.Fatalf("README.md lacks %q or %q", begin, end)
	}
	return before + begin + table + end + after
}

// flagTable lists the flags of `webhook run`.
func flagTable() string {
	var flags runFlags
	set := pflag.NewFlagSet("run", pflag.ContinueOnError)
	flags.register(set)
	var table strings.Builder
	table.WriteString("| flag | default | meaning |\n|---|---|---|\n")
	set.VisitAll(func(flag *pflag.Flag) {
		argument, usage := pflag.UnquoteUsage(flag)
		value := ""
		if flag.DefValue != "" {
			value = "`" + flag.DefValue + "`"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", strings.TrimSpace("--"+flag.Name+" "+argument), value, usage)
	})
	return table.String()
}
