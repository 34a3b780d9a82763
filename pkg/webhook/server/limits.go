package server

import (
	"context"
	"io"
	"net/http"

	"golang.org/x/sync/semaphore"
)

// Limits bound the cost of requests, in bytes unless stated otherwise.
type Limits struct {
	// Body is the limit of a single body.
	Body int64
	// Bodies is the limit of all bodies in memory. Only bytes that have arrived count, and of a large body only its first
	// largeBytes.
	Bodies int64
	// LargeBodies is the limit of the rest of large bodies, so that any number of them leaves memory for the others.
	LargeBodies int64
	// InFlight is the maximum number of reviews in progress.
	InFlight int64
}

const (
	kibibyte = 1 << 10
	mebibyte = 1 << 20

	// objectBytes is the maximum size of a request to the API server (MaxRequestBodyBytes of its generic Config).
	objectBytes = 3 * mebibyte
	// envelopeBytes is for the rest of a review: the user with all groups, and the options.
	envelopeBytes = mebibyte / 2

	// announcedBytes bounds the buffer that is allocated for the Content-Length before any of the body arrives. It does
	// not count against the limits, because connections are bounded.
	announcedBytes = 16 * kibibyte

	// largeBytes is the size above which a review is large. To decode a review that consists of short unknown labels, and
	// to report the violations, takes some 25 times its size in memory, so large ones are processed one after the other.
	// All others together need hardly more than one of the largest, even with 64 in progress. A Service with 270 ports is
	// not large.
	largeBytes = 128 * kibibyte
)

// DefaultLimits admit the largest review that an API server can send, and let a few of these wait. Typical reviews have
// some kilobytes. There is memory for the first bytes of as many as there may be connections.
func DefaultLimits() Limits {
	const largest = 2*objectBytes + envelopeBytes // object and oldObject
	return Limits{Body: largest, Bodies: maxConnections * announcedBytes, LargeBodies: 4 * largest, InFlight: 64}
}

// inFlight enforces the limits. All paths share one.
type inFlight struct {
	limits              Limits
	bodies, largeBodies *semaphore.Weighted
	inFlight            *semaphore.Weighted
	semaphore           *semaphore.Weighted // held by the large review in progress
}

func newInFlight(limits Limits) *inFlight {
	return &inFlight{
		limits: limits,
		bodies: semaphore.NewWeighted(limits.Bodies), largeBodies: semaphore.NewWeighted(limits.LargeBodies),
		inFlight: semaphore.NewWeighted(limits.InFlight), semaphore: semaphore.NewWeighted(1),
	}
}

// countingReader reads a body, or a part of it, and acquires memory as bytes arrive: a body that is only announced uses
// none.
type countingReader struct {
	io.Reader
	room *semaphore.Weighted
	held int64
}

func (c *countingReader) Read(into []byte) (int, error) {
	n, err := c.Reader.Read(into)
	if !c.room.TryAcquire(int64(n)) {
		return 0, reject(http.StatusServiceUnavailable, MemoryLimit, "the memory for requests in progress is used up")
	}
	c.held += int64(n)
	return n, err
}

// enter returns once a review with a body of that size may start, with a function to call at its end. An error is a
// rejection.
//
// A large review waits for the others as long as its client waits. It counts as in flight only afterwards, so waiting
// ones do not displace others. There are not many of them, because LargeBodies bounds their bodies.
func (a *inFlight) enter(ctx context.Context, size int) (leave func(), err error) {
	endTurn := func() {}
	if size > largeBytes {
		if a.semaphore.Acquire(ctx, 1) != nil {
			return nil, reject(http.StatusServiceUnavailable, Busy, "the client gave up while other large reviews were in progress")
		}
		endTurn = func() { a.semaphore.Release(1) }
	}
	if !a.inFlight.TryAcquire(1) {
		endTurn()
		return nil, reject(http.StatusServiceUnavailable, Busy,
			"%d reviews are in progress, the maximum", a.limits.InFlight)
	}
	return func() {
		a.inFlight.Release(1)
		endTurn()
	}, nil
}
