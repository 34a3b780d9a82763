package xds

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

const (
	web  = "web.shop.svc.cluster.local:80"
	cart = "cart.shop:81"
)

// newSyncedCluster returns a cluster with two Services, whose table is open for clients.
func newSyncedCluster() *testCluster {
	t := newTestCluster()
	t.addService("web", "zone *", []uint16{80}, "1@node-1/a 2@node-2/b 3@node-3/a")
	t.addService("cart", "", []uint16{81, 82}, "7@node-1/a")
	t.table.OnSynced(selection.SyncState{})
	return t
}

func TestAClientIsUpdatedStepByStep(t *testing.T) {
	town := newSyncedCluster()
	c := town.client(t)
	c.subscribe(listeners, web)
	c.expect(listeners, web, "")
	c.subscribe(clusters, web)
	c.expect(clusters, web, "")
	c.subscribe(assignments, web)
	c.expect(assignments, web, "1 3 (a, 2) | 2 (b, 1)")
	c.expectNothing()

	town.addService("web", "zone *", []uint16{80}, "2@node-2/b 3@node-3/a")
	c.expect(assignments, web, "3 (a, 1) | 2 (b, 1)")
	town.addService("cart", "", []uint16{81, 82}, "")
	c.expectNothing() // the client has not subscribed to it

	c.subscribe(assignments, web, cart)
	c.expect(assignments, cart, "") // only the one that the client does not have
	c.subscribe(listeners, web, cart)
	c.expect(listeners, cart+" "+web, "") // all of them: a missing one would count as deleted
	c.expectNothing()

	town.remove("web")
	c.expect(clusters, "", "")
	c.expect(assignments, web, "")
	c.expect(listeners, cart, "")
	c.expectNothing()
	town.addService("web", "", []uint16{80}, "1@node-1/a")
	c.expect(clusters, web, "")
	c.expect(assignments, web, "1 (a, 1)")
	c.expect(listeners, cart+" "+web, "")
	c.expectNothing()
}

func TestNothingIsSentBeforeTheFirstSync(t *testing.T) {
	town := newTestCluster()
	c := town.client(t)
	c.subscribe(assignments, web)
	town.addService("web", "", []uint16{80}, "1@node-1/a")
	c.expectNothing()
	<-c.session.changed
	town.table.OnSynced(selection.SyncState{})
	<-c.session.changed
	c.expect(assignments, web, "1 (a, 1)")
}

func TestAResubscriptionGetsAResponse(t *testing.T) {
	town := newSyncedCluster()
	c := town.client(t)
	for range 3 {
		for of := range kinds {
			c.subscribe(of, web)
		}
		c.expect(clusters, web, "")
		c.expect(assignments, web, "1 3 (a, 2) | 2 (b, 1)")
		c.expect(listeners, web, "")
		for of := range kinds {
			if result := c.subscribe(of); len(result.removed) != 1 {
				t.Errorf("%d names are removed, want 1", len(result.removed))
			}
		}
		c.expectNothing()
	}
	if len(c.session.watched) != 0 || len(town.table.waiting) != 0 {
		t.Errorf("remaining watches %v of %v", c.session.watched, town.table.waiting)
	}
}

func TestANACKedResponseIsNotSentAgain(t *testing.T) {
	town := newSyncedCluster()
	c := town.client(t)
	c.subscribe(assignments, web)
	_, response, _ := c.session.next()
	nonce := read(t, response).nonce
	refusal := request{typeURL: typeURLs[assignments], nonce: nonce, names: []string{web}, isNACK: true}
	if result, _ := c.session.handleRequest(refusal); !result.isNACK || result.rejectedKind != assignments {
		t.Errorf("result of a rejection: %+v", result)
	}
	c.expectNothing()
	town.addService("web", "zone *", []uint16{80}, "1@node-1/a")
	c.expect(assignments, web, "1 (a, 1)")
}

func TestRequestWithOldNonceIsIgnored(t *testing.T) {
	town := newSyncedCluster()
	c := town.client(t)
	c.subscribe(assignments, web)
	old := c.lastResponse().nonce
	town.addService("web", "zone *", []uint16{80}, "1@node-1/a")
	_, second, _ := c.session.next()
	for _, nonce := range []string{old, "", "x", "99"} {
		result, _ := c.session.handleRequest(request{typeURL: typeURLs[assignments], nonce: nonce, names: []string{cart}})
		if len(result.added) > 0 || c.session.names != 1 {
			t.Errorf("a request with nonce %q is processed: %+v", nonce, result)
		}
	}
	c.expectNothing()
	c.last[assignments] = read(t, second).nonce
	c.subscribe(assignments, web, cart)
	c.expect(assignments, cart, "7 (a, 1)")
}

func TestNewStreamGetsAResponseToAnyNonce(t *testing.T) {
	town := newSyncedCluster()
	c := town.client(t)
	c.last[clusters] = "17" // of another server's response
	c.subscribe(clusters, web)
	c.expect(clusters, web, "")
}

func TestOddRequestsGetNoResource(t *testing.T) {
	town := newSyncedCluster()
	for _, names := range [][]string{nil, {"*"}, {"nobody.shop:80"}, {"web"}, {"web.shop:9"}, {""}} {
		c := town.client(t)
		for of := range kinds {
			result := c.subscribe(of, names...)
			if len(names) > 0 && len(result.unknownNames) != 1 {
				t.Errorf("%q: unknown names %q, want 1", names, result.unknownNames)
			}
			c.expect(of, "", "")
		}
		c.expectNothing()
	}
	c := town.client(t)
	routes := request{typeURL: "type.googleapis.com/envoy.config.route.v3.RouteConfiguration", names: []string{web}}
	if result, _ := c.session.handleRequest(routes); len(result.added) > 0 {
		t.Errorf("result of a request for routes: %+v", result)
	}
	c.expectNothing()
	only := &client{t: t, session: town.session(typeURLs[assignments])}
	only.session.handleRequest(request{names: []string{web}})
	only.expect(assignments, web, "1 3 (a, 2) | 2 (b, 1)")
}

// TestChangesAreCombinedInOneResponse: a client that has not read for a long time gets the newest state, once.
func TestChangesAreCombinedInOneResponse(t *testing.T) {
	town := newSyncedCluster()
	c := town.client(t)
	c.subscribe(assignments, web)
	c.lastResponse()
	for i := range 100 {
		town.addService("web", "zone *", []uint16{80}, fmt.Sprintf("%d@node-1/a", 1+i))
	}
	c.expect(assignments, web, "100 (a, 1)")
	c.expectNothing()
}

// TestAnUnresponsiveClientIsSentNothingMore: the limit concerns responses of the same kind.
func TestAnUnresponsiveClientIsSentNothingMore(t *testing.T) {
	town := newSyncedCluster()
	c := town.client(t)
	c.subscribe(assignments, web)
	_, response, _ := c.session.next()
	town.addService("web", "zone *", []uint16{80}, "1@node-1/a")
	c.expectNothing()
	c.subscribe(clusters, web)
	c.expect(clusters, web, "")
	c.last[assignments] = read(t, response).nonce
	c.subscribe(assignments, web)
	c.expect(assignments, web, "1 (a, 1)")
}

func TestPortsAreIndependent(t *testing.T) {
	town := newSyncedCluster()
	c := town.client(t)
	c.subscribe(assignments, "cart.shop:82")
	c.expect(assignments, "cart.shop:82", "7 (a, 1)")
	town.addService("cart", "", []uint16{81}, "7@node-1/a")
	c.expect(assignments, "cart.shop:82", "")
	c.expectNothing()
}

// TestManyAssignmentsAreSentInParts: no response exceeds what clients accept, and each assignment is sent exactly once.
func TestManyAssignmentsAreSentInParts(t *testing.T) {
	town := newTestCluster()
	var names []string
	for i := range 200 {
		var endpoints strings.Builder
		for e := range 250 {
			fmt.Fprintf(&endpoints, "%d@node-2/b ", e)
		}
		name := fmt.Sprint("web-", i)
		town.addService(name, "", []uint16{80}, endpoints.String())
		names = append(names, name+".shop:80")
	}
	town.table.OnSynced(selection.SyncState{})
	c := town.client(t)
	c.subscribe(assignments, names...)
	told, parts := map[string]int{}, 0
	for {
		_, response, _ := c.session.next()
		if response == nil {
			break
		}
		if len(response) > maxResponse+1<<16 {
			t.Errorf("a response has %d bytes", len(response))
		}
		got := read(t, response)
		for _, name := range got.names {
			told[name]++
		}
		c.last[assignments] = got.nonce
		parts++
		c.subscribe(assignments, names...)
	}
	if len(told) != len(names) || parts < 2 {
		t.Errorf("%d of %d names are sent, in %d responses", len(told), len(names), parts)
	}
	for name, times := range told {
		if times != 1 {
			t.Errorf("%s is sent %d times", name, times)
		}
	}
}
