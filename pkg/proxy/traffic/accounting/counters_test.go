//go:build linux

package accounting

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/serviceindex"
)

const mib = 1 << 20

var toB = &serviceindex.Attribution{
	Service: web, Placement: serviceindex.Placement{Proximity: serviceindex.OtherZone, Tier: "*", Zone: "b", OwnZone: "a"},
}

// sum returns the total of all counts.
func sum(c *Counters) (all Count) {
	c.Node(func(row Row) { all.add(row.Count) })
	return all
}

// step is an operation on Counters with one entry.
type step func(*Counters, conntrack.Entry)

func onDestroy(sent, received uint64) step {
	return func(c *Counters, e conntrack.Entry) {
		e = withTraffic(e, sent, received)
		c.OnDestroy(&e, toB, start)
	}
}

func beginDump(c *Counters, _ conntrack.Entry) { c.BeginDump() }

func onEntry(sent, received uint64) step {
	return func(c *Counters, e conntrack.Entry) {
		e = withTraffic(e, sent, received)
		c.OnEntry(&e, toB, toB, start)
	}
}

func endDumpAfter(after time.Duration) step {
	return func(c *Counters, _ conntrack.Entry) {
		c.EndDump(true, func(model.ObjectName) bool { return true }, start.Add(after))
	}
}

func endDump(c *Counters, e conntrack.Entry) { endDumpAfter(0)(c, e) }

func truncateDump(c *Counters, _ conntrack.Entry) {
	c.EndDump(false, func(model.ObjectName) bool { return true }, start)
}

// dumpWith is a dump that has the entry.
func dumpWith(sent, received uint64) step {
	return func(c *Counters, e conntrack.Entry) { beginDump(c, e); onEntry(sent, received)(c, e); endDump(c, e) }
}

// dumpWithout is a dump without the entry.
func dumpWithout(c *Counters, e conntrack.Entry) { beginDump(c, e); endDump(c, e) }

func withState(status conntrack.Status, state uint8, do step) step {
	return func(c *Counters, e conntrack.Entry) { e.Status, e.State = status, state; do(c, e) }
}

func with(edit func(*conntrack.Entry), do step) step {
	return func(c *Counters, e conntrack.Entry) { edit(&e); do(c, e) }
}

// withID uses another entry of the same connection.
func withID(id uint32, do step) step { return with(func(e *conntrack.Entry) { e.ID = id }, do) }

func withProtocol(protocol model.Protocol, do step) step {
	return with(func(e *conntrack.Entry) { e.Protocol = protocol }, do)
}

// withReplyPackets uses an entry with packets from the endpoint.
func withReplyPackets(packets uint64, do step) step {
	return with(func(e *conntrack.Entry) { e.Received.Packets = packets }, do)
}

func withoutCounters(do step) step { return with(func(e *conntrack.Entry) { e.IsCounted = false }, do) }

func connectionCount(connections, sent, received uint64) Count {
	return Count{Connections: connections, Traffic: Traffic{sent, received}}
}

func TestConnectionsAreCounted(t *testing.T) {
	for name, test := range map[string]struct {
		steps []step
		want  Count
	}{
		"at its end":                  {[]step{dumpWithout, onDestroy(10, 20)}, connectionCount(1, 10, 20)},
		"nothing before its end":      {[]step{dumpWithout, dumpWith(10, 20)}, Count{}},
		"once, although dumps had it": {[]step{dumpWithout, dumpWith(10, 20), onDestroy(11, 21)}, connectionCount(1, 11, 21)},
		"incrementally if it is long": {
			[]step{dumpWithout, dumpWith(2*mib, 5), dumpWith(3*mib, 6)}, connectionCount(1, 3*mib, 6),
		},
		"a long one, and the rest at its end": {
			[]step{dumpWithout, dumpWith(2*mib, 5), dumpWith(3*mib, 6), onDestroy(4*mib, 7)}, connectionCount(1, 4*mib, 7),
		},
		"its traffic since the start":           {[]step{dumpWith(5*mib, 10), dumpWith(7*mib, 11)}, connectionCount(0, 2*mib, 1)},
		"its traffic from the start to its end": {[]step{dumpWith(5*mib, 10), onDestroy(7*mib, 11)}, connectionCount(0, 2*mib, 1)},
		"a small one from before the start, completely": {
			[]step{dumpWith(10, 20), onDestroy(11, 21)}, connectionCount(1, 11, 21),
		},
		"a long one that was closed before the start": {
			[]step{withState(replied, conntrack.TCPTimeWait, dumpWith(5*mib, 1)),
				withState(replied, conntrack.TCPTimeWait, onDestroy(5*mib, 1))}, Count{},
		},
		"nothing of a long one that ends during the first dump": {[]step{beginDump, onDestroy(5*mib, 1), endDump}, Count{}},
		"once if it ended before the dump delivers it": {
			[]step{dumpWithout, beginDump, onDestroy(5*mib, 1), onEntry(5*mib, 1), endDump}, connectionCount(1, 5*mib, 1),
		},
		"once if a dump delivers it before its end": {
			[]step{dumpWithout, beginDump, onEntry(5*mib, 1), onDestroy(6*mib, 1), endDump}, connectionCount(1, 6*mib, 1),
		},
		"one whose event follows a dump without it": {
			[]step{dumpWithout, dumpWith(5*mib, 1), dumpWithout, onDestroy(6*mib, 1)}, connectionCount(1, 6*mib, 1),
		},
		"one whose event was lost": {
			[]step{dumpWithout, dumpWith(5*mib, 1), dumpWithout, beginDump, endDumpAfter(3 * time.Minute)}, connectionCount(1, 5*mib, 1),
		},
		"its traffic after a reset of its counters": {
			[]step{dumpWithout, dumpWith(5*mib, 9*mib), onDestroy(7, 8)}, connectionCount(1, 5*mib+7, 9*mib+8),
		},
		"its traffic after a reset of its counters, in a dump": {
			[]step{dumpWithout, dumpWith(5*mib, 9*mib), dumpWith(6*mib, 8), dumpWith(7*mib, 9)}, connectionCount(1, 12*mib, 9*mib+9),
		},
		"truncated dumps drop nothing": {
			[]step{dumpWithout, dumpWith(5*mib, 1), beginDump, truncateDump, beginDump, truncateDump, onDestroy(6*mib, 1)},
			connectionCount(1, 6*mib, 1),
		},
		"a closed one counts at its end": {
			[]step{dumpWithout, withState(replied, conntrack.TCPTimeWait, dumpWith(5*mib, 1))}, Count{},
		},
		"a later one of the same port": {[]step{dumpWithout, onDestroy(10, 20), withID(2, onDestroy(1, 2))}, connectionCount(2, 11, 22)},
		"UDP flows, one for each entry": {
			[]step{dumpWithout, withProtocol(model.UDP, onDestroy(10, 20)), withID(2, withProtocol(model.UDP, onDestroy(1, 2)))},
			connectionCount(2, 11, 22),
		},
		"a connection attempt that was refused": {
			[]step{dumpWithout, withState(unreplied, conntrack.TCPClose, withReplyPackets(1, onDestroy(60, 40)))},
			Count{Refused: 1, Traffic: Traffic{60, 40}},
		},
		"a connection attempt that was refused, without packet counters": {
			[]step{dumpWithout, withState(unreplied, conntrack.TCPClose, withoutCounters(onDestroy(0, 0)))}, Count{Refused: 1},
		},
		"a connection attempt that its client reset": {
			[]step{dumpWithout, withState(unreplied, conntrack.TCPClose, onDestroy(100, 0))}, Count{Unreplied: 1, Traffic: Traffic{Sent: 100}},
		},
		"an association that was refused": {
			[]step{dumpWithout, withState(replied, conntrack.SCTPClosed, withProtocol(model.SCTP, onDestroy(60, 40)))},
			Count{Refused: 1, Traffic: Traffic{60, 40}},
		},
		"an association": {
			[]step{dumpWithout, withState(replied|conntrack.Assured, conntrack.SCTPClosed, withProtocol(model.SCTP, onDestroy(60, 40)))},
			connectionCount(1, 60, 40),
		},
		"an unreplied connection attempt": {
			[]step{dumpWithout, withState(unreplied, conntrack.TCPSynSent, onDestroy(60, 0))}, Count{Unreplied: 1, Traffic: Traffic{Sent: 60}},
		},
		"in one direction": {
			[]step{dumpWithout, withState(unreplied, 0, dumpWith(2*mib, 0)), withState(unreplied, 0, onDestroy(3*mib, 0))},
			Count{Unreplied: 1, Traffic: Traffic{Sent: 3 * mib}},
		},
		"in one direction at first": {
			[]step{dumpWithout, withState(unreplied, 0, dumpWith(2*mib, 0)), dumpWith(3*mib, 5), onDestroy(3*mib, 6)}, connectionCount(1, 3*mib, 6),
		},
		"no translation": {[]step{dumpWithout, withState(conntrack.SeenReply, conntrack.TCPEstablished, onDestroy(10, 20))}, Count{}},
		"no counters":    {[]step{dumpWithout, onDestroy(0, 0)}, connectionCount(1, 0, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			c := NewCounters(Settings{})
			for _, do := range test.steps {
				do(c, entry("10.0.1.9:1", "10.96.0.1:80", "10.0.3.1:8080"))
			}
			if got := sum(c); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

// By its DESTROY event alone, another program's connection looks like ours, or ours like another program's.
func TestADumpOverridesADestroyEvent(t *testing.T) {
	ours := entry("10.0.1.9:1", "192.0.2.1:30080", "10.0.3.1:8080")
	for name, test := range map[string]struct {
		inDump, atEnd *serviceindex.Attribution
		bytes         uint64
		want          Count
		missed        Missed
	}{
		"another program's":           {nil, toB, 10, Count{}, Missed{OtherProgram: 1}},
		"another program's, and long": {nil, toB, 4 * mib, Count{}, Missed{OtherProgram: 1}},
		"ours":                        {toB, nil, 10, connectionCount(1, 10, 0), Missed{}},
		"ours, and long":              {toB, nil, 4 * mib, connectionCount(1, 4*mib, 0), Missed{}},
		"ours, of another Service":    {toB, &serviceindex.Attribution{Service: api}, 10, connectionCount(1, 10, 0), Missed{}},
	} {
		t.Run(name, func(t *testing.T) {
			c := NewCounters(Settings{})
			dump := func(bytes uint64) {
				c.BeginDump()
				e := withTraffic(ours, bytes, 0)
				c.OnEntry(&e, test.inDump, test.atEnd, start)
				c.EndDump(true, func(model.ObjectName) bool { return true }, start)
			}
			c.BeginDump()
			c.EndDump(true, func(model.ObjectName) bool { return true }, start)
			dump(test.bytes / 2)
			dump(test.bytes)
			e := withTraffic(ours, test.bytes, 0)
			c.OnDestroy(&e, test.atEnd, start)
			if got, state := sum(c), c.State(); got != test.want || state != (State{Missed: test.missed}) {
				t.Errorf("got %+v and %+v, want %+v and %+v", got, state, test.want, test.missed)
			}
		})
	}
}

// Bytes are missed if counters were reset or did not exist.
func TestLostEventsAreReported(t *testing.T) {
	c, e := NewCounters(Settings{}), entry("10.0.1.9:1", "10.96.0.1:80", "10.0.3.1:8080")
	for _, do := range []step{
		dumpWithout, dumpWith(5*mib, 0), dumpWith(2*mib, 0), onDestroy(1, 0), withID(2, withoutCounters(onDestroy(0, 0))),
		withID(3, dumpWith(2*mib, 0)),
	} {
		do(c, e)
	}
	if want := (Missed{CountersReset: 2, NoCounters: 1}); c.State().Missed != want {
		t.Errorf("got %+v, want %+v", c.State().Missed, want)
	}
}

func TestConnectionsOfOtherProgramsAreMissed(t *testing.T) {
	c := NewCounters(Settings{})
	c.BeginDump()
	c.EndDump(true, nil, start)
	translated, plain := entry("10.0.1.9:1", "192.0.2.1:8080", "10.0.3.1:8080"), entry("10.0.1.9:1", "10.0.3.1:8080", "10.0.3.1:8080")
	plain.Status = conntrack.SeenReply
	c.OnDestroy(&translated, nil, start)
	c.OnDestroy(&plain, nil, start)
	if got := c.State(); got != (State{Missed: Missed{OtherProgram: 1}}) || sum(c) != (Count{}) {
		t.Errorf("got %+v", got)
	}
}

// kernelFlow is a connection in the generator.
type kernelFlow struct {
	entry  conntrack.Entry
	inDump bool
}

// generator simulates a kernel that reports its connections. DESTROY events come in order, but late. In a dump, each
// entry is read at its own time and delivered later.
type generator struct {
	random   *rand.Rand
	counters *Counters
	alive    []*kernelFlow
	events   []conntrack.Entry // events in flight
	dumped   []conntrack.Entry // entries read and in flight
	inDump   bool
	lastID   uint32
	want     Count
	now      time.Time
}

func (g *generator) step() {
	g.now = g.now.Add(time.Duration(g.random.IntN(500)) * time.Millisecond)
	switch g.random.IntN(8) {
	case 0:
		g.lastID++
		e := entry(fmt.Sprintf("10.0.1.9:%d", 1+g.lastID%50), "10.96.0.1:80", "10.0.3.1:8080")
		e.ID = g.lastID
		g.alive = append(g.alive, &kernelFlow{entry: e})
		g.want.Connections++
	case 1, 2, 3:
		if len(g.alive) > 0 {
			g.addTraffic(&g.alive[g.random.IntN(len(g.alive))].entry)
		}
	case 4:
		if len(g.alive) > 0 {
			at := g.random.IntN(len(g.alive))
			g.events = append(g.events, g.alive[at].entry)
			g.alive = append(g.alive[:at], g.alive[at+1:]...)
		}
	case 5:
		g.sendEvents()
	default:
		g.dump()
	}
}

func (g *generator) addTraffic(e *conntrack.Entry) {
	sent, received := g.random.Uint64N(mib), g.random.Uint64N(mib/2)
	e.Sent.Bytes += sent
	e.Received.Bytes += received
	g.want.Sent += sent
	g.want.Received += received
}

func (g *generator) sendEvents() {
	if len(g.events) > 0 {
		g.counters.OnDestroy(&g.events[0], toB, g.now)
		g.events = g.events[1:]
	}
}

func (g *generator) dump() {
	if !g.inDump {
		g.inDump = true
		g.counters.BeginDump()
		return
	}
	for _, flow := range g.alive {
		if !flow.inDump && g.random.IntN(2) == 0 {
			flow.inDump = true
			g.dumped = append(g.dumped, flow.entry)
		}
	}
	if len(g.dumped) > 0 && g.random.IntN(3) > 0 {
		g.counters.OnEntry(&g.dumped[0], toB, toB, g.now)
		g.dumped = g.dumped[1:]
		return
	}
	if g.random.IntN(4) == 0 {
		g.finish()
	}
}

func (g *generator) finish() {
	for _, flow := range g.alive {
		if !flow.inDump {
			g.dumped = append(g.dumped, flow.entry)
		}
	}
	for i := range g.dumped {
		g.counters.OnEntry(&g.dumped[i], toB, toB, g.now)
	}
	for _, flow := range g.alive {
		flow.inDump = false
	}
	g.dumped, g.inDump = nil, false
	g.counters.EndDump(true, func(model.ObjectName) bool { return true }, g.now)
}

// The order in which events and dumps arrive does not matter.
func TestEverySumIsExact(t *testing.T) {
	for seed := range uint64(300) {
		g := generator{random: rand.New(rand.NewPCG(seed, 1)), counters: NewCounters(Settings{}), now: start}
		g.counters.BeginDump()
		g.counters.EndDump(true, func(model.ObjectName) bool { return true }, start)
		for range 600 {
			g.step()
			if len(g.events) > 20 { // so that no event is in flight for two minutes
				g.sendEvents()
			}
		}
		if g.inDump {
			g.finish()
		}
		for _, flow := range g.alive {
			g.events = append(g.events, flow.entry)
		}
		for len(g.events) > 0 {
			g.sendEvents()
		}
		if diff := cmp.Diff(g.want, sum(g.counters)); diff != "" {
			t.Fatalf("seed %d (-moved +counted):\n%s", seed, diff)
		}
		if tracked := g.counters.State().Tracked; tracked > 0 {
			t.Fatalf("seed %d: %d flows are still tracked after their end", seed, tracked)
		}
	}
}

// An earlier process and this one together never count more bytes than were sent, and exactly as many for small
// connections.
func TestARestartCountsNothingTwice(t *testing.T) {
	for seed := range uint64(300) {
		g := generator{random: rand.New(rand.NewPCG(seed, 2)), counters: NewCounters(Settings{}), now: start}
		isSmall := seed%2 == 0
		g.counters.BeginDump()
		g.counters.EndDump(true, func(model.ObjectName) bool { return true }, start)
		run := func() {
			for range 300 {
				g.step()
				if len(g.events) > 20 {
					g.sendEvents()
				}
				for i := range g.alive {
					if e := &g.alive[i].entry; isSmall && isLong(e) {
						g.want.Sent -= e.Sent.Bytes
						g.want.Received -= e.Received.Bytes
						e.Sent.Bytes, e.Received.Bytes = 0, 0 // as if it had no traffic
					}
				}
			}
			if g.inDump {
				g.finish()
			}
		}
		run()
		for len(g.events) > 0 {
			g.sendEvents() // as at SIGTERM
		}
		earlier := sum(g.counters)
		g.counters = NewCounters(Settings{})
		g.counters.BeginDump()
		g.inDump = true
		g.finish()
		run()
		for _, flow := range g.alive {
			g.events = append(g.events, flow.entry)
		}
		for len(g.events) > 0 {
			g.sendEvents()
		}
		both := sum(g.counters)
		both.add(earlier)
		if both.Connections > g.want.Connections || both.Sent > g.want.Sent || both.Received > g.want.Received {
			t.Fatalf("seed %d: counted %+v of %+v", seed, both, g.want)
		}
		if isSmall && both != g.want {
			t.Fatalf("seed %d: counted %+v of %+v", seed, both, g.want)
		}
	}
}

func TestTheTrackerIsBounded(t *testing.T) {
	c := NewCounters(Settings{})
	const more = 1000
	dump := func() {
		c.BeginDump()
		for i := range uint32(maxTracked + more) {
			e := withTraffic(entry("10.0.1.9:1", "10.96.0.1:80", "10.0.3.1:8080"), 2*mib, 0)
			e.ID = i
			c.OnEntry(&e, toB, toB, start)
		}
		c.EndDump(true, func(model.ObjectName) bool { return true }, start)
	}
	c.BeginDump()
	c.EndDump(true, func(model.ObjectName) bool { return true }, start)
	dump()
	dump()
	state := c.State()
	if state.Tracked != maxTracked {
		t.Errorf("got %+v, want maxTracked flows tracked", state)
	}
	if got := sum(c).Connections; got != maxTracked {
		t.Errorf("%d connections are counted, want only the tracked ones", got)
	}
}
