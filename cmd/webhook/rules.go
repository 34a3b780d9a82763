package main

import (
	"encoding/json"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

func newRules() *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "rules [-o FORMAT]",
		Short: "Print every rule, and the action when it is violated",
		Long: `Print every rule: its id, the kind of object that can violate it, the action by default, the action in strict mode, and the
problem. The id is part of every message and metric, and never changes its meaning.

The configuration file changes the action: deny, warn or off for each id.

Rules of EndpointSlices and Nodes are those of the policies in manifests/webhook-cel. No webhook is called for such objects, because a
webhook that does not respond would block them, and with them the path to itself.`,
		Example: `  webhook rules
  webhook rules -o json | jq -r '.[] | select(.default == "deny") | .id'`,
		Args:                  cli.MaxArgs(0),
		DisableFlagsInUseLine: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := cli.Choice("output", output, "text", "json"); err != nil {
				return cli.UsageError{Err: err}
			}
			if output == "json" {
				return writeRulesAsJSON(command.OutOrStdout(), rules.Rules())
			}
			return writeRulesAsText(command.OutOrStdout(), rules.Rules())
		},
	}
	command.Flags().StringVarP(&output, "output", "o", "text", "`FORMAT` of the output: text or json")
	return command
}

func writeRulesAsText(w io.Writer, rules []rules.Rule) error {
	const columnGap = 2
	table := tabwriter.NewWriter(w, 0, 0, columnGap, ' ', 0)
	sanitize.Fprintf(table, "ID\tKIND\tDEFAULT\tSTRICT\tWHAT IS WRONG\n")
	for _, rule := range rules {
		sanitize.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", rule.ID, rule.Kind, rule.Default, strictAction(rule), rule.Summary)
	}
	return table.Flush()
}

// ruleJSON is the JSON format of a rule.
type ruleJSON struct {
	ID      rules.ID     `json:"id"`
	Kind    string       `json:"kind"`
	Default rules.Action `json:"default"`
	Strict  rules.Action `json:"strict"`
	Summary string       `json:"summary"`
}

func writeRulesAsJSON(w io.Writer, rules []rules.Rule) error {
	list := make([]ruleJSON, 0, len(rules))
	for _, rule := range rules {
		list = append(list, ruleJSON{rule.ID, rule.Kind, rule.Default, strictAction(rule), rule.Summary})
	}
	return writeJSON(w, list)
}

// strictAction returns the action for a violation in strict mode.
func strictAction(rule rules.Rule) rules.Action {
	return (&rules.Settings{Strict: true}).Action(rule)
}

// writeJSON writes a document for users and programs: indented, without escaping < and >.
func writeJSON(w io.Writer, document any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(document)
}
