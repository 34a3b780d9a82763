package kube

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// TestPeerTracker checks an address and a name, and a port that refuses connections.
func TestPeerTracker(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	serverURL, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddrPort(serverURL.Host)
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	for name, test := range map[string]struct {
		host  string
		want  netip.AddrPort
		fails bool
	}{
		"an address":    {server.URL, addr, false},
		"a name":        {"http://localhost:" + serverURL.Port(), addr, false},
		"a closed port": {closed.URL, netip.MustParseAddrPort(strings.TrimPrefix(closed.URL, "http://")), true},
	} {
		t.Run(name, func(t *testing.T) {
			config := &rest.Config{Host: test.host}
			peers := NewPeerTracker(config)
			client, err := rest.HTTPClientFor(config)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				response, err := client.Get(test.host)
				if (err != nil) != test.fails {
					t.Fatal(err)
				}
				if err == nil {
					response.Body.Close()
				}
			}
			if got := peers.Addrs(); !slices.Contains(got, test.want) {
				t.Errorf("Addrs() = %v, want %v among them", got, test.want)
			}
			for _, got := range peers.Addrs() {
				if got.Port() != test.want.Port() || !got.Addr().IsLoopback() {
					t.Errorf("unexpected address %v", got)
				}
			}
			select {
			case <-peers.Changed():
			default:
				t.Error("Changed() was not notified")
			}
		})
	}
	server.Close()
}

// TestPeerTrackerLimit checks the limit, because a name may resolve to other addresses each time.
func TestPeerTrackerLimit(t *testing.T) {
	peers := NewPeerTracker(&rest.Config{})
	addr := netip.MustParseAddr("192.0.2.1")
	for range 3 * maxAddrs {
		peers.add(netip.AddrPortFrom(addr, 443))
		addr = addr.Next()
	}
	if got := peers.Addrs(); len(got) != maxAddrs || got[len(got)-1].Addr() != addr.Prev() {
		t.Errorf("%d addresses are stored, up to %v", len(got), got[len(got)-1])
	}
}
