package server

import (
	"errors"
	"io"
	"net/http"
)

// holding is what one body takes of what all of them may. It is taken as the body arrives: who only announces a large one, and sends
// nothing, is not in the way of anybody.
type holding struct {
	admitted    *admitted
	body, large int64 // of Limits.Bodies and of Limits.LargeBodies
}

// read reads a body of that length; -1 if it was not announced. Each time that the buffer is full it is doubled, so that no more is held
// than twice what has arrived.
func (h *holding) read(from io.Reader, length int64) ([]byte, error) {
	whole := length
	if length < 0 {
		whole = h.admitted.limits.Body + 1 // in which the end of the largest one is met
	}
	body, err := h.grow(nil, min(whole, requestBytes))
	for err == nil && int64(len(body)) < whole {
		if len(body) == cap(body) {
			if body, err = h.grow(body, min(whole, 2*int64(cap(body)))); err != nil {
				break
			}
		}
		var read int
		read, err = from.Read(body[len(body):cap(body)])
		body = body[:len(body)+read]
	}
	switch {
	case int64(len(body)) == whole, length < 0 && errors.Is(err, io.EOF):
		return body, nil
	case errors.Is(err, io.EOF):
		return nil, io.ErrUnexpectedEOF
	}
	return nil, err
}

// grow moves a body into a buffer of that size, if there is room for it.
func (h *holding) grow(body []byte, size int64) ([]byte, error) {
	if !h.take(size) {
		return nil, refuse(http.StatusServiceUnavailable, NoMemory, "the requests that are being read or answered fill their memory already")
	}
	return append(make([]byte, 0, size), body...), nil
}

// take makes this body count with that many bytes in all, and reports whether there was room.
func (h *holding) take(size int64) bool {
	size = min(size, h.admitted.limits.Body)
	body, large := max(min(size, largeBytes), requestBytes), max(size-largeBytes, 0)
	if !h.admitted.bodies.TryAcquire(body - h.body) {
		return false
	}
	h.body = body
	if !h.admitted.largeBodies.TryAcquire(large - h.large) {
		return false
	}
	h.large = large
	return true
}

func (h *holding) release() {
	h.admitted.bodies.Release(h.body)
	h.admitted.largeBodies.Release(h.large)
}
