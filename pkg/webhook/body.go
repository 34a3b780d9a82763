package webhook

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
)

// read returns the body of a request, and what to call once it is needed no more. Errors are refusals; then there is nothing to call.
//
// A body is read before its review is in flight: whoever sends slowly holds the bytes that were announced, and no review's place.
func (a *admitted) read(w http.ResponseWriter, r *http.Request) (body []byte, release func(), err error) {
	if err := a.acceptable(r); err != nil {
		return nil, nil, err
	}
	weight := a.limits.weight(r.ContentLength)
	if !a.bodies.TryAcquire(weight) {
		return nil, nil, refuse(http.StatusServiceUnavailable, NoMemory,
			"the requests that are being read fill %d bytes already", a.limits.Bodies)
	}
	body, err = readAll(http.MaxBytesReader(w, r.Body, a.limits.Body), r.ContentLength)
	if err != nil {
		a.bodies.Release(weight)
		return nil, nil, a.unreadable(err)
	}
	return body, func() { a.bodies.Release(weight) }, nil
}

// acceptable looks at the headers.
func (a *admitted) acceptable(r *http.Request) error {
	if r.Method != http.MethodPost {
		return refuse(http.StatusMethodNotAllowed, WrongMethod, "the method is %s; reviews come with %s", r.Method, http.MethodPost)
	}
	media := r.Header.Get("Content-Type")
	if name, _, err := mime.ParseMediaType(media); err != nil || name != "application/json" {
		return refuse(http.StatusUnsupportedMediaType, WrongMedia, "the Content-Type is %q; reviews are application/json", media)
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return refuse(http.StatusUnsupportedMediaType, WrongMedia, "the Content-Encoding is %q; reviews are read as they are", coding)
	}
	if r.ContentLength > a.limits.Body {
		return a.tooLarge()
	}
	return nil
}

func (a *admitted) tooLarge() error {
	return refuse(http.StatusRequestEntityTooLarge, TooLarge, "the body has more than %d bytes, which is more than any review", a.limits.Body)
}

// readAll reads a body of that length; -1 if it was not announced. net/http hands out no more than was announced.
func readAll(from io.Reader, length int64) ([]byte, error) {
	if length < 0 {
		return io.ReadAll(from)
	}
	body := make([]byte, length)
	_, err := io.ReadFull(from, body)
	return body, err
}

func (a *admitted) unreadable(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return a.tooLarge()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return refuse(http.StatusRequestTimeout, Unreadable, "the body did not arrive in time")
	}
	return refuse(http.StatusBadRequest, Unreadable, "reading the body: %s", err)
}
