package reachability

import (
	"cmp"
	"hash/fnv"
	"net/netip"
	"slices"
	"time"
)

// ProbeResult is the result of a probe.
type ProbeResult uint8

// The results. NoReply includes probes that this machine could not send; then no control has a reply either.
const (
	NoReply ProbeResult = iota
	Reset               // the node resets the connection
	Accepted
)

// port is one of the ports at which a node is probed.
type port uint8

const (
	closedPort  port = iota // nothing listens there, so the node's kernel resets
	healthPort              // the proxies' /healthz
	kubeletPort             // has no baseline: it is probed only during suspicions and ejections
	apiServer               // an API server's port; nodes have no such port
)

// node is the state of one other node.
type node struct {
	name string
	addr netip.Addr
	// baselines are the best results of the closed port and the health port so far.
	baselines        [kubeletPort]baseline
	lastReply        time.Time
	nextBaseline     time.Time
	baselineTries    int // how often it was missing after a probe
	suspicion        *suspicion
	lastSuspicion    time.Time // when the last suspicion began
	lastKubeletProbe time.Time // when its kubelet was probed
	// onlyKubelet is set if the last reply came from the kubelet, which is probed only while the other ports do not reply.
	onlyKubelet bool
	ejection    *ejection
	ejections   int
	// lastTransition is when the node was last ejected or restored.
	lastTransition time.Time
}

// baseline is the best result of a port and the time that its last reply took. The result is NoReply if the port never
// replied.
type baseline struct {
	result ProbeResult
	rtt    time.Duration
}

// ejection is the state of an ejected node: what it still needs to be restored.
type ejection struct {
	since         time.Time
	repliedRounds int // consecutive rounds of probes with a reply
	neededRounds  int
	nextRound     time.Time
	inFlight      int         // probes of this round without a result yet
	roundResult   ProbeResult // the best result of this round, without the kubelet's
	kubeletResult ProbeResult
	weakSince     time.Time       // since when it replies, but with a weaker result than its best; else zero
	knownFlows    map[uint32]bool // connections that had a reply in the last list
}

// jitter returns a fraction of a duration that depends on both the probing and the probed node. So a node does not
// probe all others at once, and no node is probed by all others at once.
func jitter(from, to string, over time.Duration) time.Duration {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(from + "/" + to))
	return time.Duration(hash.Sum64() % uint64(over))
}

// firstBaselineWindow returns the time within which the given number of nodes are probed for the first time.
func firstBaselineWindow(nodes int) time.Duration {
	return min(baselineWithin, max(time.Second, time.Duration(nodes)*baselineEach))
}

// best returns the best result in the node's baselines.
func (n *node) best() ProbeResult {
	return max(n.baselines[closedPort].result, n.baselines[healthPort].result)
}

// ports returns the ports that used to reply.
func (n *node) ports() (replying []port) {
	for p, b := range n.baselines {
		if b.result != NoReply {
			replying = append(replying, port(p))
		}
	}
	return replying
}

// mayProbeKubelet reports whether the node's kubelet may be probed again.
func (n *node) mayProbeKubelet(now time.Time) bool {
	return n.lastKubeletProbe.IsZero() || now.Sub(n.lastKubeletProbe) >= kubeletEvery
}

// maySuspect reports whether a suspicion may begin. If only the kubelet replies, the kubelet must be due for a probe,
// too.
func (n *node) maySuspect(now time.Time) bool {
	return now.Sub(n.lastSuspicion) >= suspectEvery && (!n.onlyKubelet || n.mayProbeKubelet(now))
}

// isFast reports whether all ports that used to reply did so within fastRTT.
func (n *node) isFast() bool {
	return n.best() != NoReply && !slices.ContainsFunc(n.baselines[:], func(b baseline) bool { return b.rtt >= fastRTT })
}

// retryBaseline sets when a baseline that is missing or slow is recorded again, in a cluster with this many nodes: at
// once if only the kubelet replied, because the node may have been unreachable for a moment, else with a backoff.
func (n *node) retryBaseline(now time.Time, nodes int) {
	retry := now.Add(min(max(baselineRetry, firstBaselineWindow(nodes))<<n.baselineTries, baselineEvery))
	switch {
	case n.onlyKubelet:
		n.nextBaseline = now
	case n.isFast():
		n.baselineTries = 0
	case retry.Before(n.nextBaseline):
		n.nextBaseline, n.baselineTries = retry, min(n.baselineTries+1, 9)
	}
}

// recordReply records a reply from a port.
func (n *node) recordReply(now time.Time, from port, result ProbeResult, rtt time.Duration) {
	n.lastReply, n.onlyKubelet = now, from == kubeletPort
	if int(from) < len(n.baselines) {
		b := &n.baselines[from]
		b.result, b.rtt = max(b.result, result), rtt
	}
}

// eject marks the node as ejected. replied are the connections to its endpoints that have a reply.
func (n *node) eject(now time.Time, replied []Flow) {
	if n.ejections > 0 && now.Sub(n.lastTransition) >= quietPeriod {
		n.ejections = 0
	}
	n.ejections++
	needed := min(1<<(2*min(n.ejections-1, 8)), maxReplies)
	n.lastTransition, n.suspicion = now, nil
	n.ejection = &ejection{since: now, neededRounds: needed, nextRound: now.Add(ejectedEvery), knownFlows: idsOf(replied)}
}

// record records the result of a probe and reports whether the node is to be restored. A round of probes is over when
// all its results are reported; its best result counts. A booting kernel resets connections before its pods run. So if
// a node used to accept connections and only resets them, it is restored a minute later. The kubelet runs before pods
// do, so its result counts only if no other port replies.
func (e *ejection) record(now time.Time, from port, result, best ProbeResult) bool {
	if from == kubeletPort {
		e.kubeletResult = result
	} else {
		e.roundResult = max(e.roundResult, result)
	}
	if e.inFlight--; e.inFlight > 0 {
		return false
	}
	round := cmp.Or(e.roundResult, e.kubeletResult)
	e.roundResult, e.kubeletResult = NoReply, NoReply
	switch {
	case round == NoReply:
		e.repliedRounds, e.weakSince = 0, time.Time{}
		return false
	case round < best && e.weakSince.IsZero():
		e.weakSince = now
		return false
	case round < best && now.Sub(e.weakSince) < weakGrace:
		return false
	}
	e.repliedRounds++
	return e.repliedRounds >= e.neededRounds
}
