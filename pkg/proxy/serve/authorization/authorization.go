// Package authorization serves only requests that the API server allows. It sends a SelfSubjectAccessReview for the
// path with the client's own token. So the proxy needs no permission to review the access of others.
//
// k8s.io/apiserver can do the same. Linked into the proxy it takes 9.7 MB of the binary, a fifth of the whole, and 9 MB
// of memory on every node, used or not. This package is two hundred lines, and costs nothing where it is not used.
//
// budget.go limits the reviews that unknown tokens can cause.
package authorization

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/budget"
	"github.com/vicinity-proxy/vicinity/pkg/httpserve"
)

const (
	// denialTTL is how long a denial is cached.
	denialTTL = 10 * time.Second
	// permissionGracePeriod is how long an expired permission stays valid while the API server does not respond: metrics
	// are needed most while it is down.
	permissionGracePeriod = time.Hour
	// reviewTimeout is the timeout of one review.
	reviewTimeout = 5 * time.Second
	// maxCachedDecisions limits the cache. The review budget keeps the number of fresh denials below it.
	maxCachedDecisions = 1024
)

// Reviewer returns the HTTP status for a client with a token that gets a path: 200, 401 or 403. An error means that the
// API server did not respond.
type Reviewer func(ctx context.Context, token, path string) (status int, err error)

// NewReviewer returns a Reviewer that uses the API server of a configuration, but not its credentials.
func NewReviewer(config *rest.Config) Reviewer {
	anonymous := rest.AnonymousClientConfig(config)
	return func(ctx context.Context, token, path string) (int, error) {
		asClient := rest.CopyConfig(anonymous)
		asClient.BearerToken = token
		client, err := authorizationclient.NewForConfig(asClient)
		if err != nil {
			return 0, fmt.Errorf("create client for SelfSubjectAccessReview: %w", err)
		}
		review := authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
		}}
		response, err := client.SelfSubjectAccessReviews().Create(ctx, &review, metav1.CreateOptions{})
		switch {
		case apierrors.IsUnauthorized(err):
			return http.StatusUnauthorized, nil
		case apierrors.IsForbidden(err): // the client may not create reviews
			return http.StatusForbidden, nil
		case err != nil:
			return 0, fmt.Errorf("create SelfSubjectAccessReview: %w", err)
		case response.Status.Allowed:
			return http.StatusOK, nil
		default:
			return http.StatusForbidden, nil
		}
	}
}

// Handler serves GET requests that the API server allows.
type Handler struct {
	reviewer      Reviewer
	next          http.Handler
	log           *slog.Logger
	now           func() time.Time
	permissionTTL time.Duration // how long a permission is valid
	reviewBudget  *budget.Budget
	reviews       singleflight.Group

	mutex        sync.Mutex
	decisions    map[cacheKey]decision
	unresponsive bool // the API server does not respond, and this was logged
}

// cacheKey identifies a token and a path. Tokens themselves are not stored.
type cacheKey [sha256.Size]byte

func cacheKeyOf(token, path string) cacheKey { return sha256.Sum256([]byte(path + "\x00" + token)) }

// decision is a result of the API server: an HTTP status, 200 if it allows the request.
type decision struct {
	status int
	at     time.Time
}

// New returns a handler in front of another one. A permission from the API server is valid for permissionTTL.
func New(reviewer Reviewer, next http.Handler, log *slog.Logger, now func() time.Time, permissionTTL time.Duration) *Handler {
	return &Handler{
		reviewer: reviewer, next: next, log: log, now: now, permissionTTL: permissionTTL,
		reviewBudget: newBudget(), decisions: map[cacheKey]decision{},
	}
}

// ServeHTTP responds with 401 to unknown clients, 403 to clients without permission, 429 if there were too many
// reviews, and 503 while the API server does not respond.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "only GET is allowed", http.StatusMethodNotAllowed)
		return
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		deny(w, http.StatusUnauthorized)
		return
	}
	if status := h.status(r.Context(), httpserve.ClientAddr(r.RemoteAddr), token, r.URL.Path); status != http.StatusOK {
		deny(w, status)
		return
	}
	h.next.ServeHTTP(w, r)
}

func deny(w http.ResponseWriter, status int) {
	text := map[int]string{
		http.StatusUnauthorized:       "a bearer token that the API server accepts is required",
		http.StatusForbidden:          "permission to get this nonResourceURL is required",
		http.StatusServiceUnavailable: "the API server did not respond to the access review",
		http.StatusTooManyRequests:    "too many requests with unknown tokens; retry in a minute",
	}[status]
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	http.Error(w, text, status)
}

// status returns the HTTP status, from the cache or from the API server. An expired permission is used only while the
// API server does not respond. Renewing one costs no budget: there are only as many as tokens that the API server
// allowed, so an unknown client at the same address cannot block them.
func (h *Handler) status(ctx context.Context, client netip.Addr, token, path string) int {
	key := cacheKeyOf(token, path)
	old, known := h.cached(key)
	if known && h.isFresh(old) {
		return old.status
	}
	wasAllowed := known && old.status == http.StatusOK
	if !wasAllowed && !h.reviewBudget.Spend(h.now(), client) {
		return http.StatusTooManyRequests
	}
	status, err, _ := h.reviews.Do(string(key[:]), func() (any, error) { return h.review(ctx, key, token, path) })
	switch {
	case err == nil:
		return status.(int)
	case wasAllowed && h.now().Sub(old.at) < permissionGracePeriod:
		return http.StatusOK
	default:
		return http.StatusServiceUnavailable
	}
}

// review queries the API server and caches the result.
func (h *Handler) review(ctx context.Context, key cacheKey, token, path string) (int, error) {
	if d, known := h.cached(key); known && h.isFresh(d) { // another request was faster
		return d.status, nil
	}
	// Other requests may wait for the same result, so it must not depend on this client's context.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout)
	defer cancel()
	status, err := h.reviewer(ctx, token, path)
	h.logAvailability(err)
	if err == nil {
		h.store(key, decision{status, h.now()})
	}
	return status, err
}

func (h *Handler) isFresh(d decision) bool {
	age := h.now().Sub(d.at)
	if d.status == http.StatusOK {
		return age < h.permissionTTL
	}
	return age < denialTTL
}

func (h *Handler) cached(key cacheKey) (decision, bool) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	d, known := h.decisions[key]
	return d, known
}

func (h *Handler) store(key cacheKey, d decision) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if len(h.decisions) >= maxCachedDecisions {
		for other, d := range h.decisions {
			if !h.isFresh(d) && (d.status != http.StatusOK || h.now().Sub(d.at) >= permissionGracePeriod) {
				delete(h.decisions, other)
			}
		}
	}
	if _, known := h.decisions[key]; known || len(h.decisions) < maxCachedDecisions {
		h.decisions[key] = d
	}
}

// logAvailability logs once that the API server does not respond, and once that it does again.
func (h *Handler) logAvailability(err error) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	switch {
	case err != nil && !h.unresponsive:
		h.log.Error("failed to review access to the metrics; permissions granted within the last hour stay valid", "error", err)
	case err == nil && h.unresponsive:
		h.log.Info("the API server responds to access reviews again")
	}
	h.unresponsive = err != nil
}
