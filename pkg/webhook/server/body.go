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
func (l *limiter) read(w http.ResponseWriter, r *http.Request) (body []byte, release func(), err error) {
	if err := l.checkRequest(r); err != nil {
		return nil, nil, err
	}
	limited := http.MaxBytesReader(w, r.Body, l.limits.Body)
	head := &countingReader{Reader: io.LimitReader(limited, largeBytes), memory: l.bodies}
	tail := &countingReader{Reader: limited, memory: l.largeBodies}
	release = func() {
		head.memory.Release(head.acquired)
		tail.memory.Release(tail.acquired)
	}
	buffer := bytes.NewBuffer(make([]byte, 0, min(max(r.ContentLength, 0), initialBufferBytes)+bytes.MinRead))
	if _, err := buffer.ReadFrom(io.MultiReader(head, tail)); err != nil {
		release()
		return nil, nil, l.readError(err)
	}
	return buffer.Bytes(), release, nil
}

// checkRequest checks the method and the headers.
func (l *limiter) checkRequest(r *http.Request) error {
	if r.Method != http.MethodPost {
		return reject(http.StatusMethodNotAllowed, WrongMethod, "method %s is not allowed; use %s", r.Method, http.MethodPost)
	}
	contentType := r.Header.Get("Content-Type")
	if name, _, err := mime.ParseMediaType(contentType); err != nil || name != "application/json" {
		return reject(http.StatusUnsupportedMediaType, WrongMedia, "Content-Type must be application/json, not %q", contentType)
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return reject(http.StatusUnsupportedMediaType, WrongMedia, "Content-Encoding %q is not supported", encoding)
	}
	if r.ContentLength > l.limits.Body {
		return l.tooLarge()
	}
	return nil
}

func (l *limiter) tooLarge() error {
	return reject(http.StatusRequestEntityTooLarge, TooLarge, "the body has more than %d bytes, the limit for a review", l.limits.Body)
}

func (l *limiter) readError(err error) error {
	if _, ok := errors.AsType[*rejectedRequest](err); ok {
		return err
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return l.tooLarge()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return reject(http.StatusRequestTimeout, Unreadable, "timed out reading the body")
	}
	return reject(http.StatusBadRequest, Unreadable, "read the body: %s", err)
}
