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

// TestThePeerAddressesOfTheAPIServerAreTracked checks an address and a name, also without a reply.
func TestThePeerAddressesOfTheAPIServerAreTracked(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddrPort(at.Host)
	silent := httptest.NewServer(http.NotFoundHandler())
	silent.Close()
	for name, test := range map[string]struct {
		host  string
		want  netip.AddrPort
		fails bool
	}{
		"an address":    {server.URL, addr, false},
		"a name":        {"http://localhost:" + at.Port(), addr, false},
		"a closed port": {silent.URL, netip.MustParseAddrPort(strings.TrimPrefix(silent.URL, "http://")), true},
	} {
		t.Run(name, func(t *testing.T) {
			config := &rest.Config{Host: test.host}
			dialled := NewPeerTracker(config)
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
			if got := dialled.Addrs(); !slices.Contains(got, test.want) {
				t.Errorf("Addrs() = %v, want %v among them", got, test.want)
			}
			for _, got := range dialled.Addrs() {
				if got.Port() != test.want.Port() || !got.Addr().IsLoopback() {
					t.Errorf("unexpected address %v", got)
				}
			}
			select {
			case <-dialled.Changed():
			default:
				t.Error("Changed() was not notified")
			}
		})
	}
	server.Close()
}

// TestWhatIsRememberedIsBounded checks the limit, because a name may resolve to other addresses each time.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	dialled := NewPeerTracker(&rest.Config{})
	addr := netip.MustParseAddr("192.0.2.1")
	for range 3 * maxServers {
		dialled.add(netip.AddrPortFrom(addr, 443))
		addr = addr.Next()
	}
	if got := dialled.Addrs(); len(got) != maxServers || got[len(got)-1].Addr() != addr.Prev() {
		t.Errorf("%d addresses are stored, up to %v", len(got), got[len(got)-1])
	}
}
