//go:build linux

package healthcheck

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// bodyOf returns the expected body, byte for byte: tabs, this order, no newline at the end.
func bodyOf(service string, endpoints int, isHealthy bool) string {
	namespace, name, _ := strings.Cut(service, "/")
	return fmt.Sprintf("{\n\t\"service\": {\n\t\t\"namespace\": \"%s\",\n\t\t\"name\": \"%s\"\n\t},\n\t\"localEndpoints\": %d,\n"+
		"\t\"serviceProxyHealthy\": %t\n}", namespace, name, endpoints, isHealthy)
}

func TestTheResponse(t *testing.T) {
	n := newNode(t)
	for title, test := range map[string]struct {
		endpoints int
		unhealthy bool
		status    int
		weight    string
	}{
		"200 with an endpoint on the node":             {endpoints: 1, status: http.StatusOK, weight: "1"},
		"200 with several, and their number as weight": {endpoints: 12, status: http.StatusOK, weight: "12"},
		"503 without an endpoint":                      {endpoints: 0, status: http.StatusServiceUnavailable, weight: "0"},
		"503 with the weight while the proxy is unhealthy": {
			endpoints: 3, unhealthy: true, status: http.StatusServiceUnavailable, weight: "3",
		},
		"503 without an endpoint, while unhealthy": {endpoints: 0, unhealthy: true, status: http.StatusServiceUnavailable, weight: "0"},
	} {
		t.Run(title, func(t *testing.T) {
			n.isUnhealthy.Store(test.unhealthy)
			n.sync(checks{name("shop/web"): check(30000, test.endpoints)}, scopeOf("127.0.0.1"))
			got, err := n.requestOnce(t.Context(), "127.0.0.1:30000")
			if err != nil {
				t.Fatal(err)
			}
			want := reply{
				Status: test.status,
				Header: http.Header{
					"Content-Type":                     {"application/json"},
					"X-Content-Type-Options":           {"nosniff"},
					"X-Load-Balancing-Endpoint-Weight": {test.weight},
					"Content-Length":                   {fmt.Sprint(len(got.Body))},
					"Date":                             got.Header["Date"],
				},
				Body: bodyOf("shop/web", test.endpoints, !test.unhealthy),
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("response (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheResponseIsTheSameForEveryPathAndMethod(t *testing.T) {
	n := newNode(t)
	n.sync(checks{name("shop/web"): check(30000, 1)}, scopeOf("127.0.0.1"))
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW"} {
		for _, path := range []string{"/", "/healthz", "//a/../b", "/a%2fb?c=d"} {
			t.Run(method+" "+path, func(t *testing.T) {
				got, err := n.mustDial("127.0.0.1:30000").request(method, path, "")
				if err != nil {
					t.Fatal(err)
				}
				want := bodyOf("shop/web", 1, true)
				if method == "HEAD" {
					want = "" // such a response has no body in HTTP
				}
				if got.Status != http.StatusOK || got.Body != want || got.Header.Get("X-Load-Balancing-Endpoint-Weight") != "1" {
					t.Errorf("got %+v, want 200 with weight 1 and body %q", got, want)
				}
			})
		}
	}
}

func TestRequestBodyIsIgnored(t *testing.T) {
	n := newNode(t)
	n.sync(checks{name("shop/web"): check(30000, 1)}, scopeOf("127.0.0.1"))
	c := n.mustDial("127.0.0.1:30000")
	for range 2 {
		got, err := c.request("POST", "/", strings.Repeat("x", 10000))
		if err != nil || got.Body != bodyOf("shop/web", 1, true) {
			t.Errorf("got %+v, %v, want the normal response", got, err)
		}
	}
}
