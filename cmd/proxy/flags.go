package main

import (
	"fmt"
	"slices"
	"strings"
)

// oneOf checks the value of a flag that has only a few.
func oneOf(flag, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("--%s %q is none of: %s", flag, value, strings.Join(allowed, ", "))
}
