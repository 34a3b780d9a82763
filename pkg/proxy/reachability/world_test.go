package reachability_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/reachability"
)

// world is nodes, connections between them, and a judge on the node "own". Its clock moves in steps of 10 ms.
type world struct {
	t      *testing.T
	judge  *reachability.Judge
	now    time.Duration
	skew   time.Duration // of its clock
	nodes  []*machine
	server *machine // of the API; nil if there is none
	ownUp  func(at time.Duration) bool
	random *rand.Rand

	flows    []*flow
	lastFlow uint32
	answers  []answer
	asked    []string // whose flows with answers are told with the next step
	loads    []*load
	lookedAt time.Duration

	dials    map[string]int
	outcomes map[reachability.Outcome]int
	out      map[string]time.Duration
	back     map[string]time.Duration
	outs     []string // all verdicts
	cutOffs  int
	// stopped: the process stands still while this holds, and the world goes on.
	stopped func(at time.Duration) bool
}

// machine is a node: whether it answers, and how.
type machine struct {
	name, zone string
	addr       netip.AddrPort
	up         func(at time.Duration) bool
	kind       func(at time.Duration) reachability.Kind
	delay      time.Duration
	loss       float64
	// dropsDials: those of proxies, and nothing else.
	dropsDials func(at time.Duration) bool
}

// load is connections that begin at a rate.
type load struct {
	every    time.Duration
	node     *machine
	client   string
	denied   bool // never answered
	next     time.Duration
	from, to time.Duration
}

type flow struct {
	reachability.Flow
	began    time.Duration
	answered time.Duration // never: negative
}

type answer struct {
	at   time.Duration
	id   uint64
	kind reachability.Kind
	took time.Duration
	// by then the dial is given up.
	deadline time.Duration
}

var epoch = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

func (w *world) clock() time.Time { return epoch.Add(w.now + w.skew) }

func always(time.Duration) bool { return true }

func never(time.Duration) bool { return false }

// until returns what holds until a time.
func until(end time.Duration) func(time.Duration) bool {
	return func(at time.Duration) bool { return at < end }
}

// except returns what always holds but between two times.
func except(from, to time.Duration) func(time.Duration) bool {
	return func(at time.Duration) bool { return at < from || at >= to }
}

// newWorld returns a world with nodes n0, n1, ... in three zones, which have all answered once.
func newWorld(t *testing.T, count int, without reachability.Without) *world {
	t.Helper()
	return newSlowWorld(t, count, without, time.Millisecond)
}

// newSlowWorld returns a world of nodes that answer after a time.
func newSlowWorld(t *testing.T, count int, without reachability.Without, delay time.Duration) *world {
	t.Helper()
	w := &world{
		t: t, judge: reachability.NewJudgeWithout("own", without), ownUp: always, stopped: never,
		random: rand.New(rand.NewPCG(1, uint64(count))),
		dials:  map[string]int{}, outcomes: map[reachability.Outcome]int{}, out: map[string]time.Duration{},
		back: map[string]time.Duration{},
	}
	for i := range count {
		w.nodes = append(w.nodes, &machine{
			name: fmt.Sprintf("n%d", i), zone: fmt.Sprintf("z%d", i%3),
			addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, byte(2 + (i+1)>>8), byte(i + 1)}), 10256),
			up:   always, delay: delay, dropsDials: never,
			kind: func(time.Duration) reachability.Kind { return reachability.Accepted },
		})
	}
	w.place()
	w.run(70 * time.Second)
	w.dials = map[string]int{}
	return w
}

func (w *world) place() {
	places := map[string]reachability.Place{}
	for _, node := range w.nodes {
		places[node.name] = reachability.Place{Addr: node.addr, Zone: node.zone}
	}
	var servers []netip.AddrPort
	if w.server != nil {
		servers = []netip.AddrPort{w.server.addr}
	}
	w.judge.Place(w.clock(), places, servers)
}

// reach returns when a packet that is sent again and again is answered within a time; negative for never.
func (w *world) reach(node *machine, sent, within time.Duration, drops bool) time.Duration {
	for _, again := range []time.Duration{0, 1, 2, 3, 4, 5, 7, 11, 19, 35} {
		at := sent + again*time.Second
		if at >= sent+within {
			return -1
		}
		isLost := w.random.Float64() < node.loss*(2-node.loss) // there or back
		isDropped := drops && node.dropsDials(at)
		if w.ownUp(at) && node.up(at) && !isLost && !isDropped && at+node.delay < sent+within {
			return at + node.delay
		}
	}
	return -1
}

func (w *world) machineAt(addr netip.AddrPort) *machine {
	for _, node := range append(slices.Clone(w.nodes), w.server) {
		if node != nil && node.addr == addr {
			return node
		}
	}
	return nil
}

// run lets the world go on for a time.
func (w *world) run(period time.Duration) {
	w.t.Helper()
	for end := w.now + period; w.now < end; w.now += 10 * time.Millisecond {
		w.begin()
		if w.stopped(w.now) {
			continue
		}
		w.hear()
		if w.now-w.lookedAt >= 500*time.Millisecond {
			w.lookedAt = w.now
			w.look()
		}
		w.step()
	}
}

// begin begins connections.
func (w *world) begin() {
	for i, l := range w.loads {
		for ; l.next <= w.now; l.next += l.every {
			if l.next < l.from || l.to > 0 && l.next >= l.to {
				continue
			}
			f := &flow{began: l.next, answered: -1}
			w.lastFlow++
			at := l.node.addr.Addr().As4()
			endpoint := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, at[2], at[3], byte(i)}), 80)
			f.Flow = reachability.Flow{
				ID: w.lastFlow, Client: netip.MustParseAddr(l.client), Endpoint: endpoint, Node: l.node.name,
			}
			if !l.denied {
				f.answered = w.reach(l.node, l.next, 120*time.Second, false)
			}
			w.flows = append(w.flows, f)
		}
	}
}

// hear reports what came of dials.
func (w *world) hear() {
	var later []answer
	for _, a := range w.answers {
		if a.at > w.now {
			later = append(later, a)
			continue
		}
		if w.now > a.deadline {
			a.kind = reachability.NoAnswer // whatever came meanwhile: both are there, and the dialler looks at its clock first
		}
		w.judge.Answered(w.clock(), a.id, a.kind, a.took)
	}
	w.answers = later
	if asked := w.asked; len(asked) > 0 {
		w.asked = nil
		ids := map[string][]uint32{}
		for _, f := range w.flows {
			if f.answered >= 0 && f.answered <= w.now && w.now-f.answered < time.Minute {
				ids[f.Node] = append(ids[f.Node], f.ID)
			}
		}
		w.judge.Flows(asked, ids, true)
	}
}

// look reports all connections without an answer.
func (w *world) look() {
	var flows []reachability.Flow
	w.flows = slices.DeleteFunc(w.flows, func(f *flow) bool { return w.now-f.began >= 180*time.Second })
	for _, f := range w.flows {
		if w.now-f.began < 120*time.Second && (f.answered < 0 || f.answered > w.now) {
			flows = append(flows, f.Flow)
		}
	}
	w.judge.Looked(w.clock(), flows)
}

func (w *world) step() {
	orders := w.judge.Step(w.clock())
	for _, dial := range orders.Dials {
		node := w.machineAt(dial.Addr)
		w.dials[node.name]++
		a := answer{at: w.now + dial.Within, id: dial.ID, deadline: w.now + dial.Within}
		if at := w.reach(node, w.now, dial.Within, true); at >= 0 {
			a.at, a.kind, a.took = at, node.kind(at), at-w.now
		}
		w.answers = append(w.answers, a)
	}
	w.asked = append(w.asked, orders.Ask...)
	for _, outcome := range orders.Ended {
		w.outcomes[outcome]++
	}
	for _, name := range orders.Out {
		w.out[name] = w.now
		w.outs = append(w.outs, name)
	}
	for _, back := range orders.Back {
		w.back[back.Node] = w.now
		delete(w.out, back.Node)
	}
	if orders.CutOff {
		w.cutOffs++
	}
}

// dial has clients connect to an endpoint on a node, so many times a second.
func (w *world) dial(node *machine, client string, perSecond int) *load {
	l := &load{every: time.Second / time.Duration(perSecond), node: node, client: client, next: w.now}
	w.loads = append(w.loads, l)
	return l
}
