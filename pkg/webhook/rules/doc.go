// Package rules checks the topology settings of Services and Namespaces, and chooses defaults for them.
//
// Everything here is a pure function: of the new object, the old object, and the known state of the cluster. A result
// contains each violated rule and the reason. It does not depend on the caller, an API server or a person with a file.
//
//	object ──► violations of each rule ──► minus those it had before ──► deny, warn or off, by configuration
//	       └─► default: what to add, from where, or why nothing
//
// Settings are parsed by package policy, which the proxy uses as well: the webhook admits what the proxy accepts.
//
// To add or change a rule, start with its row in rules.go; the functions are in service_*.go and namespace.go, the
// cases in testkit/rulecases/cases. review.go decides which violations are new in an update. Defaults are in
// defaulting*.go; the reasons to add none are in defaulting_skip.go.
package rules
