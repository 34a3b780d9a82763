package server

import "time"

// Observer is notified of what happens; many goroutines call it at once. Its words are plain strings, so that a counter
// does not depend on the packages that the words come from.
type Observer interface {
	// Reviewed: a request was answered. The outcome is one of Outcomes. It took that long from its headers to the last
	// byte of the answer.
	Reviewed(path, outcome string, took time.Duration)
	// Decided: a rule was broken, and what followed from it: an admission.ID and an admission.Action, never Off.
	Decided(rule, action string)
	// Defaulted: it was decided about a Service's default: an rules.Origin and an admission.Setting, empty if nothing
	// was added.
	Defaulted(source, setting string)
	// Failed: something went wrong inside, and the answer is a 500. The reason is one of Failures.
	Failed(reason string)
	// Refused: the request is one that cannot be answered, or not now; the answer is a 4xx or a 503. The reason is one of
	// Refusals.
	Refused(reason string)
	// InFlight: so many reviews more, or fewer, are being worked on. What arrives slowly is not among them before it is
	// whole.
	InFlight(delta int)
}

// What becomes of a request.
const (
	Allowed = "allowed"
	Denied  = "denied"
	Errored = "error" // it was refused, or failed
)

// Outcomes returns every outcome, so that metrics can count them from the start.
func Outcomes() []string { return []string{Allowed, Denied, Errored} }

// What goes wrong inside.
const (
	Panicked   = "panic"
	NoSuchRule = "no-such-rule" // a denial without a rule of rules.Rules
	Unwritable = "unwritable"   // an answer that has no JSON
)

// Failures are all there are.
func Failures() []string { return []string{Panicked, NoSuchRule, Unwritable} }

// Why a request is refused.
const (
	WrongMethod = "method"
	WrongMedia  = "content-type"
	TooLarge    = "too-large"
	NoMemory    = "memory"     // the bodies that are held are as large as all of them may be
	Busy        = "in-flight"  // as many reviews are worked on as may be
	Unreadable  = "unreadable" // the body ended early, or came too slowly
	Malformed   = "malformed"  // not an AdmissionReview v1 as an API server writes them
	Unexpected  = "unexpected" // a review of something else than this path is for
)

// Refusals are all there are.
func Refusals() []string {
	return []string{WrongMethod, WrongMedia, TooLarge, NoMemory, Busy, Unreadable, Malformed, Unexpected}
}
