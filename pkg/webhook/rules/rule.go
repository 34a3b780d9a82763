package rules

// ID is the name of a rule. It is part of every message, of metrics and of configuration files, and never changes its
// meaning.
type ID string

// Action is what follows from a violation.
type Action string

// The actions.
const (
	Deny Action = "deny" // the request is refused
	Warn Action = "warn" // it is admitted with a warning
	Off  Action = "off"  // nothing
)

// Rule is one way to go wrong.
type Rule struct {
	ID ID
	// Kind is that of the objects that can break it: Service or Namespace; EndpointSlice and Node for rules that only the
	// policies in manifests/webhook-cel have.
	Kind string
	// Default is the action without configuration.
	Default Action
	// Strict: a warning becomes a denial in strict mode.
	Strict bool
	// Summary is what is wrong, and why it matters, in one sentence.
	Summary string

	// find returns the violations of an object of its Kind, seen alone, whatever other rules say: a violation that hid
	// another one in an old object would make the other look new once it is mended. It is nil for a rule that only
	// policies have.
	find func(*subject) []Violation
	// standsAlone: what it says of a setting holds whatever else the object has. Patches are judged by such rules.
	standsAlone bool
	// supersededBy is a rule that says the same of an object, but better; empty without one.
	supersededBy ID
}
