//go:build linux

package nft

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// noJSONForMaps is nft's complaint about a rule that updates a map, for which its JSON has no form. It then lists the
// statement as a string; everything else it lists as an object.
const noJSONForMaps = "warning: stmt ops map have no json callback"

// listedJSON returns nft's listing in JSON, object by object. It checks that nft complains of nothing but rules that
// update a map, once for each, and that all other statements are objects.
func listedJSON(t *testing.T, namespace *netns.Namespace) []map[string]map[string]any {
	t.Helper()
	var printed, errOut strings.Builder
	command := namespace.Command("nft", "-j", "list", "ruleset")
	command.Stdout, command.Stderr = &printed, &errOut
	var err error
	namespace.Do(func() { err = command.Run() })
	var listing struct {
		NFTables []map[string]map[string]any `json:"nftables"`
	}
	if err == nil {
		err = json.Unmarshal([]byte(printed.String()), &listing)
	}
	if err != nil {
		t.Fatalf("nft -j list ruleset: %v: %s", err, errOut.String())
	}
	if got, want := errOut.String(), strings.Repeat(noJSONForMaps+"\n", countMapUpdates(t, listing.NFTables)); got != want {
		t.Errorf("nft -j complains\n%s\nwant\n%s", got, want)
	}
	return listing.NFTables
}

// countMapUpdates counts the statements that update or delete an element of a map, and checks that all others are
// objects.
func countMapUpdates(t *testing.T, objects []map[string]map[string]any) int {
	t.Helper()
	updates := 0
	for _, object := range objects {
		statements, _ := object["rule"]["expr"].([]any)
		if object["rule"] != nil && len(statements) == 0 {
			t.Errorf("nft -j lists a rule without statements: %v", object["rule"])
		}
		for _, statement := range statements {
			switch statement := statement.(type) {
			case map[string]any:
			case string:
				updates++
				if !strings.HasPrefix(statement, "update @") && !strings.HasPrefix(statement, "delete @") {
					t.Errorf("nft -j lists %q as a string, want an object", statement)
				}
			default:
				t.Errorf("nft -j lists %v, want an object", statement)
			}
		}
	}
	return updates
}

// sortedJSON is nft's listing with elements sorted, and without handles, which count up, and the table's flags, which
// depend on its owner.
func sortedJSON(t *testing.T, namespace *netns.Namespace) []string {
	t.Helper()
	var lines, sets []string // sets come in any order
	for _, object := range listedJSON(t, namespace) {
		for kind, fields := range object {
			delete(fields, "handle")
			if kind == "table" {
				delete(fields, "flags")
			}
			if elements, ok := fields["elem"].([]any); ok {
				slices.SortFunc(elements, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
			}
			line := fmt.Sprint(kind, " ", fields)
			if kind == "set" || kind == "map" {
				sets = append(sets, line)
				continue
			}
			lines = append(lines, line)
		}
	}
	slices.Sort(sets)
	return append(sets, lines...)
}
