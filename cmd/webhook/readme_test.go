package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/golden"
)

// TestTheTables checks README.md against the rules and flags that there are.
func TestTheTables(t *testing.T) {
	golden.Tables(t, "README.md", map[string]string{
		"rules": webhookCommand(t, "", "rules", "-o", "markdown").stdout,
		"flags": flagTable(),
	})
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
