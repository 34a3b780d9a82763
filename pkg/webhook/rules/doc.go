// Package rules judges the topology settings of Services and Namespaces, and chooses defaults for them.
//
// Everything here is a function of values: the object as it would be stored, as it was before, and what is known of
// the cluster. An answer says which rule it follows and why. Who asks, an API server or a person with a file, is not
// known here.
//
//	object ──► violations of each rule ──► minus those it had before ──► deny, warn or off, by configuration
//	       └─► default: what to add, from where, or why nothing
//
// The words themselves are parsed by package policy, on which the proxy runs: what is admitted is what the proxy does.
package rules
