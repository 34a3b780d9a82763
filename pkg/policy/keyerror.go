package policy

import (
	"fmt"
	"strings"
)

// Rule is a rule that a list of topology keys must keep.
type Rule string

// The rules of KEP-536. Their names are stable.
const (
	NotEmpty      Rule = "NotEmpty"      // neither the list nor an entry is empty
	AtMostMaxKeys Rule = "AtMostMaxKeys" // the list has no more than MaxKeys entries
	LabelKey      Rule = "LabelKey"      // an entry is a label key or `*`
	Unique        Rule = "Unique"        // no entry stands twice
	AnyNodeLast   Rule = "AnyNodeLast"   // `*` is the last entry
)

// KeyError is one broken rule.
type KeyError struct {
	Rule     Rule
	Position int    // of the entry at fault, from 1; zero if it is the list as a whole
	Entry    string // as written, without the spaces around it
	Cause    string // what is wrong, as the rest of a sentence about the entry, or a sentence about the list
	Remedy   string // what to do about it
}

// maxQuoted is how much of an entry a message repeats. No label key has more characters: 253 of prefix, a slash, 63 of
// name.
const maxQuoted = 317

// Error says what is wrong, where, and what to do.
func (e KeyError) Error() string {
	if e.Position == 0 {
		return e.Cause + "; " + e.Remedy
	}
	return fmt.Sprintf("entry %d %.*q %s; %s", e.Position, maxQuoted, e.Entry, e.Cause, e.Remedy)
}

// KeyErrors is everything that is wrong with a list of topology keys, in the order of the entries.
type KeyErrors []KeyError

// Error joins the errors, so that an owner can correct all of them at once.
func (e KeyErrors) Error() string {
	messages := make([]string, len(e))
	for i := range e {
		messages[i] = e[i].Error()
	}
	return strings.Join(messages, ". ")
}
