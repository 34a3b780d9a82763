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
	cluster := newSyncedCluster()
	c := cluster.newClient(t)
	c.subscribe(listeners, web)
	c.expect(listeners, web, "")
	c.subscribe(clusters, web)
	c.expect(clusters, web, "")
	c.subscribe(assignments, web)
	c.expect(assignments, web, "1 3 (a, 2) | 2 (b, 1)")
	c.expectNothing()

	cluster.addService("web", "zone *", []uint16{80}, "2@node-2/b 3@node-3/a")
	c.expect(assignments, web, "3 (a, 1) | 2 (b, 1)")
	cluster.addService("cart", "", []uint16{81, 82}, "")
	c.expectNothing() // the client has not subscribed to it

	c.subscribe(assignments, web, cart)
	c.expect(assignments, cart, "") // only the one that the client does not have
	c.subscribe(listeners, web, cart)
	c.expect(listeners, cart+" "+web, "") // all of them: a missing one would count as deleted
	c.expectNothing()

	cluster.remove("web")
	c.expect(clusters, "", "")
	c.expect(assignments, web, "")
	c.expect(listeners, cart, "")
	c.expectNothing()
	cluster.addService("web", "", []uint16{80}, "1@node-1/a")
	c.expect(clusters, web, "")
	c.expect(assignments, web, "1 (a, 1)")
	c.expect(listeners, cart+" "+web, "")
	c.expectNothing()
}

func TestNothingIsSentBeforeTheFirstSync(t *testing.T) {
	cluster := newTestCluster()
	c := cluster.newClient(t)
	c.subscribe(assignments, web)
	cluster.addService("web", "", []uint16{80}, "1@node-1/a")
	c.expectNothing()
	<-c.session.changed
	cluster.table.OnSynced(selection.SyncState{})
	<-c.session.changed
	c.expect(assignments, web, "1 (a, 1)")
}

func TestAResubscriptionGetsAResponse(t *testing.T) {
	cluster := newSyncedCluster()
	c := cluster.newClient(t)
	for range 3 {
		for k := range numKinds {
			c.subscribe(k, web)
		}
		c.expect(clusters, web, "")
		c.expect(assignments, web, "1 3 (a, 2) | 2 (b, 1)")
		c.expect(listeners, web, "")
		for k := range numKinds {
			if result := c.subscribe(k); len(result.removed) != 1 {
				t.Errorf("%d names are removed, want 1", len(result.removed))
			}
		}
		c.expectNothing()
	}
	if len(c.session.watched) != 0 || len(cluster.table.watchers) != 0 {
		t.Errorf("remaining watches %v of %v", c.session.watched, cluster.table.watchers)
	}
}

func TestANACKedResponseIsNotSentAgain(t *testing.T) {
	cluster := newSyncedCluster()
	c := cluster.newClient(t)
	c.subscribe(assignments, web)
	_, response, _ := c.session.next()
	nonce := read(t, response).nonce
	nack := request{typeURL: typeURLs[assignments], nonce: nonce, names: []string{web}, isNACK: true}
	if result, _ := c.session.handleRequest(nack); !result.isNACK || result.requestKind != assignments {
		t.Errorf("result of a rejection: %+v", result)
	}
	c.expectNothing()
	cluster.addService("web", "zone *", []uint16{80}, "1@node-1/a")
	c.expect(assignments, web, "1 (a, 1)")
}

func TestRequestWithOldNonceIsIgnored(t *testing.T) {
	cluster := newSyncedCluster()
	c := cluster.newClient(t)
	c.subscribe(assignments, web)
	old := c.nextResponse().nonce
	cluster.addService("web", "zone *", []uint16{80}, "1@node-1/a")
	_, second, _ := c.session.next()
	for _, nonce := range []string{old, "", "x", "99"} {
		result, _ := c.session.handleRequest(request{typeURL: typeURLs[assignments], nonce: nonce, names: []string{cart}})
		if len(result.added) > 0 || c.session.nameCount != 1 {
			t.Errorf("a request with nonce %q is processed: %+v", nonce, result)
		}
	}
	c.expectNothing()
	c.lastNonces[assignments] = read(t, second).nonce
	c.subscribe(assignments, web, cart)
	c.expect(assignments, cart, "7 (a, 1)")
}

func TestNewStreamGetsAResponseToAnyNonce(t *testing.T) {
	cluster := newSyncedCluster()
	c := cluster.newClient(t)
	c.lastNonces[clusters] = "17" // of another server's response
	c.subscribe(clusters, web)
	c.expect(clusters, web, "")
}

func TestOddRequestsGetNoResource(t *testing.T) {
	cluster := newSyncedCluster()
	for _, names := range [][]string{nil, {"*"}, {"nobody.shop:80"}, {"web"}, {"web.shop:9"}, {""}} {
		c := cluster.newClient(t)
		for k := range numKinds {
			result := c.subscribe(k, names...)
			if len(names) > 0 && len(result.unknownNames) != 1 {
				t.Errorf("%q: unknown names %q, want 1", names, result.unknownNames)
			}
			c.expect(k, "", "")
		}
		c.expectNothing()
	}
	c := cluster.newClient(t)
	routes := request{typeURL: "type.googleapis.com/envoy.config.route.v3.RouteConfiguration", names: []string{web}}
	if result, _ := c.session.handleRequest(routes); len(result.added) > 0 {
		t.Errorf("result of a request for routes: %+v", result)
	}
	c.expectNothing()
	edsClient := &client{t: t, session: cluster.newSession(typeURLs[assignments])}
	edsClient.session.handleRequest(request{names: []string{web}})
	edsClient.expect(assignments, web, "1 3 (a, 2) | 2 (b, 1)")
}

// TestChangesAreCombinedInOneResponse: a client that has not read for a long time gets the newest state, once.
func TestChangesAreCombinedInOneResponse(t *testing.T) {
	cluster := newSyncedCluster()
	c := cluster.newClient(t)
	c.subscribe(assignments, web)
	c.nextResponse()
	for i := range 100 {
		cluster.addService("web", "zone *", []uint16{80}, fmt.Sprintf("%d@node-1/a", 1+i))
	}
	c.expect(assignments, web, "100 (a, 1)")
	c.expectNothing()
}

// TestAnUnresponsiveClientIsSentNothingMore: the limit concerns responses of the same kind.
func TestAnUnresponsiveClientIsSentNothingMore(t *testing.T) {
	cluster := newSyncedCluster()
	c := cluster.newClient(t)
	c.subscribe(assignments, web)
	_, response, _ := c.session.next()
	cluster.addService("web", "zone *", []uint16{80}, "1@node-1/a")
	c.expectNothing()
	c.subscribe(clusters, web)
	c.expect(clusters, web, "")
	c.lastNonces[assignments] = read(t, response).nonce
	c.subscribe(assignments, web)
	c.expect(assignments, web, "1 (a, 1)")
}

func TestPortsAreIndependent(t *testing.T) {
	cluster := newSyncedCluster()
	c := cluster.newClient(t)
	c.subscribe(assignments, "cart.shop:82")
	c.expect(assignments, "cart.shop:82", "7 (a, 1)")
	cluster.addService("cart", "", []uint16{81}, "7@node-1/a")
	c.expect(assignments, "cart.shop:82", "")
	c.expectNothing()
}

// TestManyAssignmentsAreSentInParts: no response exceeds what clients accept, and each assignment is sent exactly once.
func TestManyAssignmentsAreSentInParts(t *testing.T) {
	cluster := newTestCluster()
	var names []string
	for i := range 200 {
		var endpoints strings.Builder
		for e := range 250 {
			fmt.Fprintf(&endpoints, "%d@node-2/b ", e)
		}
		name := fmt.Sprint("web-", i)
		cluster.addService(name, "", []uint16{80}, endpoints.String())
		names = append(names, name+".shop:80")
	}
	cluster.table.OnSynced(selection.SyncState{})
	c := cluster.newClient(t)
	c.subscribe(assignments, names...)
	sent, responses := map[string]int{}, 0
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
			sent[name]++
		}
		c.lastNonces[assignments] = got.nonce
		responses++
		c.subscribe(assignments, names...)
	}
	if len(sent) != len(names) || responses < 2 {
		t.Errorf("%d of %d names are sent, in %d responses", len(sent), len(names), responses)
	}
	for name, times := range sent {
		if times != 1 {
			t.Errorf("%s is sent %d times", name, times)
		}
	}
}
