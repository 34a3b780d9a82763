//go:build linux

package accounting

import (
	"hash/maphash"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/serviceindex"
)

const (
	// longFlowBytes is the number of bytes beyond which a connection is counted before it ends.
	longFlowBytes = 1 << 20
	// maxTracked limits the tracked flows: about 10 MB. Other flows are counted when they end.
	maxTracked = 100_000
	// missingGrace is how long a flow must be missing in dumps before it is dropped: its DESTROY event may still be in
	// flight.
	missingGrace = 2 * time.Minute
)

// flowTracker records the counts of flows that have not ended.
//
// A small flow is counted once, at its end. So it is counted once across a restart, too: only one process, the earlier
// one or this one, receives the DESTROY event. A long flow is counted incrementally; its bytes before the first dump
// belong to the earlier process.
//
// A DESTROY event lacks the label that shows which program translated the connection. So a flow is also tracked if its
// DESTROY event alone would be attributed differently than its entry in a dump. It is counted like any other.
type flowTracker struct {
	seed  maphash.Seed
	flows map[key]trackedFlow
	// awaitsFirstDump is true until the first complete dump.
	awaitsFirstDump bool
	// dumping is true during a dump. Some of its flows may have ended since the kernel read them; ended contains those of
	// them that the dump could start to track.
	dumping    bool
	ended      map[key]bool
	dumpNumber uint32 // number of the current dump
	missed     Missed
}

// Missed counts connections that were not counted, or not fully.
type Missed struct {
	// OtherProgram counts ended connections that another program had translated.
	OtherProgram uint64
	// CountersReset counts connections whose counters another program reset to zero: their traffic since the last count is
	// lost. A reset is not detected if the connection exceeds its last count again before the next dump.
	CountersReset uint64
	// NoCounters counts connections that were counted without their bytes, because the kernel had no byte counters when
	// they began.
	NoCounters uint64
}

// key identifies an entry by its ID and both tuples. The kernel derives IDs from memory addresses, and reuses those.
type key struct {
	tuples uint64
	id     uint32
}

// trackedFlow is the state of a tracked flow.
type trackedFlow struct {
	origin              *serviceindex.Attribution // nil if another program translated it
	counted             Traffic
	countedAsConnection bool
	lastDump            uint32
	missingSince        uint32 // since when it is missing in dumps, in Unix seconds; 0 if the last dump had it
}

func newFlowTracker() flowTracker {
	return flowTracker{seed: maphash.MakeSeed(), flows: map[key]trackedFlow{}, ended: map[key]bool{}, awaitsFirstDump: true}
}

// tuples are hashed into a key.
type tuples struct {
	protocol        model.Protocol
	original, reply conntrack.Tuple
}

func (t *flowTracker) keyOf(e *conntrack.Entry) key {
	return key{maphash.Comparable(t.seed, tuples{e.Protocol, e.Original, e.Reply}), e.ID}
}

func trafficOf(e *conntrack.Entry) Traffic { return Traffic{e.Sent.Bytes, e.Received.Bytes} }

func isLong(e *conntrack.Entry) bool { return e.Sent.Bytes+e.Received.Bytes > longFlowBytes }

// IsClosed reports whether a connection whose entry still exists is closed, so that it moves no more data.
func IsClosed(e *conntrack.Entry) bool {
	switch e.Protocol {
	case model.TCP:
		return e.State == conntrack.TCPTimeWait || e.State == conntrack.TCPClose
	case model.SCTP:
		return e.State == conntrack.SCTPClosed
	case model.UDP:
	}
	return false
}

// isReplied reports whether a connection was established.
func isReplied(e *conntrack.Entry) bool {
	return e.Status&conntrack.SeenReply != 0 && !isConnectionRefused(e)
}

// isConnectionRefused reports whether a connection attempt got a reset, or in SCTP an ABORT. Conntrack does not count a
// reset as a reply, and deletes the entry with it: only the DESTROY event shows it. UDP is refused by ICMP, which leaves
// no trace in an entry.
func isConnectionRefused(e *conntrack.Entry) bool {
	switch e.Protocol {
	case model.TCP:
		hasReply := e.Received.Packets > 0 || !e.IsCounted && e.State == conntrack.TCPClose
		return e.Status&conntrack.SeenReply == 0 && hasReply
	case model.SCTP:
		return e.Status&(conntrack.SeenReply|conntrack.Assured) == conntrack.SeenReply && e.State == conntrack.SCTPClosed
	case model.UDP:
	}
	return false
}

// uncounted returns the part of an entry that is not counted yet. If the entry has less than was counted, its counters
// were reset to zero: then uncounted returns all of it, and the traffic in between is lost.
func (t *flowTracker) uncounted(flow *trackedFlow, e *conntrack.Entry) (count Count) {
	current, counted := trafficOf(e), flow.counted
	if current.Sent < counted.Sent || current.Received < counted.Received {
		t.missed.CountersReset++
		counted = Traffic{}
	}
	count.Traffic = Traffic{current.Sent - counted.Sent, current.Received - counted.Received}
	if !flow.countedAsConnection && isReplied(e) {
		count.Connections = 1
	}
	return count
}

// onDestroy returns the count to add for a destroyed entry, and its attribution; nil if there is nothing to count. The
// origin argument is the attribution by the DESTROY event alone.
func (t *flowTracker) onDestroy(e *conntrack.Entry, origin *serviceindex.Attribution) (*serviceindex.Attribution, Count) {
	if e.Status&conntrack.DestinationNAT == 0 {
		return nil, Count{}
	}
	k := t.keyOf(e)
	if t.dumping && isLong(e) {
		t.ended[k] = true
	}
	flow, isTracked := t.flows[k]
	delete(t.flows, k)
	switch {
	case !isTracked && isLong(e) && t.dumping && t.awaitsFirstDump:
		return nil, Count{} // an earlier process may have counted an unknown part of it
	case !isTracked:
		flow.origin = origin
	}
	if flow.origin == nil {
		t.missed.OtherProgram++
		return nil, Count{}
	}
	if !e.IsCounted {
		t.missed.NoCounters++
	}
	count := t.uncounted(&flow, e)
	switch {
	case flow.countedAsConnection, count.Connections > 0:
	case isConnectionRefused(e):
		count.Refused = 1
	default:
		count.Unreplied = 1
	}
	return flow.origin, count
}

func (t *flowTracker) beginDump() {
	t.dumping = true
	t.dumpNumber++
}

// onEntry returns the count to add for an entry of a dump, and its attribution; nil if there is nothing to count. atEnd
// is the attribution that the DESTROY event alone would give.
func (t *flowTracker) onEntry(e *conntrack.Entry, origin, atEnd *serviceindex.Attribution) (*serviceindex.Attribution, Count) {
	isTrackable := t.shouldTrack(e) && origin != nil
	if len(t.flows) == 0 && !isTrackable && origin == atEnd {
		return nil, Count{}
	}
	k := t.keyOf(e)
	flow, isTracked := t.flows[k]
	if !isTracked {
		if t.ended[k] || len(t.flows) >= maxTracked || !isTrackable && origin == atEnd {
			return nil, Count{}
		}
		flow.origin = origin
	}
	flow.lastDump, flow.missingSince = t.dumpNumber, 0
	var count Count
	switch {
	case flow.origin == nil:
	case !isTracked && isTrackable && t.awaitsFirstDump:
		flow.counted, flow.countedAsConnection = trafficOf(e), true
	case isTrackable || flow.counted != Traffic{}:
		count = t.uncounted(&flow, e)
		flow.counted, flow.countedAsConnection = trafficOf(e), flow.countedAsConnection || count.Connections > 0
	}
	t.flows[k] = flow
	return flow.origin, count
}

// shouldTrack reports whether an untracked flow should be tracked. The entry of a closed flow expires soon, so it is
// not tracked. But before the first dump, an earlier process may have counted part of it.
func (t *flowTracker) shouldTrack(e *conntrack.Entry) bool {
	return isLong(e) && (t.awaitsFirstDump || !IsClosed(e))
}

// endDump ends a dump, and drops flows that have been missing in dumps for missingGrace without a DESTROY event.
func (t *flowTracker) endDump(isComplete bool, now time.Time) {
	t.dumping = false
	clear(t.ended)
	if !isComplete {
		return
	}
	t.awaitsFirstDump = false
	nowSeconds := uint32(now.Unix())
	for k, flow := range t.flows {
		switch {
		case flow.lastDump == t.dumpNumber:
		case flow.missingSince == 0:
			flow.missingSince = nowSeconds
			t.flows[k] = flow
		case nowSeconds-flow.missingSince >= uint32(missingGrace/time.Second):
			delete(t.flows, k)
		}
	}
}
