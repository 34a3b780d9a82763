package policy

import (
	"fmt"
	"strings"
)

// Rule is a rule for lists of topology keys or of clients.
type Rule string

// The rules of KEP-536 for topology keys, and those for clients. Their names are stable.
const (
	NotEmpty         Rule = "NotEmpty"         // neither the list nor an entry is empty
	AtMostMaxKeys    Rule = "AtMostMaxKeys"    // a list of keys has at most MaxKeys entries
	AtMostMaxClients Rule = "AtMostMaxClients" // a list of clients has at most MaxClients entries
	LabelKey         Rule = "LabelKey"         // an entry is a label key or `*`
	ServiceName      Rule = "ServiceName"      // an entry is the namespace and name of a Service
	Unique           Rule = "Unique"           // no entry occurs twice
	AnyNodeLast      Rule = "AnyNodeLast"      // `*` is the last entry
)

// EntryError is a violation of a rule.
type EntryError struct {
	Rule     Rule
	Position int    // of the invalid entry, from 1; zero if it is the list as a whole
	Entry    string // as written, without surrounding spaces
	Cause    string // the end of a sentence about the entry, or a sentence about the list
	Remedy   string // what to do about it
}

// maxQuoted is how much of an entry a message quotes. A label key has at most that many characters: 253 of prefix, a
// slash, 63 of name.
const maxQuoted = 317

// Error returns the position, the cause and the remedy.
func (e EntryError) Error() string {
	if e.Position == 0 {
		return e.Cause + "; " + e.Remedy
	}
	return fmt.Sprintf("entry %d %.*q %s; %s", e.Position, maxQuoted, e.Entry, e.Cause, e.Remedy)
}

// EntryErrors are all errors in a list, in the order of the entries.
type EntryErrors []EntryError

// Error joins the errors, so that a user can correct all of them at once.
func (e EntryErrors) Error() string {
	messages := make([]string, len(e))
	for i := range e {
		messages[i] = e[i].Error()
	}
	return strings.Join(messages, ". ")
}
