package policy

import (
	"fmt"
	"slices"
)

// accountValues are the values of AccountAnnotation; the first asks for it.
var accountValues = []string{"true", "false"}

// readAccount finds out whether the Service asks to be named where traffic is counted.
func (r *reading) readAccount() bool {
	value, present := r.Annotations[AccountAnnotation]
	switch {
	case !present:
	case !slices.Contains(accountValues, value):
		r.ignore(AccountAnnotation, fmt.Sprintf("%.*q is neither %q nor %q", maxQuoted, value, accountValues[0], accountValues[1]))
	default:
		r.topology.Account = value == accountValues[0]
	}
	return true
}
