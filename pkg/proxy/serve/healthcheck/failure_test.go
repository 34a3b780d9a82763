//go:build linux

package healthcheck

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

func TestTwoServicesWithOnePort(t *testing.T) {
	n := newNode(t)
	both := checks{
		name("b/web"): {Port: 30000, Endpoints: counts{model.IPv4: 2, model.IPv6: 2}},
		name("a/web"): {Port: 30000, Endpoints: counts{model.IPv4: 1}},
		name("c/web"): {Port: 30001, Endpoints: counts{model.IPv4: 3}},
	}
	want := "serve health checks of Service b/web: over IPv4: port 30000 is the healthCheckNodePort of Service a/web"
	for range 2 {
		if diff := cmp.Diff(want, fmt.Sprint(n.trySync(both, scopeOf("127.0.0.1", "127.0.0.2", "::1")))); diff != "" {
			t.Errorf("error (-want +got):\n%s", diff)
		}
		n.expectServing("127.0.0.1:30000", "a/web", 1)
		n.expectServing("127.0.0.2:30000", "a/web", 1)
		n.expectServing("127.0.0.1:30001", "c/web", 3)
		n.expectServing("[::1]:30000", "b/web", 2) // the first Service has no IPv6
	}
	delete(both, name("a/web"))
	n.sync(both, scopeOf("127.0.0.1", "127.0.0.2", "::1"))
	n.expectServing("127.0.0.1:30000", "b/web", 2)
}

func TestOccupiedPortIsServedOnceFree(t *testing.T) {
	n := newNode(t)
	desired := checks{name("shop/web"): check(30000, 1), name("shop/api"): check(30001, 2)}
	addresses := scopeOf("127.0.0.1", "127.0.0.2")
	release := n.occupy("127.0.0.1:30000")
	want := "serve health checks of Service shop/web: listen tcp4 127.0.0.1:30000: bind: address already in use"
	for range 2 {
		if diff := cmp.Diff(want, fmt.Sprint(n.trySync(desired, addresses))); diff != "" {
			t.Errorf("error (-want +got):\n%s", diff)
		}
		n.expectServing("127.0.0.2:30000", "shop/web", 1)
		n.expectServing("127.0.0.1:30001", "shop/api", 2)
	}
	release()
	n.sync(desired, addresses)
	n.expectServing("127.0.0.1:30000", "shop/web", 1)
}

func TestEveryFailureIsNamed(t *testing.T) {
	n := newNode(t)
	n.occupy("127.0.0.2:30000")
	n.occupy("127.0.0.2:30001")
	err := n.trySync(checks{
		name("shop/web"): check(30000, 1), name("shop/api"): check(30000, 1), name("shop/db"): check(30001, 1),
	}, scopeOf("127.0.0.1", "127.0.0.2"))
	want := strings.Join([]string{
		"serve health checks of Service shop/web: over IPv4: port 30000 is the healthCheckNodePort of Service shop/api",
		"serve health checks of Service shop/api: listen tcp4 127.0.0.2:30000: bind: address already in use",
		"serve health checks of Service shop/db: listen tcp4 127.0.0.2:30001: bind: address already in use",
	}, "\n")
	if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
	n.expectServing("127.0.0.1:30000", "shop/api", 1)
	n.expectServing("127.0.0.1:30001", "shop/db", 1)
}

func TestAServerThatDiedIsStartedAgain(t *testing.T) {
	n := newNode(t)
	desired, addresses := checks{name("shop/web"): check(30000, 1)}, scopeOf("127.0.0.1")
	n.sync(desired, addresses)
	died := n.servers.servers[netip.MustParseAddrPort("127.0.0.1:30000")]
	if err := died.listener.Close(); err != nil {
		t.Fatal(err)
	}
	n.expectClosed("127.0.0.1:30000")
	n.sync(desired, addresses)
	n.expectServing("127.0.0.1:30000", "shop/web", 1)
}

func TestAfterCloseNothingIsServed(t *testing.T) {
	n := newNode(t)
	n.sync(checks{name("shop/web"): check(30000, 1)}, scopeOf("127.0.0.1"))
	n.servers.Close()
	n.servers.Close() // has no further effect
	n.expectClosed("127.0.0.1:30000")
}

func TestTwoHundredServices(t *testing.T) {
	n := newNode(t)
	desired := checks{}
	for i := range 200 {
		desired[name(fmt.Sprintf("shop/web-%d", i))] = selection.HealthCheck{
			Port: uint16(30000 + i), Endpoints: counts{model.IPv4: i, model.IPv6: i + 1},
		}
	}
	n.sync(desired, scopeOf("127.0.0.1", "127.0.0.2", "::1"))
	for i := range 200 {
		service := fmt.Sprintf("shop/web-%d", i)
		n.expectServing(fmt.Sprintf("127.0.0.2:%d", 30000+i), service, i)
		n.expectServing(fmt.Sprintf("[::1]:%d", 30000+i), service, i+1)
	}
	n.sync(nil, scopeOf("127.0.0.1", "127.0.0.2", "::1"))
	if got := len(n.servers.servers); got != 0 {
		t.Errorf("%d servers remain without a Service", got)
	}
}
