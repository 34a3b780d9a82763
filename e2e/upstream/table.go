package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// The table is between these lines of the README.
const (
	tableBegins = "<!-- table: go run ./e2e/upstream table -->"
	tableEnds   = "<!-- end of the table -->"
)

func newTable() *cobra.Command {
	var folder, readme string
	cmd := &cobra.Command{
		Use:   "table",
		Short: "Write the table of the results into the README",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all, err := readResults(folder)
			if err != nil {
				return err
			}
			return writeTable(readme, all)
		},
	}
	cmd.Flags().StringVar(&folder, "dir", "bin/upstream", "the `FOLDER` with the results of run")
	cmd.Flags().StringVar(&readme, "readme", "e2e/upstream/README.md", "the `FILE` with the table")
	return cmd
}

// proxies are the columns of the table.
var proxies = []string{kubeProxy, vicinity, noProxy}

// readResults returns the results by proxy. At least one proxy must have results.
func readResults(folder string) (map[string]results, error) {
	all := map[string]results{}
	for _, proxy := range proxies {
		found, err := readResultsOf(filepath.Join(folder, proxy))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all[proxy] = found
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no results in %s: run make e2e-upstream", folder)
	}
	return all, nil
}

// readResultsOf returns the results of one proxy, from its folder.
func readResultsOf(folder string) (results, error) {
	file := filepath.Join(folder, resultsFile)
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	var found results
	if err := json.Unmarshal(text, &found); err != nil {
		return nil, fmt.Errorf("read the results in %s: %w", file, err)
	}
	return found, nil
}

func writeTable(readme string, all map[string]results) error {
	text, err := os.ReadFile(readme)
	if err != nil {
		return fmt.Errorf("read the README: %w", err)
	}
	before, rest, ok := strings.Cut(string(text), tableBegins)
	_, after, okEnd := strings.Cut(rest, tableEnds)
	if !ok || !okEnd {
		return fmt.Errorf("%s has no lines %q and %q", readme, tableBegins, tableEnds)
	}
	content := before + tableBegins + "\n" + table(all) + tableEnds + after
	if err := os.WriteFile(readme, []byte(content), 0o644); err != nil {
		return fmt.Errorf("write the README: %w", err)
	}
	return nil
}

// table returns a table with a row for each spec that ran with any proxy.
func table(all map[string]results) string {
	var specs []string
	for _, found := range all {
		for spec := range found {
			specs = append(specs, spec)
		}
	}
	slices.Sort(specs)
	var text strings.Builder
	text.WriteString("| spec | kube-proxy | Vicinity | no proxy |\n|---|---|---|---|\n")
	for _, spec := range slices.Compact(specs) {
		fmt.Fprintf(&text, "| %s |", strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(strings.TrimPrefix(spec, "[sig-network] ")))
		for _, proxy := range proxies {
			fmt.Fprintf(&text, " %s |", all[proxy][spec])
		}
		text.WriteString("\n")
	}
	text.WriteString("| **passed** |")
	for _, proxy := range proxies {
		if len(all[proxy]) == 0 {
			text.WriteString(" |")
			continue
		}
		fmt.Fprintf(&text, " %d of %d |", all[proxy].passed(), len(all[proxy]))
	}
	text.WriteString("\n")
	return text.String()
}
