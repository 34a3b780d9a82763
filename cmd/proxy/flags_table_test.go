package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/config"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/golden"
)

// TestTheFlagTable checks README.md against the existing flags and settings.
func TestTheFlagTable(t *testing.T) {
	golden.Tables(t, "README.md", map[string]string{
		"flags": flagTable(), "settings without meaning": ignoredSettingsTable(), "feature gates": gateTable(),
	})
}

// flagTable lists the flags of `proxy run` in --help.
func flagTable() string {
	fields := map[string]string{}
	for _, setting := range daemonSettings() {
		fields[setting.name] = setting.field
	}
	for field, flag := range vicinityFlags() {
		fields[flag.Name] = field
	}
	var flags runFlags
	set := pflag.NewFlagSet("run", pflag.ContinueOnError)
	flags.register(set)
	var table strings.Builder
	table.WriteString("| flag | in the file | default | meaning |\n|---|---|---|---|\n")
	set.VisitAll(func(flag *pflag.Flag) {
		if flag.Hidden {
			return
		}
		argument, usage := pflag.UnquoteUsage(flag)
		fmt.Fprintf(&table, "| `%s`%s | %s | %s | %s |\n",
			strings.TrimSpace(dashed(flag)+" "+argument), otherName(flag.Name), fieldOf(fields[flag.Name]), code(flag.DefValue), cell(usage))
	})
	return table.String()
}

// fieldOf formats a field for the table, and marks fields of our own document.
func fieldOf(field string) string {
	if _, isVicinity := vicinityFlags()[field]; isVicinity {
		return code(field) + " (ours)"
	}
	return code(field)
}

func dashed(flag *pflag.Flag) string {
	if flag.Shorthand != "" {
		return "-" + flag.Shorthand
	}
	return "--" + flag.Name
}

// otherName returns the alias of a flag.
func otherName(flag string) string {
	for alias, name := range aliases {
		if name == flag {
			return ", `--" + alias + "`"
		}
	}
	return ""
}

// ignoredSettingsTable lists kube-proxy's settings without effect here.
func ignoredSettingsTable() string {
	var table strings.Builder
	table.WriteString("| in kube-proxy's file | kube-proxy's flag | why not |\n|---|---|---|\n")
	for _, setting := range config.IgnoredSettings() {
		flag := setting.Flag
		if flag != "" {
			flag = "--" + flag
		}
		reason := setting.Reason
		if setting.Rejected != "" {
			reason += fmt.Sprintf("; %s is refused: %s", setting.Rejected, setting.RejectionReason)
		}
		fmt.Fprintf(&table, "| %s | %s | %s |\n", code(setting.Field), code(flag), cell(reason))
	}
	return table.String()
}

// gateTable lists the feature gates of kube-proxy: first the supported ones, then the others.
func gateTable() string {
	var supportedRows, otherRows strings.Builder
	for _, gate := range config.Gates() {
		if gate.IsConfigurable {
			fmt.Fprintf(&supportedRows, "| `%s` | obeyed | %s |\n", gate.Name, cell(gate.Reason))
			continue
		}
		always := map[bool]string{true: "always on", false: "always off"}[gate.IsOn]
		fmt.Fprintf(&otherRows, "| `%s` | %s | %s |\n", gate.Name, always, cell(gate.Reason))
	}
	return "| gate | here | |\n|---|---|---|\n" + supportedRows.String() + otherRows.String()
}

func code(text string) string {
	if text == "" || text == "false" {
		return ""
	}
	return "`" + text + "`"
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

func TestEveryVisibleFlagIsDocumentedOnce(t *testing.T) {
	table := flagTable()
	for _, name := range []string{
		"--config FILE", "--manifests PATH", "--service-proxy-name NAME", "--default-max-load PERCENT", "--default-demand-source SOURCE",
		"--own-tables WHEN", "--node NAME",
	} {
		if count := strings.Count(table, "| `"+name+"`"); count != 1 {
			t.Errorf("%s is in the table %d times, want once", name, count)
		}
	}
	for _, hidden := range []string{"--ipvs-scheduler", "--cleanup"} {
		if strings.Contains(table, hidden) {
			t.Errorf("%s is in the table of flags, although it has no effect", hidden)
		}
	}
}
