package reachability

import (
	"net/netip"
	"time"
)

// Flow is a connection that our tables translated to an endpoint on a node.
type Flow struct {
	ID       uint32 // the conntrack ID, stable for the lifetime of the entry
	Client   netip.Addr
	Endpoint netip.AddrPort
	Node     string // the node that hosts the endpoint
}

// Outcome is the result of a suspicion.
type Outcome string

// The outcomes.
const (
	Replied      Outcome = "replied"       // the node replies
	FlowsReplied Outcome = "flows_replied" // new connections to its endpoints have a reply, so only probes are dropped
	Isolated     Outcome = "isolated"      // no node replies: this node is isolated
	Unreachable  Outcome = "unreachable"   // the node does not reply, and others do
	Inconclusive Outcome = ""              // start again
)

// Outcomes are the outcomes that are counted.
var Outcomes = []string{string(Replied), string(FlowsReplied), string(Isolated), string(Unreachable)}

// suspicion is the state of a suspected node that still has time to reply. One reply ends it.
type suspicion struct {
	start   time.Time
	timeout time.Duration
	// probes are the ports to probe, in order. sent counts the probes sent, unreplied those of them that timed out.
	probes               []port
	sent, unreplied      int
	lastProbe, nextProbe time.Time
	windowStart          time.Time // when connections were listed, other than for the last time
	// earlierReplied and laterReplied are the connections to the node's endpoints that have a reply. The earlier ones are
	// listed after the first probe had no reply, the later ones when the timeout has expired, and once more if a new
	// connection is among them that proves nothing alone.
	earlierReplied map[uint32]bool
	laterReplied   []Flow
	hasLater       bool // laterReplied was reported; earlierReplied is nil until it is
	isExtended     bool // the timeout was extended for another list
	isListing      bool // a list of connections is pending
}

// newSuspicion starts a suspicion of a node. Its last probe goes to the kubelet, at most once a minute.
func newSuspicion(now time.Time, n *node) *suspicion {
	s := &suspicion{start: now, nextProbe: now, timeout: timeout}
	if n.isFast() {
		s.timeout = shortTimeout
	}
	ports := n.ports()
	for i := range probesPerSuspicion {
		s.probes = append(s.probes, ports[i%len(ports)])
	}
	if n.mayProbeKubelet(now) {
		s.probes[probesPerSuspicion-1] = kubeletPort
	}
	return s
}

// interval returns the time between two probes. The last probe is sent after three quarters of the timeout, so that a
// node that was unreachable for only a second can still reply.
func (s *suspicion) interval() time.Duration {
	return s.timeout * 3 / 4 / time.Duration(len(s.probes)-1)
}

// remaining returns the timeout of the next probe. A delayed probe extends the timeout.
func (s *suspicion) remaining() time.Duration {
	return s.timeout - time.Duration(s.sent)*s.interval()
}

// deadline returns when the timeout expires, once all probes are sent. Until the last list there are at least three
// quarters of a timeout for connections that can prove that the node is healthy, and a whole one if it is extended.
func (s *suspicion) deadline() time.Time {
	expiry, window := s.lastProbe.Add(s.timeout/4), s.timeout*3/4
	if s.isExtended {
		window = s.timeout
	}
	if end := s.windowStart.Add(window); expiry.Before(end) {
		return end
	}
	return expiry
}

// needsList reports whether the connections with a reply are to be listed now.
func (s *suspicion) needsList(now time.Time) bool {
	if s.earlierReplied == nil {
		return !s.isListing && s.sent > 1 // the first probe had no reply until the second was sent
	}
	return !s.isListing && !s.hasLater && s.isExpired(now)
}

// isExpired reports whether all probes have failed.
func (s *suspicion) isExpired(now time.Time) bool {
	return s.sent == len(s.probes) && s.unreplied >= s.sent && !now.Before(s.deadline())
}

// addReplied records the connections to the node's endpoints that have a reply.
func (s *suspicion) addReplied(now time.Time, flows []Flow) {
	s.isListing = false
	switch {
	case s.earlierReplied == nil:
		s.earlierReplied, s.windowStart = idsOf(flows), now
	case compare(s.earlierReplied, flows) == hint && !s.isExtended:
		s.isExtended, s.windowStart = true, now
	default:
		s.laterReplied, s.hasLater = flows, true
	}
}

// outcome concludes a suspicion whose probes have failed. othersReply reports whether any control replied to a probe
// that was sent no earlier than the last probe of this suspicion.
func (s *suspicion) outcome(now time.Time, othersReply bool) (outcome Outcome, isOver bool) {
	switch {
	case now.Sub(s.start) > 3*s.timeout:
		return Inconclusive, true
	case !s.isExpired(now) || !s.hasLater:
		return "", false
	case compare(s.earlierReplied, s.laterReplied) == proof:
		return FlowsReplied, true
	case !othersReply: // controls have the full timeout, like any probe
		return Isolated, !now.Before(s.lastProbe.Add(timeout))
	}
	return Unreachable, true
}

// evidence is what connections with a reply show about their node.
type evidence uint8

const (
	noEvidence evidence = iota
	// hint means that some are new, but they have the same client and endpoint: a single pod can send replies in the name
	// of an endpoint.
	hint
	// proof means that the node is healthy: new ones involve two endpoints or two clients.
	proof
)

// compare returns the evidence in a list of connections, given those that are known already.
func compare(known map[uint32]bool, replied []Flow) evidence {
	var first *Flow
	for i := range replied {
		flow := &replied[i]
		switch {
		case known[flow.ID]:
		case first == nil:
			first = flow
		case first.Client != flow.Client || first.Endpoint != flow.Endpoint:
			return proof
		}
	}
	if first != nil {
		return hint
	}
	return noEvidence
}

func idsOf(flows []Flow) map[uint32]bool {
	ids := make(map[uint32]bool, len(flows))
	for i := range flows {
		ids[flows[i].ID] = true
	}
	return ids
}
