//go:build linux

// Package sabotage changes Vicinity's tables behind its back, as other programs do by accident, so that tests can see
// what comes of it. It speaks to the kernel in its own few bytes: a node has no nft, and nothing of Vicinity's own is
// used to harm it.
package sabotage

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// table is what Vicinity's tables are called, in both families.
const table = "vicinity"

// What became of a deed, as Run writes it.
const (
	Done     = "done"    // the kernel did it
	Rejected = "refused" // the table belongs to another process (kernel 6.9 and newer)
	Missing  = "missing" // there is no such table
)

// deeds are the messages of package unix by what `nft` would call them, and what they name besides the table.
var deeds = map[string]deed{
	"delete-table":   {message: unix.NFT_MSG_DELTABLE, names: []string{table}},
	"flush-table":    {message: unix.NFT_MSG_DELRULE, names: []string{table}},                // every rule of every chain
	"flush-services": {message: unix.NFT_MSG_DELSETELEM, names: []string{table, "services"}}, // every element of the map
}

// deed is a message whose first attributes are names. The kernel numbers them from 1 in all of these messages:
// NFTA_TABLE_NAME, NFTA_RULE_TABLE, NFTA_SET_ELEM_LIST_TABLE and NFTA_SET_ELEM_LIST_SET.
type deed struct {
	message uint16
	names   []string
}

var families = map[string]byte{"ip": unix.NFPROTO_IPV4, "ip6": unix.NFPROTO_IPV6}

// Run does a deed to the tables of both families, in the network namespace of the caller, and writes a line for each:
// the table, and Done, Refused or Missing. It fails for an unknown deed, and where the kernel says anything else.
func Run(name string, out io.Writer) error {
	chosen, ok := deeds[name]
	if !ok {
		return fmt.Errorf("sabotage %q: want one of %s", name, strings.Join(slices.Sorted(maps.Keys(deeds)), ", "))
	}
	for _, family := range slices.Sorted(maps.Keys(families)) {
		outcome, err := outcomeOf(send(chosen, families[family]))
		if err != nil {
			return fmt.Errorf("sabotage %s of table %s %s: %w", name, family, table, err)
		}
		fmt.Fprintf(out, "%s %s: %s\n", family, table, outcome)
	}
	return nil
}

// outcomeOf says what the kernel's answer means. Without the capability to change any table at all it answers as for
// one that belongs to another process; so the caller has to have it.
func outcomeOf(err error) (string, error) {
	switch {
	case err == nil:
		return Done, nil
	case errors.Is(err, unix.EPERM):
		return Rejected, nil
	case errors.Is(err, unix.ENOENT):
		return Missing, nil
	default:
		return "", err
	}
}
