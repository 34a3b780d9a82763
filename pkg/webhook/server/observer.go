package server

import "time"

// Observer is notified of what happens; many goroutines call it at once. Its arguments are plain strings, so that a
// counter does not depend on the packages that define them.
type Observer interface {
	// Reviewed: a request was answered. The outcome is one of Outcomes. It took that long from its headers to the last
	// byte of the answer.
	Reviewed(path, outcome string, took time.Duration)
	// Decided: a rule was broken, and what followed from it: a rules.ID and a rules.Action, never Off.
	Decided(rule, action string)
	// Defaulted: the default of a Service was decided: a rules.Origin, and the setting, empty if nothing was added.
	Defaulted(source, setting string)
	// Failed: something went wrong inside, and the answer is a 500. The reason is one of Failures.
	Failed(reason string)
	// Rejected: the request cannot be answered, or not now; the answer is a 4xx or a 503. The reason is one of Refusals.
	Rejected(reason string)
	// InFlight: the number of reviews that are being worked on changed by delta. A review that arrives slowly counts
	// only once it is complete.
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
	Unwritable = "unwritable" // an answer that JSON cannot express
)

// Failures returns every reason of Failed.
func Failures() []string { return []string{Panicked, Unwritable} }

// Why a request is refused.
const (
	WrongMethod = "method"
	WrongMedia  = "content_type"
	TooLarge    = "too_large"
	MemoryLimit = "memory"     // the bodies that are held take all the room there is for them
	Busy        = "in_flight"  // as many reviews are being worked on as allowed
	Unreadable  = "unreadable" // the body ended early, or came too slowly
	Malformed   = "malformed"  // not an AdmissionReview v1 as an API server writes them
	Unexpected  = "unexpected" // a review of something that this path is not for
)

// RejectionReasons returns every reason of Refused.
func RejectionReasons() []string {
	return []string{WrongMethod, WrongMedia, TooLarge, MemoryLimit, Busy, Unreadable, Malformed, Unexpected}
}
