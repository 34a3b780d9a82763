package server

import (
	"context"
	"io"
	"net/http"

	"golang.org/x/sync/semaphore"
)

// Limits bound what requests may cost, in bytes unless it says otherwise.
type Limits struct {
	// Body is for a single body.
	Body int64
	// Bodies is for all bodies held at the same moment, as far as they have arrived; of a large one, its first
	// largeBytes count.
	Bodies int64
	// LargeBodies is for the rest of large bodies, so that these leave room for the others however many they are.
	LargeBodies int64
	// InFlight is how many reviews are worked on at the same moment.
	InFlight int64
}

const (
	kibibyte = 1 << 10
	mebibyte = 1 << 20

	// objectBytes is how large a request to the API server may be (MaxRequestBodyBytes of its generic Config).
	objectBytes = 3 * mebibyte
	// envelopeBytes is for the rest of a review: the user with all groups, and the options.
	envelopeBytes = mebibyte / 2

	// announcedBytes is how much room a body gets before any of it has arrived, if that much is announced. It does not
	// count as held, because connections are bounded.
	announcedBytes = 16 * kibibyte

	// largeBytes is what the body of a large review has more than. To decode one that consists of short unknown labels,
	// and to say what is wrong with it, takes some 25 times as much memory as it has bytes; so large ones are worked on
	// one after the other. The others together have hardly more than one of the largest, even if 64 are worked
	// on at the same moment. A Service with 270 ports is not large.
	largeBytes = 128 * kibibyte
)

// DefaultLimits let the largest review pass that an API server can write, and a few of these wait. Typical reviews
// have some kilobytes. There is room for the beginnings of as many as there may be connections.
func DefaultLimits() Limits {
	const largest = 2*objectBytes + envelopeBytes // the object, and the old one
	return Limits{Body: largest, Bodies: maxConnections * announcedBytes, LargeBodies: 4 * largest, InFlight: 64}
}

// inFlight counts what is held and in flight. All paths share one.
type inFlight struct {
	limits              Limits
	bodies, largeBodies *semaphore.Weighted
	inFlight            *semaphore.Weighted
	semaphore           *semaphore.Weighted // of large reviews: one of them has it
}

func newInFlight(limits Limits) *inFlight {
	return &inFlight{
		limits: limits,
		bodies: semaphore.NewWeighted(limits.Bodies), largeBodies: semaphore.NewWeighted(limits.LargeBodies),
		inFlight: semaphore.NewWeighted(limits.InFlight), semaphore: semaphore.NewWeighted(1),
	}
}

// countingReader reads a body, or a part of it, and takes room for it as it arrives: a body that is only announced holds
// none.
type countingReader struct {
	io.Reader
	room *semaphore.Weighted
	held int64
}

func (c *countingReader) Read(into []byte) (int, error) {
	n, err := c.Reader.Read(into)
	if !c.room.TryAcquire(int64(n)) {
		return 0, reject(http.StatusServiceUnavailable, MemoryLimit, "the requests that are being read or answered fill their memory already")
	}
	c.held += int64(n)
	return n, err
}

// enter returns once a review with a body of that size may be worked on, and what to call at its end. Errors are
// refusals.
//
// A large one waits for its turn as long as its client waits, and is not in flight before, so that those that wait
// take no place of others. There are not many of them, because their bodies are held.
func (a *inFlight) enter(ctx context.Context, size int) (leave func(), err error) {
	endTurn := func() {}
	if size > largeBytes {
		if a.semaphore.Acquire(ctx, 1) != nil {
			return nil, reject(http.StatusServiceUnavailable, Busy, "the client did not wait for the end of other large reviews")
		}
		endTurn = func() { a.semaphore.Release(1) }
	}
	if !a.inFlight.TryAcquire(1) {
		endTurn()
		return nil, reject(http.StatusServiceUnavailable, Busy,
			"%d reviews are being worked on already, and no more are taken", a.limits.InFlight)
	}
	return func() {
		a.inFlight.Release(1)
		endTurn()
	}, nil
}
