//go:build linux

package conntrack

import (
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// entries reads all UDP entries.
func (g *ground) entries() []entry {
	g.t.Helper()
	var entries []entry
	if err := g.conn.socket.dump(g.t.Context(), g.family, func(e entry) { entries = append(entries, e) }); err != nil {
		g.t.Fatalf("dumping: %v", err)
	}
	return entries
}

func TestWhatIsReadIsWhatIsThere(t *testing.T) {
	forEachFamily(t, func(t *testing.T, g *ground) {
		g.insert(model.UDP, g.elsewhere, 1000, 20, g.at(g.service, servicePort), g.at(g.a, endpointPort))
		want := map[flow]bool{{client: g.elsewhere, dialled: g.at(g.service, servicePort), answerer: g.at(g.a, endpointPort)}: true}
		entries := g.entries()
		if len(entries) != 20 {
			t.Fatalf("%d entries were read, want 20", len(entries))
		}
		for _, e := range entries {
			if !want[e.flow] || e.protocol != model.UDP {
				t.Errorf("read %s, which the test did not make", e)
			}
		}
	})
}

func TestTheKernelHandsOverUDPAlone(t *testing.T) {
	forEachFamily(t, func(t *testing.T, g *ground) {
		for i, protocol := range model.Protocols {
			g.insert(protocol, g.elsewhere, 1000, 10*(i+1), g.at(g.service, servicePort), g.at(g.a, endpointPort))
		}
		messages, err := g.conn.socket.dumpRequest(g.family).Execute(unix.NETLINK_NETFILTER, 0)
		if err != nil {
			t.Fatalf("dumping: %v", err)
		}
		if len(messages) != 20 {
			t.Errorf("of 10 entries of TCP, 20 of UDP and 30 of SCTP the kernel handed over %d, want 20", len(messages))
		}
	})
}

func TestAnEntryThatVanishedBeforeItIsDeletedIsNoError(t *testing.T) {
	forEachFamily(t, func(t *testing.T, g *ground) {
		g.insert(model.UDP, g.elsewhere, 1000, 2, g.at(g.service, servicePort), g.at(g.a, endpointPort))
		for _, e := range g.entries() {
			for _, want := range []bool{true, false} {
				if deleted, err := g.conn.socket.delete(g.family, e); deleted != want || err != nil {
					t.Errorf("deleting %s: %t, %v; want %t", e, deleted, err, want)
				}
			}
		}
		if got := g.count(model.UDP); got != 0 {
			t.Errorf("%d entries are left, want none", got)
		}
	})
}

func TestAnEntryThatTookThePlaceOfAStaleOneStays(t *testing.T) {
	forEachFamily(t, func(t *testing.T, g *ground) {
		client, service := g.at(g.elsewhere, 1000), g.at(g.service, servicePort)
		a, b := g.at(g.a, endpointPort), g.at(g.b, endpointPort)
		for name, place := range map[string]struct{ client, dialled, answerer netip.AddrPort }{
			"a flow of the same client to the right endpoint":  {client, service, b},
			"a flow that nothing translates":                   {client, service, service},
			"a flow from the endpoint to the client":           {a, client, client},
			"the client's flow to the endpoint's own address":  {client, a, a},
			"the same endpoint through another frontend":       {client, g.at(g.ported, nodePort), a},
			"a flow from the endpoint that is translated, too": {a, service, client},
		} {
			if err := g.tryInsert(model.UDP, client, service, a); err != nil {
				t.Fatal(err)
			}
			stale := g.entries()[0]
			if deleted, err := g.conn.socket.delete(g.family, stale); !deleted || err != nil {
				t.Fatalf("deleting %s: %t, %v", stale, deleted, err)
			}
			if err := g.tryInsert(model.UDP, place.client, place.dialled, place.answerer); err != nil {
				t.Fatal(err)
			}
			if deleted, err := g.conn.socket.delete(g.family, stale); deleted || err != nil {
				t.Errorf("%s: deleting the stale entry that it replaced gave %t, %v; want nothing deleted", name, deleted, err)
			}
			if got := g.count(model.UDP); got != 1 {
				t.Errorf("%s: %d entries are there, want it alone", name, got)
			}
			for _, e := range g.entries() {
				_, _ = g.conn.socket.delete(g.family, e)
			}
		}
	})
}

func TestTheRestOfAnAbandonedDumpDisturbsNothing(t *testing.T) {
	forEachFamily(t, func(_ *testing.T, g *ground) {
		// Far more than one datagram holds, so that the dump is still going on.
		g.insert(model.UDP, g.elsewhere, 1000, 3000, g.at(g.service, servicePort), g.at(g.a, endpointPort))
		socket := g.conn.socket.handle
		abandoned := g.conn.socket.dumpRequest(g.family)
		if err := socket.Socket.Send(abandoned); err != nil {
			g.t.Fatal(err)
		}
		g.forget(3000, g.flows(g.service, servicePort))
	})
}

func TestNothingIsLeftOpen(t *testing.T) {
	g := newGround(t, sites[0])
	before := openFiles(t)
	for range 10 {
		var c *Conn
		var err error
		g.namespace.Do(func() { c, err = Dial() })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Forget(t.Context(), g.flows(g.service, servicePort), g.scope()); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Forget(t.Context(), g.flows(g.service, servicePort), g.scope()); err == nil {
			t.Error("a closed connection forgets without an error")
		}
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d files are open, there were %d before", after, before)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
