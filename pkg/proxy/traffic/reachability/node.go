package reachability

import (
	"cmp"
	"hash/fnv"
	"net/netip"
	"time"
)

// ProbeResult is the result of a probe.
type ProbeResult uint8

// The results. A probe that this machine could not send has no reply either: then those of others have none.
const (
	NoReply ProbeResult = iota
	Reset               // the node refuses the connection
	Accepted
)

// port is one of the ports at which a node is probed.
type port uint8

const (
	closedPort  port = iota // nothing listens there, and the node's kernel resets
	healthPort              // of the proxies' own /healthz
	kubeletPort             // has no baseline: it is probed only in a suspicion
	apiServer               // the port of an API server, which no node has
)

// node is one other node.
type node struct {
	name string
	addr netip.Addr
	// baselines are how the closed port and the health port reply.
	baselines     [kubeletPort]baseline
	lastReply     time.Time
	nextBaseline  time.Time
	baselineTries int // how many rounds of baseline probes in a row had no reply
	suspicion     *suspicion
	lastSuspicion time.Time // when the last one began
	lastKubelet   time.Time // when its kubelet was probed
	// onlyKubelet: the last one that replied was the kubelet, since the other ports were silent.
	onlyKubelet bool
	ejection    *ejection
	ejections   int
	// lastTransition is when it was last ejected or restored.
	lastTransition time.Time
}

// baseline is how a port replies: NoReply if it never did.
type baseline struct {
	result ProbeResult
	rtt    time.Duration
}

// ejection says what a node that does not reply has to do to be restored.
type ejection struct {
	since      time.Time
	replies    int // rounds of probes in a row with a reply
	needed     int
	nextRound  time.Time
	inFlight   int         // probes of this round
	round      ProbeResult // the best result of this round, without the kubelet's
	kubelet    ProbeResult
	weakSince  time.Time       // since when it replies, but not as well as it used to; zero if it does not
	knownFlows map[uint32]bool // the connections that had a reply when they were listed last
}

// jitter is a fraction of a time that depends on the probed node and on the probing one: so not all nodes are probed at
// once, and no node is probed by all at once.
func jitter(from, to string, over time.Duration) time.Duration {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(from + "/" + to))
	return time.Duration(hash.Sum64() % uint64(over))
}

// firstBaselines is the time within which a given number of nodes are probed for the first time.
func firstBaselines(nodes int) time.Duration {
	return min(baselineWithin, max(time.Second, time.Duration(nodes)*baselineEach))
}

// best is the best result that the node's ports used to have.
func (n *node) best() ProbeResult {
	return max(n.baselines[closedPort].result, n.baselines[healthPort].result)
}

// ports returns those that used to reply.
func (n *node) ports() (replying []port) {
	for p, baseline := range n.baselines {
		if baseline.result != NoReply {
			replying = append(replying, port(p))
		}
	}
	return replying
}

// mayProbeKubelet reports whether its kubelet may be probed again.
func (n *node) mayProbeKubelet(now time.Time) bool {
	return n.lastKubelet.IsZero() || now.Sub(n.lastKubelet) >= kubeletEvery
}

// maySuspect reports whether a suspicion may begin. Where only the kubelet replies, it must be possible to probe that.
func (n *node) maySuspect(now time.Time) bool {
	return now.Sub(n.lastSuspicion) >= suspectEvery && (!n.onlyKubelet || n.mayProbeKubelet(now))
}

// isFast reports whether all ports that used to reply did so at once.
func (n *node) isFast() bool {
	for _, baseline := range n.baselines {
		if baseline.result != NoReply && baseline.rtt >= fastRTT {
			return false
		}
	}
	return true
}

// recordReply takes in a reply of a port.
func (n *node) recordReply(now time.Time, from port, result ProbeResult, rtt time.Duration) {
	n.lastReply, n.baselineTries, n.onlyKubelet = now, 0, from == kubeletPort
	if int(from) < len(n.baselines) {
		baseline := &n.baselines[from]
		baseline.result, baseline.rtt = max(baseline.result, result), rtt
	}
}

// eject notes that a node does not reply any more. The connections are those to its endpoints that have a reply.
func (n *node) eject(now time.Time, replied []Flow) {
	if n.ejections > 0 && now.Sub(n.lastTransition) >= quietPeriod {
		n.ejections = 0
	}
	n.ejections++
	needed := min(1<<(2*min(n.ejections-1, 8)), maxReplies)
	n.lastTransition, n.suspicion = now, nil
	n.ejection = &ejection{since: now, needed: needed, nextRound: now.Add(ejectedEvery), knownFlows: idsOf(replied)}
}

// record takes in the result of a probe, and reports whether the node is to be restored. A round of probes is over when
// all its results are there: its best result counts. A kernel that boots resets before its pods run, so a node that used
// to accept connections and only resets them is restored a minute later. The kubelet runs before pods do: it counts only if
// no other port replies.
func (e *ejection) record(now time.Time, from port, result, best ProbeResult) bool {
	if from == kubeletPort {
		e.kubelet = result
	} else {
		e.round = max(e.round, result)
	}
	if e.inFlight--; e.inFlight > 0 {
		return false
	}
	round := cmp.Or(e.round, e.kubelet)
	e.round, e.kubelet = NoReply, NoReply
	switch {
	case round == NoReply:
		e.replies, e.weakSince = 0, time.Time{}
		return false
	case round < best && e.weakSince.IsZero():
		e.weakSince = now
		return false
	case round < best && now.Sub(e.weakSince) < weakFor:
		return false
	}
	e.replies++
	return e.replies >= e.needed
}
