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
	Service: web, Location: serviceindex.Location{Locality: serviceindex.OtherZone, Tier: "*", Zone: "b", OwnZone: "a"},
}

// sum returns the total of all counts.
func sum(l *Counters) (all Count) {
	l.Node(func(row Row) { all.add(row.Count) })
	return all
}

// step is an operation on Counters with one entry.
type step func(*Counters, conntrack.Entry)

func ends(sent, received uint64) step {
	return func(l *Counters, e conntrack.Entry) {
		e = moved(e, sent, received)
		l.OnDestroy(&e, toB, start)
	}
}

func begin(l *Counters, _ conntrack.Entry) { l.BeginDump() }

func seen(sent, received uint64) step {
	return func(l *Counters, e conntrack.Entry) {
		e = moved(e, sent, received)
		l.OnEntry(&e, toB, toB, start)
	}
}

func finishAfter(after time.Duration) step {
	return func(l *Counters, _ conntrack.Entry) {
		l.EndDump(true, func(model.ObjectName) bool { return true }, start.Add(after))
	}
}

func finish(l *Counters, e conntrack.Entry) { finishAfter(0)(l, e) }

func cutShort(l *Counters, _ conntrack.Entry) {
	l.EndDump(false, func(model.ObjectName) bool { return true }, start)
}

// dumped is a dump that has the entry.
func dumped(sent, received uint64) step {
	return func(l *Counters, e conntrack.Entry) { begin(l, e); seen(sent, received)(l, e); finish(l, e) }
}

// misses is a dump without the entry.
func misses(l *Counters, e conntrack.Entry) { begin(l, e); finish(l, e) }

func as(status conntrack.Status, state uint8, do step) step {
	return func(l *Counters, e conntrack.Entry) { e.Status, e.State = status, state; do(l, e) }
}

func with(edit func(*conntrack.Entry), do step) step {
	return func(l *Counters, e conntrack.Entry) { edit(&e); do(l, e) }
}

// asNext uses another entry of the same connection.
func asNext(id uint32, do step) step { return with(func(e *conntrack.Entry) { e.ID = id }, do) }

func by(protocol model.Protocol, do step) step {
	return with(func(e *conntrack.Entry) { e.Protocol = protocol }, do)
}

// back uses an entry with packets from the endpoint.
func back(packets uint64, do step) step {
	return with(func(e *conntrack.Entry) { e.Received.Packets = packets }, do)
}

func uncounted(do step) step { return with(func(e *conntrack.Entry) { e.IsCounted = false }, do) }

func connectionCount(connections, sent, received uint64) Count {
	return Count{Connections: connections, Traffic: Traffic{sent, received}}
}

func TestWhatIsCountedOfAConnection(t *testing.T) {
	for name, test := range map[string]struct {
		steps []step
		want  Count
	}{
		"at its end":                  {[]step{misses, ends(10, 20)}, connectionCount(1, 10, 20)},
		"nothing before its end":      {[]step{misses, dumped(10, 20)}, Count{}},
		"once, although dumps had it": {[]step{misses, dumped(10, 20), ends(11, 21)}, connectionCount(1, 11, 21)},
		"incrementally if it is long": {
			[]step{misses, dumped(2*mib, 5), dumped(3*mib, 6)}, connectionCount(1, 3*mib, 6),
		},
		"a long one, and the rest at its end": {
			[]step{misses, dumped(2*mib, 5), dumped(3*mib, 6), ends(4*mib, 7)}, connectionCount(1, 4*mib, 7),
		},
		"its traffic since the start":           {[]step{dumped(5*mib, 10), dumped(7*mib, 11)}, connectionCount(0, 2*mib, 1)},
		"its traffic from the start to its end": {[]step{dumped(5*mib, 10), ends(7*mib, 11)}, connectionCount(0, 2*mib, 1)},
		"a small one from before the start, completely": {
			[]step{dumped(10, 20), ends(11, 21)}, connectionCount(1, 11, 21),
		},
		"a long one that was closed before the start": {
			[]step{as(replied, conntrack.TCPTimeWait, dumped(5*mib, 1)), as(replied, conntrack.TCPTimeWait, ends(5*mib, 1))}, Count{},
		},
		"nothing of a long one that ends during the first dump": {[]step{begin, ends(5*mib, 1), finish}, Count{}},
		"once if it ended before the dump delivers it": {
			[]step{misses, begin, ends(5*mib, 1), seen(5*mib, 1), finish}, connectionCount(1, 5*mib, 1),
		},
		"once if a dump delivers it before its end": {
			[]step{misses, begin, seen(5*mib, 1), ends(6*mib, 1), finish}, connectionCount(1, 6*mib, 1),
		},
		"one whose event follows a dump without it": {
			[]step{misses, dumped(5*mib, 1), misses, ends(6*mib, 1)}, connectionCount(1, 6*mib, 1),
		},
		"one whose event was lost": {
			[]step{misses, dumped(5*mib, 1), misses, begin, finishAfter(3 * time.Minute)}, connectionCount(1, 5*mib, 1),
		},
		"its traffic after a reset of its counters": {
			[]step{misses, dumped(5*mib, 9*mib), ends(7, 8)}, connectionCount(1, 5*mib+7, 9*mib+8),
		},
		"its traffic after a reset of its counters, in a dump": {
			[]step{misses, dumped(5*mib, 9*mib), dumped(6*mib, 8), dumped(7*mib, 9)}, connectionCount(1, 12*mib, 9*mib+9),
		},
		"truncated dumps drop nothing": {
			[]step{misses, dumped(5*mib, 1), begin, cutShort, begin, cutShort, ends(6*mib, 1)}, connectionCount(1, 6*mib, 1),
		},
		"a closed one counts at its end": {
			[]step{misses, as(replied, conntrack.TCPTimeWait, dumped(5*mib, 1))}, Count{},
		},
		"a later one of the same port": {[]step{misses, ends(10, 20), asNext(2, ends(1, 2))}, connectionCount(2, 11, 22)},
		"UDP flows, one for each entry": {
			[]step{misses, by(model.UDP, ends(10, 20)), asNext(2, by(model.UDP, ends(1, 2)))}, connectionCount(2, 11, 22),
		},
		"a dial that was refused": {
			[]step{misses, as(nobody, conntrack.TCPClose, back(1, ends(60, 40)))}, Count{Refused: 1, Traffic: Traffic{60, 40}},
		},
		"a dial that was refused, without packet counters": {
			[]step{misses, as(nobody, conntrack.TCPClose, uncounted(ends(0, 0)))}, Count{Refused: 1},
		},
		"a dial that its client reset": {
			[]step{misses, as(nobody, conntrack.TCPClose, ends(100, 0))}, Count{Unreplied: 1, Traffic: Traffic{Sent: 100}},
		},
		"an association that was refused": {
			[]step{misses, as(replied, conntrack.SCTPClosed, by(model.SCTP, ends(60, 40)))}, Count{Refused: 1, Traffic: Traffic{60, 40}},
		},
		"an association": {
			[]step{misses, as(replied|conntrack.Assured, conntrack.SCTPClosed, by(model.SCTP, ends(60, 40)))}, connectionCount(1, 60, 40),
		},
		"an unreplied dial": {
			[]step{misses, as(nobody, conntrack.TCPSynSent, ends(60, 0))}, Count{Unreplied: 1, Traffic: Traffic{Sent: 60}},
		},
		"in one direction": {
			[]step{misses, as(nobody, 0, dumped(2*mib, 0)), as(nobody, 0, ends(3*mib, 0))},
			Count{Unreplied: 1, Traffic: Traffic{Sent: 3 * mib}},
		},
		"in one direction at first": {
			[]step{misses, as(nobody, 0, dumped(2*mib, 0)), dumped(3*mib, 5), ends(3*mib, 6)}, connectionCount(1, 3*mib, 6),
		},
		"no translation": {[]step{misses, as(conntrack.SeenReply, conntrack.TCPEstablished, ends(10, 20))}, Count{}},
		"no counters":    {[]step{misses, ends(0, 0)}, connectionCount(1, 0, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewCounters(Settings{})
			for _, do := range test.steps {
				do(l, entry("10.0.1.9:1", "10.96.0.1:80", "10.0.3.1:8080"))
			}
			if got := sum(l); got != test.want {
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
			l := NewCounters(Settings{})
			look := func(bytes uint64) {
				l.BeginDump()
				e := moved(ours, bytes, 0)
				l.OnEntry(&e, test.inDump, test.atEnd, start)
				l.EndDump(true, func(model.ObjectName) bool { return true }, start)
			}
			l.BeginDump()
			l.EndDump(true, func(model.ObjectName) bool { return true }, start)
			look(test.bytes / 2)
			look(test.bytes)
			e := moved(ours, test.bytes, 0)
			l.OnDestroy(&e, test.atEnd, start)
			if got, state := sum(l), l.State(); got != test.want || state != (State{Missed: test.missed}) {
				t.Errorf("got %+v and %+v, want %+v and %+v", got, state, test.want, test.missed)
			}
		})
	}
}

// Bytes are missed if counters were reset or did not exist.
func TestLostEventsAreReported(t *testing.T) {
	l, e := NewCounters(Settings{}), entry("10.0.1.9:1", "10.96.0.1:80", "10.0.3.1:8080")
	for _, do := range []step{
		misses, dumped(5*mib, 0), dumped(2*mib, 0), ends(1, 0), asNext(2, uncounted(ends(0, 0))), asNext(3, dumped(2*mib, 0)),
	} {
		do(l, e)
	}
	if want := (Missed{CountersReset: 2, NoCounters: 1}); l.State().Missed != want {
		t.Errorf("got %+v, want %+v", l.State().Missed, want)
	}
}

func TestWhatIsOthersIsCountedAsSuch(t *testing.T) {
	l := NewCounters(Settings{})
	l.BeginDump()
	l.EndDump(true, nil, start)
	translated, plain := entry("10.0.1.9:1", "192.0.2.1:8080", "10.0.3.1:8080"), entry("10.0.1.9:1", "10.0.3.1:8080", "10.0.3.1:8080")
	plain.Status = conntrack.SeenReply
	l.OnDestroy(&translated, nil, start)
	l.OnDestroy(&plain, nil, start)
	if got := l.State(); got != (State{Missed: Missed{OtherProgram: 1}}) || sum(l) != (Count{}) {
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
	random *rand.Rand
	l      *Counters
	alive  []*kernelFlow
	events []conntrack.Entry // events in flight
	dumped []conntrack.Entry // entries read and in flight
	inDump bool
	number uint32
	truth  Count
	now    time.Time
}

func (g *generator) step() {
	g.now = g.now.Add(time.Duration(g.random.IntN(500)) * time.Millisecond)
	switch g.random.IntN(8) {
	case 0:
		g.number++
		e := entry(fmt.Sprintf("10.0.1.9:%d", 1+g.number%50), "10.96.0.1:80", "10.0.3.1:8080")
		e.ID = g.number
		g.alive = append(g.alive, &kernelFlow{entry: e})
		g.truth.Connections++
	case 1, 2, 3:
		if len(g.alive) > 0 {
			g.move(&g.alive[g.random.IntN(len(g.alive))].entry)
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

func (g *generator) move(e *conntrack.Entry) {
	sent, received := g.random.Uint64N(mib), g.random.Uint64N(mib/2)
	e.Sent.Bytes += sent
	e.Received.Bytes += received
	g.truth.Sent += sent
	g.truth.Received += received
}

func (g *generator) sendEvents() {
	if len(g.events) > 0 {
		g.l.OnDestroy(&g.events[0], toB, g.now)
		g.events = g.events[1:]
	}
}

func (g *generator) dump() {
	if !g.inDump {
		g.inDump = true
		g.l.BeginDump()
		return
	}
	for _, flow := range g.alive {
		if !flow.inDump && g.random.IntN(2) == 0 {
			flow.inDump = true
			g.dumped = append(g.dumped, flow.entry)
		}
	}
	if len(g.dumped) > 0 && g.random.IntN(3) > 0 {
		g.l.OnEntry(&g.dumped[0], toB, toB, g.now)
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
		g.l.OnEntry(&g.dumped[i], toB, toB, g.now)
	}
	for _, flow := range g.alive {
		flow.inDump = false
	}
	g.dumped, g.inDump = nil, false
	g.l.EndDump(true, func(model.ObjectName) bool { return true }, g.now)
}

// The order in which events and dumps arrive does not matter.
func TestEverySumIsExact(t *testing.T) {
	for seed := range uint64(300) {
		g := generator{random: rand.New(rand.NewPCG(seed, 1)), l: NewCounters(Settings{}), now: start}
		g.l.BeginDump()
		g.l.EndDump(true, func(model.ObjectName) bool { return true }, start)
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
		if diff := cmp.Diff(g.truth, sum(g.l)); diff != "" {
			t.Fatalf("seed %d (-moved +counted):\n%s", seed, diff)
		}
		if left := g.l.State().Tracked; left > 0 {
			t.Fatalf("seed %d: %d flows are still tracked after their end", seed, left)
		}
	}
}

// An earlier process and this one together never count more bytes than were sent, and exactly as many for small
// connections.
func TestARestartCountsNothingTwice(t *testing.T) {
	for seed := range uint64(300) {
		g := generator{random: rand.New(rand.NewPCG(seed, 2)), l: NewCounters(Settings{}), now: start}
		isSmall := seed%2 == 0
		g.l.BeginDump()
		g.l.EndDump(true, func(model.ObjectName) bool { return true }, start)
		run := func() {
			for range 300 {
				g.step()
				if len(g.events) > 20 {
					g.sendEvents()
				}
				for i := range g.alive {
					if e := &g.alive[i].entry; isSmall && isLong(e) {
						g.truth.Sent -= e.Sent.Bytes
						g.truth.Received -= e.Received.Bytes
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
		earlier := sum(g.l)
		g.l = NewCounters(Settings{})
		g.l.BeginDump()
		g.inDump = true
		g.finish()
		run()
		for _, flow := range g.alive {
			g.events = append(g.events, flow.entry)
		}
		for len(g.events) > 0 {
			g.sendEvents()
		}
		both := sum(g.l)
		both.add(earlier)
		if both.Connections > g.truth.Connections || both.Sent > g.truth.Sent || both.Received > g.truth.Received {
			t.Fatalf("seed %d: counted %+v of %+v", seed, both, g.truth)
		}
		if isSmall && both != g.truth {
			t.Fatalf("seed %d: counted %+v of %+v", seed, both, g.truth)
		}
	}
}

func TestTheFollowerIsBounded(t *testing.T) {
	l := NewCounters(Settings{})
	const more = 1000
	look := func() {
		l.BeginDump()
		for i := range uint32(maxTracked + more) {
			e := moved(entry("10.0.1.9:1", "10.96.0.1:80", "10.0.3.1:8080"), 2*mib, 0)
			e.ID = i
			l.OnEntry(&e, toB, toB, start)
		}
		l.EndDump(true, func(model.ObjectName) bool { return true }, start)
	}
	l.BeginDump()
	l.EndDump(true, func(model.ObjectName) bool { return true }, start)
	look()
	look()
	state := l.State()
	if state.Tracked != maxTracked {
		t.Errorf("%+v", state)
	}
	if got := sum(l).Connections; got != maxTracked {
		t.Errorf("%d connections are counted, want only the tracked ones", got)
	}
}
