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

// openTown is one with two Services, in which clients are answered.
func openTown() *town {
	t := newTown()
	t.serve("web", "zone *", []uint16{80}, "1@node-1/a 2@node-2/b 3@node-3/a")
	t.serve("cart", "", []uint16{81, 82}, "7@node-1/a")
	t.table.Synced(selection.Sync{})
	return t
}

func TestAClientIsToldStepByStep(t *testing.T) {
	town := openTown()
	c := town.client(t)
	c.ask(listeners, web)
	c.wants(listeners, web, "")
	c.ask(clusters, web)
	c.wants(clusters, web, "")
	c.ask(assignments, web)
	c.wants(assignments, web, "1 3 (a, 2) | 2 (b, 1)")
	c.wantsNothing()

	town.serve("web", "zone *", []uint16{80}, "2@node-2/b 3@node-3/a")
	c.wants(assignments, web, "3 (a, 1) | 2 (b, 1)")
	town.serve("cart", "", []uint16{81, 82}, "")
	c.wantsNothing() // nobody asked

	c.ask(assignments, web, cart)
	c.wants(assignments, cart, "") // and not what it knows
	c.ask(listeners, web, cart)
	c.wants(listeners, cart+" "+web, "") // all of them: a missing one would count as gone
	c.wantsNothing()

	town.remove("web")
	c.wants(clusters, "", "")
	c.wants(assignments, web, "")
	c.wants(listeners, cart, "")
	c.wantsNothing()
	town.serve("web", "", []uint16{80}, "1@node-1/a")
	c.wants(clusters, web, "")
	c.wants(assignments, web, "1 (a, 1)")
	c.wants(listeners, cart+" "+web, "")
	c.wantsNothing()
}

func TestNobodyIsToldAnythingBeforeTheFirstSync(t *testing.T) {
	town := newTown()
	c := town.client(t)
	c.ask(assignments, web)
	town.serve("web", "", []uint16{80}, "1@node-1/a")
	c.wantsNothing()
	<-c.session.news
	town.table.Synced(selection.Sync{})
	<-c.session.news
	c.wants(assignments, web, "1 (a, 1)")
}

func TestWhoUnsubscribesAndComesBackIsAnsweredAgain(t *testing.T) {
	town := openTown()
	c := town.client(t)
	for range 3 {
		for of := range kinds {
			c.ask(of, web)
		}
		c.wants(clusters, web, "")
		c.wants(assignments, web, "1 3 (a, 2) | 2 (b, 1)")
		c.wants(listeners, web, "")
		for of := range kinds {
			if result := c.ask(of); len(result.removed) != 1 {
				t.Errorf("%d names are removed", len(result.removed))
			}
		}
		c.wantsNothing()
	}
	if len(c.session.waits) != 0 || len(town.table.waiting) != 0 {
		t.Errorf("%v is waited for, by %v", c.session.waits, town.table.waiting)
	}
}

func TestWhatAClientRefusesIsNotSentAgain(t *testing.T) {
	town := openTown()
	c := town.client(t)
	c.ask(assignments, web)
	_, response, _ := c.session.next()
	nonce := read(t, response).nonce
	refusal := request{typeURL: typeURLs[assignments], nonce: nonce, names: []string{web}, isRefusal: true}
	if result, _ := c.session.take(refusal); !result.isRefusal || result.refused != assignments {
		t.Errorf("a refusal is taken for %+v", result)
	}
	c.wantsNothing()
	town.serve("web", "zone *", []uint16{80}, "1@node-1/a")
	c.wants(assignments, web, "1 (a, 1)")
}

func TestARequestThatCrossedAResponseIsIgnored(t *testing.T) {
	town := openTown()
	c := town.client(t)
	c.ask(assignments, web)
	old := c.told().nonce
	town.serve("web", "zone *", []uint16{80}, "1@node-1/a")
	_, second, _ := c.session.next()
	for _, nonce := range []string{old, "", "x", "99"} {
		result, _ := c.session.take(request{typeURL: typeURLs[assignments], nonce: nonce, names: []string{cart}})
		if len(result.added) > 0 || c.session.names != 1 {
			t.Errorf("a request with nonce %q is taken in: %+v", nonce, result)
		}
	}
	c.wantsNothing()
	c.last[assignments] = read(t, second).nonce
	c.ask(assignments, web, cart)
	c.wants(assignments, cart, "7 (a, 1)")
}

func TestANewStreamIsAnsweredWhateverItClaims(t *testing.T) {
	town := openTown()
	c := town.client(t)
	c.last[clusters] = "17" // of another server
	c.ask(clusters, web)
	c.wants(clusters, web, "")
}

func TestOddRequestsAreAnsweredWithNothing(t *testing.T) {
	town := openTown()
	for _, names := range [][]string{nil, {"*"}, {"nobody.shop:80"}, {"web"}, {"web.shop:9"}, {""}} {
		c := town.client(t)
		for of := range kinds {
			result := c.ask(of, names...)
			if len(names) > 0 && len(result.wrong) != 1 {
				t.Errorf("%q: %q are wrong", names, result.wrong)
			}
			c.wants(of, "", "")
		}
		c.wantsNothing()
	}
	c := town.client(t)
	routes := request{typeURL: "type.googleapis.com/envoy.config.route.v3.RouteConfiguration", names: []string{web}}
	if result, _ := c.session.take(routes); len(result.added) > 0 {
		t.Errorf("routes are answered: %+v", result)
	}
	c.wantsNothing()
	only := &client{t: t, session: town.session(typeURLs[assignments])}
	only.session.take(request{names: []string{web}})
	only.wants(assignments, web, "1 3 (a, 2) | 2 (b, 1)")
}

// TestChangesMeetInOneResponse: a client that has not read for long gets the newest state, once.
func TestChangesMeetInOneResponse(t *testing.T) {
	town := openTown()
	c := town.client(t)
	c.ask(assignments, web)
	c.told()
	for i := range 100 {
		town.serve("web", "zone *", []uint16{80}, fmt.Sprintf("%d@node-1/a", 1+i))
	}
	c.wants(assignments, web, "100 (a, 1)")
	c.wantsNothing()
}

// TestAClientThatIsSilentIsToldNothingMore, of that kind.
func TestAClientThatIsSilentIsToldNothingMore(t *testing.T) {
	town := openTown()
	c := town.client(t)
	c.ask(assignments, web)
	_, response, _ := c.session.next()
	town.serve("web", "zone *", []uint16{80}, "1@node-1/a")
	c.wantsNothing()
	c.ask(clusters, web)
	c.wants(clusters, web, "")
	c.last[assignments] = read(t, response).nonce
	c.ask(assignments, web)
	c.wants(assignments, web, "1 (a, 1)")
}

func TestAPortIsItsOwn(t *testing.T) {
	town := openTown()
	c := town.client(t)
	c.ask(assignments, "cart.shop:82")
	c.wants(assignments, "cart.shop:82", "7 (a, 1)")
	town.serve("cart", "", []uint16{81}, "7@node-1/a")
	c.wants(assignments, "cart.shop:82", "")
	c.wantsNothing()
}

// TestManyAssignmentsAreSentInParts, none of which is larger than clients take, and each once.
func TestManyAssignmentsAreSentInParts(t *testing.T) {
	town := newTown()
	var names []string
	for i := range 200 {
		var endpoints strings.Builder
		for e := range 250 {
			fmt.Fprintf(&endpoints, "%d@node-2/b ", e)
		}
		name := fmt.Sprint("web-", i)
		town.serve(name, "", []uint16{80}, endpoints.String())
		names = append(names, name+".shop:80")
	}
	town.table.Synced(selection.Sync{})
	c := town.client(t)
	c.ask(assignments, names...)
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
		c.ask(assignments, names...)
	}
	if len(told) != len(names) || parts < 2 {
		t.Errorf("%d of %d names are told, in %d parts", len(told), len(names), parts)
	}
	for name, times := range told {
		if times != 1 {
			t.Errorf("%s is told %d times", name, times)
		}
	}
}
