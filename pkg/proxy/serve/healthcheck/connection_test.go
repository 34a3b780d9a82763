//go:build linux

package healthcheck

import (
	"errors"
	"io"
	"os"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

func TestConnectionSurvivesUnrelatedChanges(t *testing.T) {
	n := newNode(t)
	n.sync(checks{name("shop/web"): check(30000, 0)}, scopeOf("127.0.0.1"))
	c := n.mustDial("127.0.0.1:30000")
	steps := []struct {
		checks checks
		on     selection.Scope
	}{
		{checks{name("shop/web"): check(30000, 1)}, scopeOf("127.0.0.1")},
		{checks{name("shop/web"): check(30000, 2)}, scopeOf("127.0.0.1", "127.0.0.2")},
		{checks{name("shop/web"): check(30000, 3), name("shop/api"): check(30001, 9)}, scopeOf("127.0.0.1", "::1")},
		{checks{name("shop/web"): {Port: 30000, Endpoints: counts{model.IPv4: 4, model.IPv6: 5}}}, scopeOf("127.0.0.1", "::1")},
	}
	for i, step := range steps {
		n.sync(step.checks, step.on)
		got, err := c.request("GET", "/", "")
		if err != nil {
			t.Fatalf("after step %d: %v", i, err)
		}
		if got.Body != bodyOf("shop/web", i+1, true) || got.Closing {
			t.Errorf("after step %d: got %+v, want %d endpoints and an open connection", i, got, i+1)
		}
	}
}

func TestAConnectionIsClosedWithItsServer(t *testing.T) {
	one := checks{name("shop/web"): check(30000, 1)}
	for title, end := range map[string]func(*node){
		"when the Service is deleted": func(n *node) { n.sync(nil, scopeOf("127.0.0.1")) },
		"when the address is removed": func(n *node) { n.sync(one, scopeOf("127.0.0.2")) },
		"when the port changes":       func(n *node) { n.sync(checks{name("shop/web"): check(30001, 1)}, scopeOf("127.0.0.1")) },
		"when all servers end":        func(n *node) { n.servers.Close() },
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel() // slow: a connection without a request gets time to send one
			n := newNode(t)
			n.sync(one, scopeOf("127.0.0.1"))
			used, fresh := n.mustDial("127.0.0.1:30000"), n.mustDial("127.0.0.1:30000")
			if _, err := used.request("GET", "/", ""); err != nil {
				t.Fatal(err)
			}
			end(n)
			n.expectClosed("127.0.0.1:30000")
			for _, c := range []*connection{used, fresh} {
				if got, err := io.ReadAll(c.reader); len(got) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("read %q, %v from a connection, want it closed", got, err)
				}
			}
		})
	}
}

func TestLaterAddressIsServedWithoutAnotherSync(t *testing.T) {
	n := newNode(t)
	n.sync(checks{name("shop/web"): {Port: 30000, Endpoints: counts{model.IPv4: 1, model.IPv6: 2}}}, scopeOf("192.0.2.1", "2001:db8::1"))
	n.addAddresses("192.0.2.1/32", "2001:db8::1/128")
	n.expectServing("192.0.2.1:30000", "shop/web", 1)
	n.expectServing("[2001:db8::1]:30000", "shop/web", 2)
}
