package policy

import (
	"fmt"
	"strings"
)

// Rule is a rule that a list of topology keys, or one of clients, must keep.
type Rule string

// The rules of KEP-536 for topology keys, and those for clients. Their names are stable.
const (
	NotEmpty         Rule = "NotEmpty"         // neither the list nor an entry is empty
	AtMostMaxKeys    Rule = "AtMostMaxKeys"    // a list of keys has no more than MaxKeys entries
	AtMostMaxClients Rule = "AtMostMaxClients" // a list of clients has no more than MaxClients entries
	LabelKey         Rule = "LabelKey"         // an entry is a label key or `*`
	ServiceName      Rule = "ServiceName"      // an entry is the namespace and name of a Service
	Unique           Rule = "Unique"           // no entry stands twice
	AnyNodeLast      Rule = "AnyNodeLast"      // `*` is the last entry
)

// EntryError is one broken rule.
type EntryError struct {
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
func (e EntryError) Error() string {
	if e.Position == 0 {
		return e.Cause + "; " + e.Remedy
	}
	return fmt.Sprintf("entry %d %.*q %s; %s", e.Position, maxQuoted, e.Entry, e.Cause, e.Remedy)
}

// EntryErrors is everything that is wrong with a list, in the order of the entries.
type EntryErrors []EntryError

// Error joins the errors, so that an owner can correct all of them at once.
func (e EntryErrors) Error() string {
	messages := make([]string, len(e))
	for i := range e {
		messages[i] = e[i].Error()
	}
	return strings.Join(messages, ". ")
}
