package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// AtMost allows up to a number of arguments, and calls more of them wrong usage.
func AtMost(n int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > n {
			return UsageError{fmt.Errorf("unexpected argument %q", args[n])}
		}
		return nil
	}
}

// OneOf checks the value of a flag that has only a few.
func OneOf(flag, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("--%s %q is none of: %s", flag, value, strings.Join(allowed, ", "))
}
