package server

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
)

// read returns the body of a request, and a function that releases its memory. An error is a rejection or a failure;
// then there is nothing to release.
//
// A body is read before its review is in flight: a slow sender uses memory for the bytes that have arrived, but none of
// the reviews in flight.
func (a *inFlight) read(w http.ResponseWriter, r *http.Request) (body []byte, release func(), err error) {
	if err := a.acceptable(r); err != nil {
		return nil, nil, err
	}
	arriving := http.MaxBytesReader(w, r.Body, a.limits.Body)
	begin := &countingReader{Reader: io.LimitReader(arriving, largeBytes), room: a.bodies}
	rest := &countingReader{Reader: arriving, room: a.largeBodies}
	release = func() {
		begin.room.Release(begin.held)
		rest.room.Release(rest.held)
	}
	buffer := bytes.NewBuffer(make([]byte, 0, min(max(r.ContentLength, 0), announcedBytes)+bytes.MinRead))
	if _, err := buffer.ReadFrom(io.MultiReader(begin, rest)); err != nil {
		release()
		return nil, nil, a.unreadable(err)
	}
	return buffer.Bytes(), release, nil
}

// acceptable checks the method and the headers.
func (a *inFlight) acceptable(r *http.Request) error {
	if r.Method != http.MethodPost {
		return reject(http.StatusMethodNotAllowed, WrongMethod, "method %s is not allowed; use %s", r.Method, http.MethodPost)
	}
	media := r.Header.Get("Content-Type")
	if name, _, err := mime.ParseMediaType(media); err != nil || name != "application/json" {
		return reject(http.StatusUnsupportedMediaType, WrongMedia, "Content-Type must be application/json, not %q", media)
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return reject(http.StatusUnsupportedMediaType, WrongMedia, "Content-Encoding %q is not supported", coding)
	}
	if r.ContentLength > a.limits.Body {
		return a.tooLarge()
	}
	return nil
}

func (a *inFlight) tooLarge() error {
	return reject(http.StatusRequestEntityTooLarge, TooLarge, "the body has more than %d bytes, the limit for a review", a.limits.Body)
}

func (a *inFlight) unreadable(err error) error {
	if _, ok := errors.AsType[*rejectedRequest](err); ok {
		return err
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return a.tooLarge()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return reject(http.StatusRequestTimeout, Unreadable, "timed out reading the body")
	}
	return reject(http.StatusBadRequest, Unreadable, "read the body: %s", err)
}
