package reachability_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/reachability"
)

// disabledGuards are the guards that a test disables.
type without struct {
	controls bool // controls reply without a network, as programs on this machine would
	replied  bool // no connection with a reply is reported
}

// simulation simulates nodes, connections between them, and a detector on the node "own". Its clock advances in steps of
// 10 ms.
type world struct {
	t        *testing.T
	detector *reachability.Detector
	now      time.Duration
	nodes    []*machine
	server   *machine // the API server; nil if there is none
	without  without
	ownUp    func(at time.Duration) bool
	random   *rand.Rand

	flows    []*flow
	lastFlow uint32
	replies  []reply
	listed   []string // nodes whose replied flows are reported with the next step
	loads    []*load
	lastScan time.Duration

	dials      map[string]int // probes by node
	dialsTo    map[uint16]int // probes by port
	outcomes   map[reachability.Outcome]int
	ejected    map[string]time.Duration
	restored   map[string]time.Duration
	ejections  []string // all ejections, in order
	isolations int
	// stopped reports whether the process is paused while the simulation continues.
	stopped func(at time.Duration) bool
}

// machine is a simulated node.
type machine struct {
	name string
	addr netip.Addr
	up   func(at time.Duration) bool
	// accepts reports whether a proxy listens. If not, the kernel resets.
	accepts func(at time.Duration) bool
	delay   time.Duration
	loss    float64
	isHere  bool // it is on this machine and needs no network
	// drops reports whether a firewall silently drops probes of a port, and nothing else.
	drops func(port uint16, at time.Duration) bool
}

// load is a stream of connections at a rate.
type load struct {
	every    time.Duration
	node     *machine
	client   string
	denied   bool // never gets a reply
	forged   bool // always gets a forged reply in the endpoint's name
	next     time.Duration
	from, to time.Duration
}

type flow struct {
	reachability.Flow
	began     time.Duration
	repliedAt time.Duration // negative if never
	isReset   bool          // by a kernel whose pods do not run yet
}

type reply struct {
	at     time.Duration
	id     uint64
	result reachability.ProbeResult
	took   time.Duration
	// deadline is when the probe times out.
	deadline time.Duration
}

var epoch = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

func (w *world) clock() time.Time { return epoch.Add(w.now) }

func always(time.Duration) bool { return true }

func never(time.Duration) bool { return false }

// until returns a condition that holds until a time.
func until(end time.Duration) func(time.Duration) bool {
	return func(at time.Duration) bool { return at < end }
}

// except returns a condition that always holds, except between two times.
func except(from, to time.Duration) func(time.Duration) bool {
	return func(at time.Duration) bool { return at < from || at >= to }
}

// newSimulation returns a simulation with nodes n0, n1, ... that have all replied once.
func newWorld(t *testing.T, count int, without without) *world {
	t.Helper()
	return newSlowWorld(t, count, without, time.Millisecond)
}

// newSlowSimulation returns a simulation with nodes that reply after a delay.
func newSlowWorld(t *testing.T, count int, without without, delay time.Duration) *world {
	t.Helper()
	w := &world{
		t: t, detector: reachability.NewDetector("own", healthPort, reachability.NewBudget()), without: without, ownUp: always, stopped: never,
		random: rand.New(rand.NewPCG(1, uint64(count))),
		dials:  map[string]int{}, dialsTo: map[uint16]int{}, outcomes: map[reachability.Outcome]int{}, ejected: map[string]time.Duration{},
		restored: map[string]time.Duration{},
	}
	for i := range count {
		w.nodes = append(w.nodes, newMachine(fmt.Sprintf("n%d", i), delay,
			netip.AddrFrom4([4]byte{192, 0, byte(2 + (i+1)>>8), byte(i + 1)})))
	}
	for i := range count {
		if without.controls {
			machine := newMachine(fmt.Sprintf("here%d", i), 0, netip.AddrFrom4([4]byte{127, 0, 0, byte(i + 1)}))
			machine.isHere = true
			w.nodes = append(w.nodes, machine)
		}
	}
	w.setTargets()
	w.run(70 * time.Second)
	w.dials, w.dialsTo = map[string]int{}, map[uint16]int{}
	return w
}

func newMachine(name string, delay time.Duration, addr netip.Addr) *machine {
	return &machine{
		name: name, addr: addr, up: always, delay: delay, accepts: always,
		drops: func(uint16, time.Duration) bool { return false },
	}
}

// The ports at which nodes are probed.
const (
	closedPort  = 9
	healthPort  = 10256
	kubeletPort = 10250
)

// dropFrom returns a firewall that drops probes of some ports from a time on.
func dropFrom(from time.Duration, ports ...uint16) func(uint16, time.Duration) bool {
	return func(port uint16, at time.Duration) bool { return at >= from && slices.Contains(ports, port) }
}

func (w *world) setTargets() {
	targets := map[string]netip.Addr{}
	for _, node := range w.nodes {
		targets[node.name] = node.addr
	}
	var servers []netip.AddrPort
	if w.server != nil {
		servers = []netip.AddrPort{netip.AddrPortFrom(w.server.addr, 6443)}
	}
	w.detector.SetNodes(w.clock(), targets, servers)
}

// reach returns when a packet with retransmissions gets a reply, within a time limit; negative if never.
func (w *world) reach(node *machine, port uint16, sent, within time.Duration) time.Duration {
	for _, again := range []time.Duration{0, 1, 2, 3, 4, 5, 7, 11, 19, 35} {
		at := sent + again*time.Second
		if at >= sent+within {
			return -1
		}
		isLost := w.random.Float64() < node.loss*(2-node.loss) // on either way
		isDropped := port != 0 && node.drops(port, at)
		if (node.isHere || w.ownUp(at)) && node.up(at) && !isLost && !isDropped && at+node.delay < sent+within {
			return at + node.delay
		}
	}
	return -1
}

func (w *world) machineAt(addr netip.Addr) *machine {
	for _, node := range append(slices.Clone(w.nodes), w.server) {
		if node != nil && node.addr == addr {
			return node
		}
	}
	return nil
}

// run advances the simulation by a period.
func (w *world) run(period time.Duration) {
	w.t.Helper()
	for end := w.now + period; w.now < end; w.now += 10 * time.Millisecond {
		w.openConnections()
		if w.stopped(w.now) {
			continue
		}
		w.deliverReplies()
		if w.now-w.lastScan >= 500*time.Millisecond {
			w.lastScan = w.now
			w.scan()
		}
		w.step()
	}
}

// openConnections opens the connections that are due.
func (w *world) openConnections() {
	for i, l := range w.loads {
		for ; l.next <= w.now; l.next += l.every {
			if l.next < l.from || l.to > 0 && l.next >= l.to {
				continue
			}
			f := &flow{began: l.next, repliedAt: -1}
			w.lastFlow++
			at := l.node.addr.As4()
			endpoint := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, at[2], at[3], byte(i)}), 80)
			f.Flow = reachability.Flow{
				ID: w.lastFlow, Client: netip.MustParseAddr(l.client), Endpoint: endpoint, Node: l.node.name,
			}
			switch {
			case l.forged:
				f.repliedAt = l.next + 10*time.Millisecond
			case !l.denied:
				f.repliedAt = w.reach(l.node, 0, l.next, 120*time.Second)
				f.isReset = !l.node.accepts(f.repliedAt)
			}
			w.flows = append(w.flows, f)
		}
	}
}

// deliverReplies reports the results of probes and lists.
func (w *world) deliverReplies() {
	var later []reply
	for _, r := range w.replies {
		if r.at > w.now {
			later = append(later, r)
			continue
		}
		if w.now > r.deadline {
			r.result = reachability.NoReply // even if a reply arrived: a dialer that runs late checks its deadline first
		}
		w.detector.ReportProbe(w.clock(), r.id, r.result, r.took)
	}
	w.replies = later
	if listed := w.listed; len(listed) > 0 {
		w.listed = nil
		var flows []reachability.Flow
		for _, f := range w.flows {
			if f.repliedAt >= 0 && f.repliedAt <= w.now && !f.isReset && !w.without.replied && w.now-f.repliedAt < time.Minute &&
				slices.Contains(listed, f.Node) {
				flows = append(flows, f.Flow)
			}
		}
		w.detector.ReportReplied(w.clock(), listed, flows, flows, true)
	}
}

// scan reports the connections that a list 0.4 s ago contained, and that are still unreplied.
func (w *world) scan() {
	var nodes []string
	w.flows = slices.DeleteFunc(w.flows, func(f *flow) bool { return w.now-f.began >= 180*time.Second })
	for _, f := range w.flows {
		if age := w.now - f.began; age >= reachability.MinAge && age < 120*time.Second && (f.repliedAt < 0 || f.repliedAt > w.now) {
			nodes = append(nodes, f.Node)
		}
	}
	w.detector.ReportUnreplied(nodes)
}

func (w *world) step() {
	actions := w.detector.Step(w.clock())
	for _, probe := range actions.Probes {
		node, port := w.machineAt(probe.Addr.Addr()), probe.Addr.Port()
		w.dials[node.name]++
		w.dialsTo[port]++
		r := reply{at: w.now + probe.Timeout, id: probe.ID, deadline: w.now + probe.Timeout}
		if at := w.reach(node, port, w.now, probe.Timeout); at >= 0 {
			r.at, r.result, r.took = at, reachability.Reset, at-w.now
			if port != closedPort && node.accepts(at) {
				r.result = reachability.Accepted
			}
		}
		w.replies = append(w.replies, r)
	}
	w.listed = append(w.listed, actions.ListReplied...)
	for _, outcome := range actions.Concluded {
		w.outcomes[outcome]++
	}
	for _, name := range actions.Ejected {
		w.ejected[name] = w.now
		w.ejections = append(w.ejections, name)
	}
	for _, back := range actions.Restored {
		w.restored[back.Node] = w.now
		delete(w.ejected, back.Node)
	}
	if actions.Isolated {
		w.isolations++
	}
}

// addClient makes a client connect to an endpoint on a node, perSecond times a second.
func (w *world) dial(node *machine, client string, perSecond int) *load {
	l := &load{every: time.Second / time.Duration(perSecond), node: node, client: client, next: w.now}
	w.loads = append(w.loads, l)
	return l
}
