package authorization

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// testPermissionTTL is how long a permission is valid in these tests.
const testPermissionTTL = 2 * time.Minute

// apiServer accepts tokens that begin with "reader", which may read /metrics, and the token "nobody", which may not.
// e2e/scrape uses a real API server.
type apiServer struct {
	reviews atomic.Int32
	isDown  atomic.Bool
	allows  atomic.Bool   // whether "reader..." may read
	release chan struct{} // if set, reviews wait until it is closed
}

func (a *apiServer) review(_ context.Context, token, path string) (int, error) {
	a.reviews.Add(1)
	if a.release != nil {
		<-a.release
	}
	reader := strings.HasPrefix(token, "reader")
	switch {
	case a.isDown.Load():
		return 0, errors.New("connection refused")
	case !reader && token != "nobody":
		return http.StatusUnauthorized, nil
	case reader && path == "/metrics" && a.allows.Load():
		return http.StatusOK, nil
	default:
		return http.StatusForbidden, nil
	}
}

// clock is advanced by the tests.
type clock struct{ at atomic.Int64 }

func (c *clock) now() time.Time           { return time.Unix(0, c.at.Load()) }
func (c *clock) advance(by time.Duration) { c.at.Add(int64(by)) }
func newClock() *clock                    { c := &clock{}; c.advance(time.Hour); return c }
func newAPIServer() *apiServer            { a := &apiServer{}; a.allows.Store(true); return a }
func newHandler(a *apiServer, c *clock, log *strings.Builder) *Handler {
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "metrics") })
	return New(a.review, next, slog.New(slog.NewTextHandler(log, nil)), c.now, testPermissionTTL)
}

func get(h http.Handler, method, path, authorization string) *httptest.ResponseRecorder {
	return getFrom(h, "192.0.2.1", method, path, authorization)
}

func getFrom(h http.Handler, client, method, path, authorization string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, path, nil)
	request.RemoteAddr = net.JoinHostPort(client, "40000")
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	response := httptest.NewRecorder()
	h.ServeHTTP(response, request)
	return response
}

func TestAccess(t *testing.T) {
	for name, c := range map[string]struct {
		method, path, authorization string
		want                        int
	}{
		"with permission":                 {"GET", "/metrics", "Bearer reader", 200},
		"lower-case scheme":               {"GET", "/metrics", "bearer reader", 200},
		"without permission":              {"GET", "/metrics", "Bearer nobody", 403},
		"without permission for the path": {"GET", "/other", "Bearer reader", 403},
		"an unknown token":                {"GET", "/metrics", "Bearer stranger", 401},
		"no token":                        {"GET", "/metrics", "", 401},
		"an empty token":                  {"GET", "/metrics", "Bearer ", 401},
		"another scheme":                  {"GET", "/metrics", "Basic cmVhZGVyOg==", 401},
		"another method":                  {"POST", "/metrics", "Bearer reader", 405},
	} {
		t.Run(name, func(t *testing.T) {
			api := newAPIServer()
			response := get(newHandler(api, newClock(), &strings.Builder{}), c.method, c.path, c.authorization)
			if response.Code != c.want || (c.want == 200) != (response.Body.String() == "metrics") {
				t.Errorf("got %d %q, want %d", response.Code, response.Body, c.want)
			}
			if (response.Header().Get("WWW-Authenticate") != "") != (c.want == 401) {
				t.Errorf("WWW-Authenticate: %q", response.Header().Get("WWW-Authenticate"))
			}
		})
	}
}

func TestReviewsAreCachedForAWhile(t *testing.T) {
	api, clock := newAPIServer(), newClock()
	h := newHandler(api, clock, &strings.Builder{})
	check := func(token string, want int, reviews int32) {
		t.Helper()
		before := api.reviews.Load()
		if got := get(h, "GET", "/metrics", "Bearer "+token).Code; got != want || api.reviews.Load()-before != reviews {
			t.Errorf("%s: status %d after %d reviews; want %d after %d", token, got, api.reviews.Load()-before, want, reviews)
		}
	}
	check("reader", 200, 1)
	check("nobody", 403, 1)
	clock.advance(denialTTL - time.Second)
	check("reader", 200, 0)
	check("nobody", 403, 0)
	clock.advance(time.Second)
	check("nobody", 403, 1)
	api.allows.Store(false)
	check("reader", 200, 0)
	clock.advance(testPermissionTTL)
	check("reader", 403, 1)
}

func TestPermissionOutlivesTheAPIServerForAnHour(t *testing.T) {
	api, clock, log := newAPIServer(), newClock(), &strings.Builder{}
	h := newHandler(api, clock, log)
	if got := get(h, "GET", "/metrics", "Bearer reader").Code; got != 200 {
		t.Fatalf("status %d, want 200", got)
	}
	api.isDown.Store(true)
	for range 5 {
		clock.advance(testPermissionTTL)
		if got := get(h, "GET", "/metrics", "Bearer reader").Code; got != 200 {
			t.Errorf("while the API server is unavailable: status %d, want 200", got)
		}
		if got := get(h, "GET", "/metrics", "Bearer nobody").Code; got != 503 {
			t.Errorf("a token that was never reviewed: status %d, want 503", got)
		}
	}
	clock.advance(permissionGracePeriod)
	if got := get(h, "GET", "/metrics", "Bearer reader").Code; got != 503 {
		t.Errorf("after an hour: status %d, want 503", got)
	}
	api.isDown.Store(false)
	clock.advance(time.Second)
	if got := get(h, "GET", "/metrics", "Bearer reader").Code; got != 200 {
		t.Errorf("after the outage: status %d, want 200", got)
	}
	if lines := strings.Count(log.String(), "\n"); lines != 2 {
		t.Errorf("%d lines, want one for the start and one for the end of the outage:\n%s", lines, log)
	}
}

// TestUnknownClientDoesNotBlockOthers: an unknown client tries 50 tokens a second. A scraper at another address can
// read, with a new token each second; one at the same address continues with its allowed token; and the API server gets
// few reviews.
func TestUnknownClientDoesNotBlockOthers(t *testing.T) {
	for name, unknownClient := range map[string]string{"IPv4": "192.0.2.66", "IPv6": "2001:db8::66"} {
		t.Run(name, func(t *testing.T) {
			api, clock := newAPIServer(), newClock()
			h := newHandler(api, clock, &strings.Builder{})
			const seconds = 200
			getFrom(h, unknownClient, "GET", "/metrics", "Bearer reader")
			rejected := 0
			for second := range seconds {
				for i := range 50 {
					if getFrom(h, unknownClient, "GET", "/metrics", fmt.Sprintf("Bearer stranger-%d-%d", second, i)).Code == 429 {
						rejected++
					}
				}
				if got := getFrom(h, unknownClient, "GET", "/metrics", "Bearer reader").Code; got != 200 {
					t.Fatalf("after %d s a reader at the unknown client's address gets %d", second, got)
				}
				if got := getFrom(h, "192.0.2.7", "GET", "/metrics", fmt.Sprintf("Bearer reader-%d", second)).Code; got != 200 {
					t.Fatalf("after %d s a reader at another address, with a new token, gets %d", second, got)
				}
				clock.advance(time.Second)
			}
			if limit := clientBurst + seconds*clientReviews; rejected < seconds*50-limit {
				t.Errorf("%d of %d tokens were rejected without a review, want all but %d", rejected, seconds*50, limit)
			}
			readers := seconds + seconds/int(testPermissionTTL.Seconds()) + 1
			if got, limit := int(api.reviews.Load()), clientBurst+seconds*clientReviews+readers; got > limit {
				t.Errorf("%d reviews in %d s, want at most %d", got, seconds, limit)
			}
		})
	}
}

// TestReviewsOfUnknownTokensAreRateLimited: the requests come from more addresses than a budget tracks.
func TestReviewsOfUnknownTokensAreRateLimited(t *testing.T) {
	api, clock := newAPIServer(), newClock()
	h := newHandler(api, clock, &strings.Builder{})
	for second := range 20 {
		for i := range 2048 {
			from := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
			getFrom(h, from.String(), "GET", "/metrics", fmt.Sprintf("Bearer stranger-%d-%d", second, i))
		}
		clock.advance(time.Second)
	}
	if got := api.reviews.Load(); got > allBurst+20*allReviews {
		t.Errorf("%d reviews in 20 s", got)
	}
	if got := len(h.decisions); got > maxCachedDecisions {
		t.Errorf("%d decisions are cached", got)
	}
}

// TestRevokedTokenIsRejectedDespiteManyRequests: requests over our own limit do not extend an expired permission.
func TestRevokedTokenIsRejectedDespiteManyRequests(t *testing.T) {
	api, clock := newAPIServer(), newClock()
	h := newHandler(api, clock, &strings.Builder{})
	get(h, "GET", "/metrics", "Bearer reader")
	api.allows.Store(false)
	clock.advance(testPermissionTTL)
	for second := range 30 {
		for i := range 2 * allBurst {
			getFrom(h, fmt.Sprintf("10.0.%d.1", i), "GET", "/metrics", fmt.Sprintf("Bearer stranger-%d-%d", second, i))
		}
		if got := get(h, "GET", "/metrics", "Bearer reader").Code; got == 200 {
			t.Fatalf("%d s after the permission expired, the revoked token is accepted", second)
		}
		clock.advance(time.Second)
	}
}

func TestConcurrentReviewsAreShared(t *testing.T) {
	api := newAPIServer()
	api.release = make(chan struct{})
	h := newHandler(api, newClock(), &strings.Builder{})
	var requests sync.WaitGroup
	for range 8 {
		requests.Go(func() {
			if got := get(h, "GET", "/metrics", "Bearer reader").Code; got != 200 {
				t.Errorf("status %d, want 200", got)
			}
		})
	}
	for api.reviews.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	close(api.release)
	requests.Wait()
	if got := api.reviews.Load(); got != 1 {
		t.Errorf("%d reviews, want 1", got)
	}
}
