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

	// maxObjectBytes is the maximum size of a request to the API server (MaxRequestBodyBytes of its generic Config).
	maxObjectBytes = 3 * mebibyte
	// maxEnvelopeBytes is for the rest of a review: the user with all groups, and the options.
	maxEnvelopeBytes = mebibyte / 2

	// initialBufferBytes bounds the buffer that is allocated for the Content-Length before any of the body arrives. It
	// does not count against the limits, because connections are bounded.
	initialBufferBytes = 16 * kibibyte

	// largeBytes is the size above which a review is large. To decode a review that consists of short unknown labels, and
	// to report the violations, takes about 25 times its size in memory, so large ones are processed one after the other.
	// All others together need hardly more than one of the largest, even with 64 in progress. A Service with 270 ports is
	// not large.
	largeBytes = 128 * kibibyte
)

// DefaultLimits admit the largest review that an API server can send, and let a few of these wait. Typical reviews have
// a few kilobytes. There is memory for the first bytes of as many as there may be connections.
func DefaultLimits() Limits {
	const largest = 2*maxObjectBytes + maxEnvelopeBytes // object and oldObject
	return Limits{Body: largest, Bodies: maxConnections * initialBufferBytes, LargeBodies: 4 * largest, InFlight: 64}
}

// limiter enforces the limits. All paths share one.
type limiter struct {
	limits              Limits
	bodies, largeBodies *semaphore.Weighted
	inFlight            *semaphore.Weighted
	largeReview         *semaphore.Weighted // held by the large review in progress
}

func newLimiter(limits Limits) *limiter {
	return &limiter{
		limits: limits,
		bodies: semaphore.NewWeighted(limits.Bodies), largeBodies: semaphore.NewWeighted(limits.LargeBodies),
		inFlight: semaphore.NewWeighted(limits.InFlight), largeReview: semaphore.NewWeighted(1),
	}
}

// countingReader reads a body, or a part of it, and acquires memory as bytes arrive: a body that is only announced uses
// none.
type countingReader struct {
	io.Reader
	memory   *semaphore.Weighted
	acquired int64
}

func (c *countingReader) Read(into []byte) (int, error) {
	n, err := c.Reader.Read(into)
	if !c.memory.TryAcquire(int64(n)) {
		return 0, reject(http.StatusServiceUnavailable, MemoryLimit, "the memory for requests in progress is used up")
	}
	c.acquired += int64(n)
	return n, err
}

// enter returns once a review with a body of that size may start, with a function to call at its end. An error is a
// rejection.
//
// A large review waits for the others as long as its client waits. It counts as in flight only afterwards, so waiting
// ones do not displace others. There are not many of them, because LargeBodies bounds their bodies.
func (l *limiter) enter(ctx context.Context, size int) (release func(), err error) {
	releaseLarge := func() {}
	if size > largeBytes {
		if l.largeReview.Acquire(ctx, 1) != nil {
			return nil, reject(http.StatusServiceUnavailable, Busy, "the client gave up while other large reviews were in progress")
		}
		releaseLarge = func() { l.largeReview.Release(1) }
	}
	if !l.inFlight.TryAcquire(1) {
		releaseLarge()
		return nil, reject(http.StatusServiceUnavailable, Busy,
			"%d reviews are in progress, the maximum", l.limits.InFlight)
	}
	return func() {
		l.inFlight.Release(1)
		releaseLarge()
	}, nil
}
