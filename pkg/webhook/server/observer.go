package server

import "time"

// Observer receives events. It must be safe for concurrent use. Its arguments are plain strings, so that a counter does
// not depend on the packages that define them.
type Observer interface {
	// Reviewed is called after each response. outcome is one of Outcomes; took is the time from the request's headers to
	// the last byte of the response.
	Reviewed(path, outcome string, took time.Duration)
	// Decided is called for each violation, with its rules.ID and rules.Action, never Off.
	Decided(rule, action string)
	// Defaulted is called for each decision about a default, with its rules.DefaultSource and the setting; empty if
	// nothing was added.
	Defaulted(source, setting string)
	// Failed is called after an internal error; the response is a 500. reason is one of Failures.
	Failed(reason string)
	// Rejected is called if a request cannot be served, or not now; the response is a 4xx or a 503. reason is one of
	// RejectionReasons.
	Rejected(reason string)
	// InFlight is called when the number of reviews in progress changes by delta. A review counts only once its body is
	// complete.
	InFlight(delta int)
}

// The outcomes of a request.
const (
	Allowed = "allowed"
	Denied  = "denied"
	Errored = "error" // it was rejected, or failed
)

// Outcomes returns every outcome, so that metrics can count them from the start.
func Outcomes() []string { return []string{Allowed, Denied, Errored} }

// The reasons of internal errors.
const (
	Panicked   = "panic"
	Unwritable = "unwritable" // a response that JSON cannot express
)

// Failures returns every reason of Failed.
func Failures() []string { return []string{Panicked, Unwritable} }

// The reasons of rejections.
const (
	WrongMethod = "method"
	WrongMedia  = "content_type"
	TooLarge    = "too_large"
	MemoryLimit = "memory"     // the bodies in memory have reached their limit
	Busy        = "in_flight"  // the number of reviews in progress has reached its limit
	Unreadable  = "unreadable" // the body ended early, or came too slowly
	Malformed   = "malformed"  // not an AdmissionReview v1 as an API server writes them
	Unexpected  = "unexpected" // a review of a resource that this path does not serve
)

// RejectionReasons returns every reason of Rejected.
func RejectionReasons() []string {
	return []string{WrongMethod, WrongMedia, TooLarge, MemoryLimit, Busy, Unreadable, Malformed, Unexpected}
}
