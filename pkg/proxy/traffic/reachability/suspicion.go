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

// Outcome is how a suspicion ended.
type Outcome string

// The outcomes.
const (
	Replied      Outcome = "replied"       // the node replies
	FlowsReplied Outcome = "flows_replied" // it replies to others: probes are dropped on their way
	Isolated     Outcome = "isolated"      // nobody replies: this node is isolated
	Unreachable  Outcome = "unreachable"   // it does not reply, and others do
	Inconclusive Outcome = ""              // nothing is known: start again
)

// Outcomes are those that are counted.
var Outcomes = []string{string(Replied), string(FlowsReplied), string(Isolated), string(Unreachable)}

// suspicion is the time that a suspected node has to reply. One reply ends it.
type suspicion struct {
	start   time.Time
	timeout time.Duration
	// probes are the ports to probe, one after the other. sent are how many probes were sent, unanswered how many of them
	// are known to have no reply.
	probes               []port
	sent, unreplied      int
	lastProbe, nextProbe time.Time
	// before and after are the connections to the node's endpoints that have a reply: those after the first probe had none,
	// and those after the timeout. Nil until they are reported.
	before  map[uint32]bool
	after   []Flow
	isAfter bool // after was reported
	listing bool // and a list is awaited
}

// newSuspicion starts a suspicion of a node. Its kubelet comes last, and not more often than once a minute.
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

// interval is the time between two probes: the last one is sent after three quarters of the timeout, so that a node that
// was away for a second is seen.
func (s *suspicion) interval() time.Duration {
	return s.timeout * 3 / 4 / time.Duration(len(s.probes)-1)
}

// remaining is how long the timeout is from the next probe on. Whatever delays a probe extends the timeout.
func (s *suspicion) remaining() time.Duration {
	return s.timeout - time.Duration(s.sent)*s.interval()
}

// deadline is when the timeout is over, once all probes are sent.
func (s *suspicion) deadline() time.Time {
	return s.lastProbe.Add(s.timeout / 4)
}

// needsReplied reports whether the connections with a reply are to be listed now.
func (s *suspicion) needsReplied(now time.Time) bool {
	if s.before == nil {
		return !s.listing && s.sent > 1 // and the first probe has no reply yet
	}
	return !s.listing && !s.isAfter && s.isExpired(now)
}

// isExpired reports whether all probes have failed.
func (s *suspicion) isExpired(now time.Time) bool {
	return s.sent == len(s.probes) && s.unreplied >= s.sent && !now.Before(s.deadline())
}

// addReplied takes the connections to the node's endpoints that have a reply.
func (s *suspicion) addReplied(flows []Flow) {
	if s.listing = false; s.before == nil {
		s.before = idsOf(flows)
	} else {
		s.after, s.isAfter = flows, true
	}
}

// outcome concludes a suspicion whose probes have failed. othersReply says whether others replied to a probe that was
// sent no earlier than the last probe of this suspicion.
func (s *suspicion) outcome(now time.Time, othersReply bool) (outcome Outcome, isOver bool) {
	switch {
	case now.Sub(s.start) > 3*s.timeout:
		return Inconclusive, true
	case !s.isExpired(now) || !s.isAfter:
		return "", false
	case isProof(s.before, s.after):
		return FlowsReplied, true
	case !othersReply: // they have as long as any probe
		return Isolated, !now.Before(s.lastProbe.Add(timeout))
	}
	return Unreachable, true
}

// isProof reports whether connections prove that a node is well: new ones have a reply, to two endpoints or from two
// clients. One pod alone may reply in the name of an endpoint.
func isProof(known map[uint32]bool, replied []Flow) bool {
	var first *Flow
	for i := range replied {
		flow := &replied[i]
		switch {
		case known[flow.ID]:
		case first == nil:
			first = flow
		case first.Client != flow.Client || first.Endpoint != flow.Endpoint:
			return true
		}
	}
	return false
}

func idsOf(flows []Flow) map[uint32]bool {
	ids := make(map[uint32]bool, len(flows))
	for i := range flows {
		ids[flows[i].ID] = true
	}
	return ids
}
