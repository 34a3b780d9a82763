package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/golden"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// TestTheTables checks README.md against the existing rules and flags.
func TestTheTables(t *testing.T) {
	golden.Tables(t, "README.md", map[string]string{
		"rules": ruleTable(),
		"flags": flagTable(),
	})
}

// ruleTable lists the rules.
func ruleTable() string {
	var table strings.Builder
	table.WriteString("| id | object | by default | in strict mode | what is wrong |\n|---|---|---|---|---|\n")
	for _, rule := range rules.Rules() {
		summary := strings.NewReplacer("|", `\|`, "*", `\*`).Replace(rule.Summary)
		fmt.Fprintf(&table, "| %s | %s | %s | %s | %s |\n", rule.ID, rule.Kind, rule.Default, strictAction(rule), summary)
	}
	return table.String()
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
