package webhook

import (
	"golang.org/x/sync/semaphore"
)

// Limits bound what requests may cost, in bytes unless it says otherwise. Whatever they are, one body of the largest size can be held,
// and one review be worked on (see atLeastOne).
type Limits struct {
	// Body is of a single body.
	Body int64
	// Bodies is of all bodies that are held at the same moment. It is counted by what a request announces before any of it is read.
	Bodies int64
	// InFlight is how many reviews are worked on at the same moment.
	InFlight int64
}

// atLeastOne are limits that let one request in, however large. With less room for all bodies than one may need, it would be told for
// ever to come back in a second.
func (l Limits) atLeastOne() Limits {
	l.Bodies = max(l.Bodies, l.weight(l.Body))
	l.InFlight = max(l.InFlight, 1)
	return l
}

// weight is what a request with a body of that length is counted with; the length is -1 if it is not announced.
func (l Limits) weight(length int64) int64 {
	if length < 0 {
		length = l.Body
	}
	return max(length, requestBytes)
}

const (
	mebibyte = 1 << 20

	// objectBytes is how large a request to the API server may be (MaxRequestBodyBytes of its generic Config).
	objectBytes = 3 * mebibyte
	// envelopeBytes is for the rest of a review: the user with all groups, and the options.
	envelopeBytes = mebibyte / 2

	// requestBytes is what any request costs, with the buffers of its connection, whatever its body is. It bounds how many of them can
	// be waited for at the same moment.
	requestBytes = 16 << 10
)

// DefaultLimits let the largest review pass that an API server can write, and a few of these at the same moment. Typical reviews have
// some kilobytes.
func DefaultLimits() Limits {
	const largest = 2*objectBytes + envelopeBytes // the object, and the old one
	return Limits{Body: largest, Bodies: 4 * largest, InFlight: 64}
}

// admitted counts what is held and in flight. All paths share one.
type admitted struct {
	limits Limits
	bodies *semaphore.Weighted
	flying *semaphore.Weighted
}

func newAdmitted(limits Limits) *admitted {
	limits = limits.atLeastOne()
	return &admitted{limits, semaphore.NewWeighted(limits.Bodies), semaphore.NewWeighted(limits.InFlight)}
}
