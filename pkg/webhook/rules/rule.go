package rules

// ID identifies a rule. It is part of every message, of metrics and of configuration files, and never changes its
// meaning.
type ID string

// Action is the consequence of a violation.
type Action string

// The actions.
const (
	Deny Action = "deny" // the request is denied
	Warn Action = "warn" // it is admitted with a warning
	Off  Action = "off"  // nothing
)

// Rule is a rule for objects of one kind.
type Rule struct {
	ID ID
	// Kind is the kind of objects that the rule checks: Service or Namespace; EndpointSlice and Node for rules that exist
	// only as policies in manifests/webhook-cel.
	Kind string
	// Default is the action without configuration.
	Default Action
	// Strict is set if strict mode turns a warning into a denial.
	Strict bool
	// Summary states the problem and its effect in one sentence.
	Summary string

	// find returns the violations of an object of its Kind, independently of other rules: if one violation hid another in
	// an old object, the other would look new once the first is fixed. It is nil for a rule that exists only as a policy.
	find func(*subject) []Violation
	// standsAlone is set if violations do not depend on the rest of the object. Patches are checked by such rules.
	standsAlone bool
	// supersededBy is a rule that reports the same problem better; empty if there is none.
	supersededBy ID
}
