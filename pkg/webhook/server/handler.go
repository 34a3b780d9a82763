package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"
)

// Handlers returns the handler of each path. They share the limits.
func Handlers(dependencies Dependencies, limits Limits, observer Observer, log *slog.Logger) map[string]http.Handler {
	limiter := newLimiter(limits)
	handlers := map[string]http.Handler{}
	for path, decide := range dependencies.reviewers() {
		handlers[path] = &handler{path, decide, limiter, observer, log.With("path", path)}
	}
	return handlers
}

// handler serves one path.
type handler struct {
	path     string
	decide   reviewer
	limiter  *limiter
	observer Observer
	log      *slog.Logger
}

// reply is an HTTP response.
type reply struct {
	outcome string
	code    int
	body    []byte
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	started := time.Now()
	response, release := h.respond(w, r)
	defer release() // only now: a response can be as large as its request, and a slow reader delays it
	write(w, response)
	h.observer.Reviewed(h.path, response.outcome, time.Since(started))
}

// retryAfter, in seconds, is for responses that may differ a moment later. The API server retries only within
// timeoutSeconds, which is 2 in our manifests.
const retryAfter = 1

func write(w http.ResponseWriter, response reply) {
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(response.body)))
	header.Set("X-Content-Type-Options", "nosniff")
	switch response.code {
	case http.StatusServiceUnavailable:
		header.Set("Retry-After", strconv.Itoa(retryAfter))
	case http.StatusMethodNotAllowed:
		header.Set("Allow", http.MethodPost)
	}
	w.WriteHeader(response.code)
	// This fails only if the client is gone, and then there is nothing left to do.
	_, _ = w.Write(response.body)
}

// respond never panics: net/http would close the connection, and lose the next reviews on it. The caller must call
// release after it has written the response.
func (h *handler) respond(w http.ResponseWriter, r *http.Request) (response reply, release func()) {
	release = func() {}
	defer func() {
		if cause := recover(); cause != nil {
			response = h.internalError(&failure{Panicked, fmt.Sprint(cause)}, slog.String("stack", string(debug.Stack())))
		}
	}()
	body, releaseBody, err := h.limiter.read(w, r)
	if err != nil {
		return h.reject(err), release
	}
	release = releaseBody
	leave, err := h.limiter.enter(r.Context(), len(body))
	if err != nil {
		return h.reject(err), release
	}
	defer leave()
	h.observer.InFlight(1)
	defer h.observer.InFlight(-1)
	return h.review(r.Context(), body), release
}

func (h *handler) review(ctx context.Context, body []byte) reply {
	decision, err := h.decide(body)
	if err != nil {
		return h.reject(err)
	}
	text, err := json.Marshal(decision.review())
	if err != nil {
		return h.internalError(&failure{Unwritable, fmt.Sprintf("encode the response to review %s: %s", decision.UID, err)})
	}
	h.report(ctx, decision)
	if !decision.allowed() {
		return reply{Denied, http.StatusOK, text}
	}
	return reply{Allowed, http.StatusOK, text}
}

// reject returns the response to a request that gets no decision. Rejections are logged at Debug only: any client that
// reaches the server can cause them, and the API server logs its own.
func (h *handler) reject(err error) reply {
	rejection, ok := errors.AsType[*rejectedRequest](err)
	if !ok {
		return h.internalError(err)
	}
	h.observer.Rejected(rejection.reason)
	h.log.Debug("rejected a request", "reason", rejection.reason, "error", truncateForLog(rejection.text))
	return status(rejection.code, rejection.text)
}

// internalError returns the response to a request that failed internally. Only our log has the reason.
func (h *handler) internalError(err error, attributes ...any) reply {
	reason := Panicked
	if failure, ok := errors.AsType[*failure](err); ok {
		reason = failure.reason
	}
	h.observer.Failed(reason)
	h.log.Error("failed to respond to a review", append([]any{"reason", reason, "error", truncateForLog(err.Error())}, attributes...)...)
	return status(http.StatusInternalServerError, "vicinity's admission webhook had an internal error; see its log")
}

func status(code int, text string) reply {
	body, err := failureStatus(code, text)
	if err != nil {
		body = nil // a Status of plain strings can always be encoded, and the code is what counts
	}
	return reply{Errored, code, body}
}
