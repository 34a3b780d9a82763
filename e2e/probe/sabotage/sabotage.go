//go:build linux

// Package sabotage modifies Vicinity's tables externally, as other programs do by accident, so that tests can see the
// consequences. It writes its own netlink messages: a node has no nft, and the sabotage must not depend on Vicinity's
// own code.
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

// table is the name of Vicinity's tables in both families.
const table = "vicinity"

// The outcomes of an action, as Run writes them.
const (
	Done     = "done"    // the kernel applied it
	Rejected = "refused" // the table belongs to another process (kernel 6.9 and newer)
	Missing  = "missing" // there is no such table
)

// actions maps names to the messages of package unix, with the object names that they contain in addition to the table.
var actions = map[string]action{
	"delete-table":   {message: unix.NFT_MSG_DELTABLE, names: []string{table}},
	"flush-table":    {message: unix.NFT_MSG_DELRULE, names: []string{table}},                // every rule of every chain
	"flush-services": {message: unix.NFT_MSG_DELSETELEM, names: []string{table, "services"}}, // every element of the map
}

// action is a message whose first attributes are names. All of these messages number them from 1: NFTA_TABLE_NAME,
// NFTA_RULE_TABLE, NFTA_SET_ELEM_LIST_TABLE and NFTA_SET_ELEM_LIST_SET.
type action struct {
	message uint16
	names   []string
}

var families = map[string]byte{"ip": unix.NFPROTO_IPV4, "ip6": unix.NFPROTO_IPV6}

// Run applies an action to the tables of both families, in the caller's network namespace, and writes a line for each:
// the table, and Done, Rejected or Missing. It returns an error for an unknown action, and for any other error of the
// kernel.
func Run(name string, out io.Writer) error {
	chosen, ok := actions[name]
	if !ok {
		return fmt.Errorf("unknown sabotage %q; must be one of: %s", name, strings.Join(slices.Sorted(maps.Keys(actions)), ", "))
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

// outcomeOf maps the kernel's error to an outcome. Without CAP_NET_ADMIN the kernel returns the same error as for a
// table with another owner, so the caller must have the capability.
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
