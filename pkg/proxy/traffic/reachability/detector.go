package reachability

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/time/rate"
)

// closedPortNumber is the discard port, where normally no program listens. kubeletPortNumber is the kubelet's port.
const closedPortNumber, kubeletPortNumber = 9, 10250

// Detector decides which of the other nodes do not reply to this one. Its Report methods record events; Step decides
// what to do about them. It is not safe for concurrent use.
type Detector struct {
	self                  string
	portNumbers           [apiServer]uint16 // port numbers
	nodes                 map[string]*node
	names                 []string         // node names, sorted
	active                map[string]*node // suspected or ejected nodes
	servers               []server
	suspiciousConnections map[string]int // number of suspicious connections, by node that is not suspected yet
	controls              controls
	isolatedSince         *time.Time // since when this node is isolated; nil if it is not
	inFlight              map[uint64]pendingProbe
	lastProbeID           uint64
	budget                Budget
	nextBaselineCheck     time.Time // when to check again which baselines are due
	isListing             bool      // a list of connections is pending
	nextList              time.Time // when to list connections to ejected nodes again
	pending               Actions   // results since the last step
}

// server is an API server. node is the other node that it runs on; nil if there is none.
type server struct {
	addr netip.AddrPort
	node *node
}

// Budget bounds the probes of the detectors that share it.
type Budget struct{ suspected, ejected *rate.Limiter }

// NewBudget returns an unused budget.
func NewBudget() Budget {
	return Budget{rate.NewLimiter(suspectProbes, suspectProbes), rate.NewLimiter(ejectedProbes, ejectedProbes)}
}

// pendingProbe is a probe whose result is pending.
type pendingProbe struct {
	node      *node // nil for an API server that runs on no other node
	port      port
	suspicion *suspicion
	ejection  *ejection
	sentAt    time.Time
	// isControl is set for control probes, which show whether this node is isolated.
	isControl  bool
	isBaseline bool
}

// Actions are the work that the caller must do, and the detector's decisions.
type Actions struct {
	Probes []Probe
	// ListReplied names nodes. The caller must report the connections to their endpoints that have a reply, with
	// ReportReplied.
	ListReplied []string
	// Ejected nodes stopped replying; Restored ones reply again.
	Ejected  []string
	Restored []Restoration
	// Concluded are the outcomes of the suspicions that ended.
	Concluded []Outcome
	// Isolated is set if no node replies to this one any more, IsolationEnded if a node replies again.
	Isolated, IsolationEnded bool
	// NextStep is when to call Step again if nothing is reported before.
	NextStep time.Time
}

// Restoration is a node that replies again.
type Restoration struct {
	Node  string
	Since time.Time // when it was ejected
	// Removed is set if the node was removed or its address changed. Whether it replies is unknown.
	Removed bool
}

// Probe is a connection to open from a new port, and to reset at once.
type Probe struct {
	ID      uint64
	Addr    netip.AddrPort
	Timeout time.Duration
}

// Ports returns the port numbers at which nodes are probed, given the port of /healthz.
func Ports(healthz uint16) [apiServer]uint16 {
	return [...]uint16{closedPortNumber, healthz, kubeletPortNumber}
}

// NewDetector returns a detector for all nodes other than self. healthz is the port of /healthz on all nodes.
func NewDetector(self string, healthz uint16, budget Budget) *Detector {
	return &Detector{
		self: self, portNumbers: Ports(healthz), budget: budget,
		nodes: map[string]*node{}, active: map[string]*node{}, suspiciousConnections: map[string]int{}, inFlight: map[uint64]pendingProbe{},
		controls: controls{lastReplies: map[string]time.Time{}},
	}
}

// SetNodes sets the addresses at which nodes are probed, and those of API servers. A node that is new or has a new
// address has no baseline.
func (d *Detector) SetNodes(now time.Time, addrs map[string]netip.Addr, servers []netip.AddrPort) {
	for name, n := range d.nodes {
		if addr, exists := addrs[name]; !exists || addr != n.addr {
			d.removeNode(n)
		}
	}
	for name, addr := range addrs {
		if name != d.self && d.nodes[name] == nil {
			first := now.Add(jitter(d.self, name, firstBaselineWindow(len(addrs))))
			d.nodes[name] = &node{name: name, addr: addr, nextBaseline: first}
		}
	}
	d.names = slices.Sorted(maps.Keys(d.nodes))
	d.servers = nil
	for _, addr := range servers {
		i := slices.IndexFunc(d.names, func(name string) bool { return d.nodes[name].addr == addr.Addr() })
		if i < 0 {
			d.servers = append(d.servers, server{addr: addr})
		} else {
			d.servers = append(d.servers, server{addr, d.nodes[d.names[i]]})
		}
	}
	if len(d.nodes) == 0 {
		d.endIsolation()
	}
}

func (d *Detector) endIsolation() {
	d.pending.IsolationEnded = d.pending.IsolationEnded || d.isolatedSince != nil
	d.isolatedSince = nil
}

func (d *Detector) removeNode(n *node) {
	delete(d.nodes, n.name)
	delete(d.active, n.name)
	delete(d.suspiciousConnections, n.name)
	delete(d.controls.lastReplies, n.name)
	if n.ejection != nil {
		d.pending.Restored = append(d.pending.Restored, Restoration{n.name, n.ejection.since, true})
	}
}

// ReportUnreplied records the nodes that a scan found. A node is listed once for each of its connections that stayed
// unreplied for MinAge, and once more if neighbour discovery does not find its link-layer address.
func (d *Detector) ReportUnreplied(nodes []string) {
	clear(d.suspiciousConnections)
	for _, name := range nodes {
		if n := d.nodes[name]; n != nil && n.suspicion == nil && n.ejection == nil && n.best() != NoReply {
			d.suspiciousConnections[name]++
		}
	}
}

// ReportProbe records the result of a probe and its round-trip time. Every probe must get a result.
func (d *Detector) ReportProbe(now time.Time, id uint64, result ProbeResult, rtt time.Duration) {
	probe, known := d.inFlight[id]
	delete(d.inFlight, id)
	n := probe.node
	if !known || n != nil && d.nodes[n.name] != n {
		return
	}
	if result != NoReply {
		d.endIsolation()
		if probe.isControl {
			d.controls.record(probe)
		}
	}
	switch {
	case n == nil:
	case n.ejection != nil && n.ejection == probe.ejection:
		d.recordEjected(now, n, probe.port, result, rtt)
	case n.ejection != nil:
	case result != NoReply:
		n.recordReply(now, probe.port, result, rtt)
		if n.suspicion != nil {
			d.conclude(now, n, Replied)
		}
	case n.suspicion != nil && n.suspicion == probe.suspicion:
		n.suspicion.unreplied++
	}
	if n != nil && n.ejection == nil && (result != NoReply || n.best() == NoReply) {
		n.retryBaseline(now, len(d.nodes))
	}
}

// recordEjected records the result of a probe of an ejected node. A restored node may be another machine, so its
// baseline is due.
func (d *Detector) recordEjected(now time.Time, n *node, from port, result ProbeResult, rtt time.Duration) {
	best := n.best()
	if result != NoReply {
		n.recordReply(now, from, result, rtt)
	}
	if n.ejection.record(now, from, result, best) {
		n.nextBaseline = now
		d.restore(now, n)
	}
}

// restore ends the ejection of a node.
func (d *Detector) restore(now time.Time, n *node) {
	d.pending.Restored = append(d.pending.Restored, Restoration{n.name, n.ejection.since, false})
	n.ejection, n.lastTransition = nil, now
	delete(d.active, n.name)
}

// ReportReplied records the connections that an endpoint has accepted, for the nodes that Actions.ListReplied named.
// flows contains only connections to endpoints that were on the node when it was previously named or, the first time,
// that are on it now. Other connections may be old and only new to the EndpointSlices. nextFlows contains the
// connections to the endpoints that are on the node now, for the next comparison. If isListed is false, the connections
// could not be listed, and the suspicions start again.
func (d *Detector) ReportReplied(now time.Time, nodes []string, flows, nextFlows []Flow, isListed bool) {
	d.isListing = false
	byNode, nextByNode := groupByNode(flows), groupByNode(nextFlows)
	for _, name := range nodes {
		switch n := d.nodes[name]; {
		case n == nil:
		case n.ejection != nil && isListed:
			// If any probe has a reply, probes alone decide: an unstable or booting node has to reply for a while.
			if n.lastReply.Before(n.ejection.since) && compare(n.ejection.knownFlows, byNode[name]) == proof {
				d.restore(now, n)
			} else {
				n.ejection.knownFlows = idsOf(nextByNode[name])
			}
		case n.suspicion == nil || !n.suspicion.isListing:
		case isListed:
			n.suspicion.addReplied(now, byNode[name])
		default:
			d.conclude(now, n, Inconclusive)
		}
	}
}

func groupByNode(flows []Flow) map[string][]Flow {
	result := map[string][]Flow{}
	for _, flow := range flows {
		result[flow.Node] = append(result[flow.Node], flow)
	}
	return result
}

// Step returns the actions that are due. Call it at NextStep and after each of the other methods.
func (d *Detector) Step(now time.Time) Actions {
	d.evaluateSuspicions(now)
	d.startSuspicions(now)
	active := slices.SortedFunc(maps.Values(d.active), func(a, b *node) int { return cmp.Compare(a.name, b.name) })
	d.probeSuspects(now, active)
	d.probeControls(now)
	d.probeEjected(now, active)
	d.probeBaselines(now)
	actions := d.pending
	d.pending = Actions{}
	actions.NextStep = d.nextStep(now)
	return actions
}

// startSuspicions starts suspicions if the budget allows: first for the nodes whose last suspicion is oldest, then for
// those with the most suspicious connections. So nodes whose endpoints never reply do not keep other nodes from being
// suspected.
func (d *Detector) startSuspicions(now time.Time) {
	tokens := int(d.budget.suspected.TokensAt(now))
	for _, n := range d.active {
		if n.suspicion != nil {
			tokens -= len(n.suspicion.probes) - n.suspicion.sent
		}
	}
	if d.isolatedSince != nil || tokens < probesPerSuspicion {
		return
	}
	var due []*node
	for name := range d.suspiciousConnections {
		if n := d.nodes[name]; n.maySuspect(now) {
			due = append(due, n)
		}
	}
	slices.SortFunc(due, func(a, b *node) int {
		return cmp.Or(a.lastSuspicion.Compare(b.lastSuspicion), cmp.Compare(d.suspiciousConnections[b.name], d.suspiciousConnections[a.name]),
			cmp.Compare(a.name, b.name))
	})
	for _, n := range due[:min(len(due), tokens/probesPerSuspicion)] {
		n.suspicion, n.lastSuspicion = newSuspicion(now, n), now
		d.active[n.name] = n
		delete(d.suspiciousConnections, n.name)
	}
}

// evaluateSuspicions ends the suspicions whose time is over. All nodes that need a list of connections share one.
func (d *Detector) evaluateSuspicions(now time.Time) {
	isEjectedDue := !now.Before(d.nextList)
	var list []string
	for _, name := range slices.Sorted(maps.Keys(d.active)) {
		n := d.active[name]
		if n.suspicion == nil {
			if isEjectedDue && !d.isListing {
				list = append(list, name)
			}
			continue
		}
		if !d.isListing && n.suspicion.needsList(now) {
			n.suspicion.isListing = true
			list = append(list, name)
		}
		if outcome, isOver := n.suspicion.outcome(now, d.controls.anyReplySince(name, n.suspicion.lastProbe)); isOver {
			d.conclude(now, n, outcome)
		}
	}
	if len(list) > 0 {
		d.isListing, d.pending.ListReplied = true, list
		if isEjectedDue {
			d.nextList = now.Add(repliedEvery)
		}
	}
}

// conclude ends a suspicion.
func (d *Detector) conclude(now time.Time, n *node, outcome Outcome) {
	replied := n.suspicion.laterReplied
	n.suspicion = nil
	delete(d.active, n.name)
	if outcome == Inconclusive {
		return
	}
	d.pending.Concluded = append(d.pending.Concluded, outcome)
	switch outcome {
	case Replied, FlowsReplied, Inconclusive:
	case Isolated:
		if d.isolatedSince == nil {
			d.isolatedSince, d.pending.Isolated = &now, true
		}
	case Unreachable:
		n.eject(now, replied)
		d.active[n.name] = n
		d.pending.Ejected = append(d.pending.Ejected, n.name)
	}
}

// probe sends a probe to a node.
func (d *Detector) probe(now time.Time, n *node, to port, timeout time.Duration, flight pendingProbe) {
	if to == kubeletPort {
		n.lastKubeletProbe = now
	}
	flight.node, flight.port = n, to
	d.send(now, netip.AddrPortFrom(n.addr, d.portNumbers[to]), timeout, flight)
}

func (d *Detector) send(now time.Time, addr netip.AddrPort, timeout time.Duration, flight pendingProbe) {
	d.lastProbeID++
	flight.sentAt = now
	d.inFlight[d.lastProbeID] = flight
	d.pending.Probes = append(d.pending.Probes, Probe{d.lastProbeID, addr, timeout})
}

// probeSuspects probes the suspected nodes. From the second probe on, control nodes are probed at the same time, so
// that a short network interruption affects both.
func (d *Detector) probeSuspects(now time.Time, active []*node) {
	for _, n := range active {
		s := n.suspicion
		if s == nil || s.sent == len(s.probes) || now.Before(s.nextProbe) {
			continue
		}
		to := s.probes[s.sent]
		d.probe(now, n, to, s.remaining(), pendingProbe{suspicion: s})
		d.budget.suspected.ReserveN(now, 1)
		s.sent, s.lastProbe, s.nextProbe = s.sent+1, now, now.Add(s.interval())
		d.controls.isRequested = d.controls.isRequested || s.sent > 1
	}
}

// probeEjected probes ejected nodes at all ports that used to reply, and once a minute at the kubelet's. The nodes
// whose round is most overdue come first.
func (d *Detector) probeEjected(now time.Time, active []*node) {
	var due []*node
	for _, n := range active {
		if e := n.ejection; e != nil && e.inFlight == 0 && !now.Before(e.nextRound) {
			due = append(due, n)
		}
	}
	slices.SortStableFunc(due, func(a, b *node) int { return a.ejection.nextRound.Compare(b.ejection.nextRound) })
	for _, n := range due {
		ports, e := n.ports(), n.ejection
		if n.mayProbeKubelet(now) {
			ports = append(ports, kubeletPort)
		}
		if !d.budget.ejected.AllowN(now, len(ports)) {
			return
		}
		e.inFlight, e.nextRound = len(ports), now.Add(ejectedEvery)
		for _, to := range ports {
			d.probe(now, n, to, timeout, pendingProbe{ejection: e})
		}
	}
}

// probeBaselines probes nodes to record their baselines.
func (d *Detector) probeBaselines(now time.Time) {
	if now.Before(d.nextBaselineCheck) {
		return
	}
	d.nextBaselineCheck = now.Add(time.Second)
	sent := 0
	for _, name := range d.names {
		n := d.nodes[name]
		if sent == maxBaselineBurst || now.Before(n.nextBaseline) {
			continue
		}
		sent++
		n.nextBaseline = now.Add(baselineEvery)
		for to := range kubeletPort {
			if n.suspicion == nil && n.ejection == nil {
				d.probe(now, n, to, timeout, pendingProbe{isBaseline: true})
			}
		}
	}
}

func earlier(a, b time.Time) time.Time { return slices.MinFunc([]time.Time{a, b}, time.Time.Compare) }

// nextStep returns when something is due even if nothing is reported.
func (d *Detector) nextStep(now time.Time) time.Time {
	next := now.Add(idleStep)
	for _, n := range d.active {
		switch {
		case n.suspicion != nil && n.suspicion.sent < len(n.suspicion.probes):
			next = earlier(next, n.suspicion.nextProbe)
		case n.suspicion != nil && now.Before(n.suspicion.deadline()):
			next = earlier(next, n.suspicion.deadline())
		case n.ejection != nil && n.ejection.inFlight == 0:
			next = earlier(next, n.ejection.nextRound)
		}
	}
	if d.controls.isRequested || d.isolatedSince != nil {
		next = earlier(next, d.controls.nextRound)
	}
	return now.Add(max(next.Sub(now), 10*time.Millisecond))
}

// HasReplied reports whether a node has ever replied.
func (d *Detector) HasReplied(name string) bool {
	n := d.nodes[name]
	return n != nil && n.best() != NoReply
}

// IsActive reports whether a node is suspected or ejected.
func (d *Detector) IsActive(name string) bool { return d.active[name] != nil }

// IsEjected reports whether a node is ejected.
func (d *Detector) IsEjected(name string) bool {
	return d.IsActive(name) && d.nodes[name].ejection != nil
}
