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
type disabledGuards struct {
	controls bool // controls reply without a network, as programs on this machine would
	replied  bool // no connection with a reply is reported
}

// simulation simulates nodes, connections between them, and a detector on the node "own". Its clock advances in steps of
// 10 ms.
type simulation struct {
	t         *testing.T
	detector  *reachability.Detector
	now       time.Duration
	nodes     []*machine
	server    *machine // the API server; nil if there is none
	disabled  disabledGuards
	networkUp func(at time.Duration) bool
	random    *rand.Rand

	flows    []*flow
	lastFlow uint32
	replies  []reply
	listed   []string // nodes whose replied flows are reported with the next step
	loads    []*load
	lastScan time.Duration

	probesByNode map[string]int // probes by node
	probesByPort map[uint16]int // probes by port
	outcomes     map[reachability.Outcome]int
	ejected      map[string]time.Duration
	restored     map[string]time.Duration
	ejections    []string // all ejections, in order
	isolations   int
	// stopped reports whether the process is paused while the simulation continues.
	stopped func(at time.Duration) bool
}

// machine is a simulated node.
type machine struct {
	name string
	addr netip.Addr
	up   func(at time.Duration) bool
	// accepts reports whether a proxy listens. If not, the kernel resets.
	accepts       func(at time.Duration) bool
	delay         time.Duration
	loss          float64
	isThisMachine bool // it is on this machine and needs no network
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

func (s *simulation) clock() time.Time { return epoch.Add(s.now) }

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
func newSimulation(t *testing.T, count int, disabled disabledGuards) *simulation {
	t.Helper()
	return newSlowSimulation(t, count, disabled, time.Millisecond)
}

// newSlowSimulation returns a simulation with nodes that reply after a delay.
func newSlowSimulation(t *testing.T, count int, disabled disabledGuards, delay time.Duration) *simulation {
	t.Helper()
	sim := &simulation{
		t: t, detector: reachability.NewDetector("own", healthPort, reachability.NewBudget()), disabled: disabled, networkUp: always,
		stopped:      never,
		random:       rand.New(rand.NewPCG(1, uint64(count))),
		probesByNode: map[string]int{}, probesByPort: map[uint16]int{}, outcomes: map[reachability.Outcome]int{},
		ejected:  map[string]time.Duration{},
		restored: map[string]time.Duration{},
	}
	for i := range count {
		sim.nodes = append(sim.nodes, newMachine(fmt.Sprintf("n%d", i), delay,
			netip.AddrFrom4([4]byte{192, 0, byte(2 + (i+1)>>8), byte(i + 1)})))
	}
	for i := range count {
		if disabled.controls {
			here := newMachine(fmt.Sprintf("here%d", i), 0, netip.AddrFrom4([4]byte{127, 0, 0, byte(i + 1)}))
			here.isThisMachine = true
			sim.nodes = append(sim.nodes, here)
		}
	}
	sim.setTargets()
	sim.run(70 * time.Second)
	sim.probesByNode, sim.probesByPort = map[string]int{}, map[uint16]int{}
	return sim
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

func (s *simulation) setTargets() {
	targets := map[string]netip.Addr{}
	for _, node := range s.nodes {
		targets[node.name] = node.addr
	}
	var servers []netip.AddrPort
	if s.server != nil {
		servers = []netip.AddrPort{netip.AddrPortFrom(s.server.addr, 6443)}
	}
	s.detector.SetNodes(s.clock(), targets, servers)
}

// reach returns when a packet with retransmissions gets a reply, within a time limit; negative if never.
func (s *simulation) reach(node *machine, port uint16, sent, within time.Duration) time.Duration {
	for _, again := range []time.Duration{0, 1, 2, 3, 4, 5, 7, 11, 19, 35} {
		at := sent + again*time.Second
		if at >= sent+within {
			return -1
		}
		isLost := s.random.Float64() < node.loss*(2-node.loss) // on either way
		isDropped := port != 0 && node.drops(port, at)
		if (node.isThisMachine || s.networkUp(at)) && node.up(at) && !isLost && !isDropped && at+node.delay < sent+within {
			return at + node.delay
		}
	}
	return -1
}

func (s *simulation) machineAt(addr netip.Addr) *machine {
	for _, node := range append(slices.Clone(s.nodes), s.server) {
		if node != nil && node.addr == addr {
			return node
		}
	}
	return nil
}

// run advances the simulation by a period.
func (s *simulation) run(period time.Duration) {
	s.t.Helper()
	for end := s.now + period; s.now < end; s.now += 10 * time.Millisecond {
		s.openConnections()
		if s.stopped(s.now) {
			continue
		}
		s.deliverReplies()
		if s.now-s.lastScan >= 500*time.Millisecond {
			s.lastScan = s.now
			s.scan()
		}
		s.step()
	}
}

// openConnections opens the connections that are due.
func (s *simulation) openConnections() {
	for i, l := range s.loads {
		for ; l.next <= s.now; l.next += l.every {
			if l.next < l.from || l.to > 0 && l.next >= l.to {
				continue
			}
			f := &flow{began: l.next, repliedAt: -1}
			s.lastFlow++
			at := l.node.addr.As4()
			endpoint := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, at[2], at[3], byte(i)}), 80)
			f.Flow = reachability.Flow{
				ID: s.lastFlow, Client: netip.MustParseAddr(l.client), Endpoint: endpoint, Node: l.node.name,
			}
			switch {
			case l.forged:
				f.repliedAt = l.next + 10*time.Millisecond
			case !l.denied:
				f.repliedAt = s.reach(l.node, 0, l.next, 120*time.Second)
				f.isReset = !l.node.accepts(f.repliedAt)
			}
			s.flows = append(s.flows, f)
		}
	}
}

// deliverReplies reports the results of probes and lists.
func (s *simulation) deliverReplies() {
	var later []reply
	for _, r := range s.replies {
		if r.at > s.now {
			later = append(later, r)
			continue
		}
		if s.now > r.deadline {
			r.result = reachability.NoReply // even if a reply arrived: a dialer that runs late checks its deadline first
		}
		s.detector.ReportProbe(s.clock(), r.id, r.result, r.took)
	}
	s.replies = later
	if listed := s.listed; len(listed) > 0 {
		s.listed = nil
		var flows []reachability.Flow
		for _, f := range s.flows {
			if f.repliedAt >= 0 && f.repliedAt <= s.now && !f.isReset && !s.disabled.replied && s.now-f.repliedAt < time.Minute &&
				slices.Contains(listed, f.Node) {
				flows = append(flows, f.Flow)
			}
		}
		s.detector.ReportReplied(s.clock(), listed, flows, flows, true)
	}
}

// scan reports the connections that a list 0.4 s ago contained, and that are still unreplied.
func (s *simulation) scan() {
	var nodes []string
	s.flows = slices.DeleteFunc(s.flows, func(f *flow) bool { return s.now-f.began >= 180*time.Second })
	for _, f := range s.flows {
		if age := s.now - f.began; age >= reachability.MinAge && age < 120*time.Second && (f.repliedAt < 0 || f.repliedAt > s.now) {
			nodes = append(nodes, f.Node)
		}
	}
	s.detector.ReportUnreplied(nodes)
}

func (s *simulation) step() {
	actions := s.detector.Step(s.clock())
	for _, probe := range actions.Probes {
		node, port := s.machineAt(probe.Addr.Addr()), probe.Addr.Port()
		s.probesByNode[node.name]++
		s.probesByPort[port]++
		r := reply{at: s.now + probe.Timeout, id: probe.ID, deadline: s.now + probe.Timeout}
		if at := s.reach(node, port, s.now, probe.Timeout); at >= 0 {
			r.at, r.result, r.took = at, reachability.Reset, at-s.now
			if port != closedPort && node.accepts(at) {
				r.result = reachability.Accepted
			}
		}
		s.replies = append(s.replies, r)
	}
	s.listed = append(s.listed, actions.ListReplied...)
	for _, outcome := range actions.Concluded {
		s.outcomes[outcome]++
	}
	for _, name := range actions.Ejected {
		s.ejected[name] = s.now
		s.ejections = append(s.ejections, name)
	}
	for _, restoration := range actions.Restored {
		s.restored[restoration.Node] = s.now
		delete(s.ejected, restoration.Node)
	}
	if actions.Isolated {
		s.isolations++
	}
}

// addClient makes a client connect to an endpoint on a node, perSecond times a second.
func (s *simulation) addClient(node *machine, client string, perSecond int) *load {
	l := &load{every: time.Second / time.Duration(perSecond), node: node, client: client, next: s.now}
	s.loads = append(s.loads, l)
	return l
}
