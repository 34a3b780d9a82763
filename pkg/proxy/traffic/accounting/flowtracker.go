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
	// longFlowBytes is how many bytes a connection must have moved to be counted before it ends.
	longFlowBytes = 1 << 20
	// maxTracked is how many of these there are at most: some 10 MB. Others count when they end.
	maxTracked = 100_000
	// missingGrace is how long a flow must be missing in dumps until it is forgotten: the report of its end may still be on
	// its way.
	missingGrace = 2 * time.Minute
)

// flowTracker remembers what was counted of flows that have not ended.
//
// A small flow is counted once, at its end. So a restart counts it once, too: only one process, the earlier one or this
// one, hears of the end. A long flow is counted bit by bit, and what it moved before the first dump was the earlier
// process's to count.
//
// The report of an end does not have the label that says whose a connection is. So a flow is followed, too, if its end
// alone would be taken for another origin's than the one that a dump knows; it is counted as any other.
type flowTracker struct {
	seed  maphash.Seed
	flows map[key]trackedFlow
	// isFirst: no dump has been complete yet.
	isFirst bool
	// dumping: a dump is going on. Some of the flows in it may have ended since the kernel was asked; those among them that
	// it might begin to follow are in ended.
	dumping    bool
	ended      map[key]bool
	dumpNumber uint32 // number of the dump
	missed     Missed
}

// Missed counts connections that were not counted, or not wholly.
type Missed struct {
	// OtherProgram ended, and another program had translated them.
	OtherProgram uint64
	// CountersReset are connections whose counters somebody set to zero: what they had moved since they were counted last
	// is lost. One that has moved more again until it is looked at is not noticed.
	CountersReset uint64
	// NoCounters were counted without their bytes: the kernel counted none when they began.
	NoCounters uint64
}

// key names an entry: by its id, and by both tuples. The kernel derives ids from addresses in memory, and reuses those.
type key struct {
	tuples uint64
	id     uint32
}

// trackedFlow is a flow.
type trackedFlow struct {
	origin              *serviceindex.Attribution // nil if another program translated it
	counted             Traffic
	countedAsConnection bool // counted as a connection
	lastDump            uint32
	missing             uint32 // since when, in seconds; 0 if the last dump had it
}

func newFollower() flowTracker {
	return flowTracker{seed: maphash.MakeSeed(), flows: map[key]trackedFlow{}, ended: map[key]bool{}, isFirst: true}
}

// tuples are what a key is made of.
type tuples struct {
	protocol        model.Protocol
	original, reply conntrack.Tuple
}

func (f *flowTracker) keyOf(e *conntrack.Entry) key {
	return key{maphash.Comparable(f.seed, tuples{e.Protocol, e.Original, e.Reply}), e.ID}
}

func trafficOf(e *conntrack.Entry) Traffic { return Traffic{e.Sent.Bytes, e.Received.Bytes} }

func isLong(e *conntrack.Entry) bool { return e.Sent.Bytes+e.Received.Bytes > longFlowBytes }

// IsClosed reports whether nothing more is moved by a connection whose entry is still there.
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

// isReplied reports whether a connection came about.
func isReplied(e *conntrack.Entry) bool {
	return e.Status&conntrack.SeenReply != 0 && !isConnectionRefused(e)
}

// isConnectionRefused reports whether a dial was answered by a reset, or in SCTP by an ABORT. Conntrack does not take a reset for a
// reply, and forgets the connection with it: only the report of its end shows it. UDP is refused by ICMP, of which an
// entry knows nothing.
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

// rest returns what an entry has beyond what is counted of its flow. If it has less than that, somebody has set its
// counters to zero: then it is all that it has, and what it moved between is lost.
func (f *flowTracker) rest(flow *trackedFlow, e *conntrack.Entry) (count Count) {
	now, before := trafficOf(e), flow.counted
	if now.Sent < before.Sent || now.Received < before.Received {
		f.missed.CountersReset++
		before = Traffic{}
	}
	count.Traffic = Traffic{now.Sent - before.Sent, now.Received - before.Received}
	if !flow.countedAsConnection && isReplied(e) {
		count.Connections = 1
	}
	return count
}

// onDestroy returns what is to be counted for an entry that has ended, and the origin to count it for; nil if nothing is. The
// origin that is passed is what the end alone tells.
func (f *flowTracker) onDestroy(e *conntrack.Entry, origin *serviceindex.Attribution) (*serviceindex.Attribution, Count) {
	if e.Status&conntrack.DestinationNAT == 0 {
		return nil, Count{}
	}
	name := f.keyOf(e)
	if f.dumping && isLong(e) {
		f.ended[name] = true
	}
	flow, isFollowed := f.flows[name]
	delete(f.flows, name)
	switch {
	case !isFollowed && isLong(e) && f.dumping && f.isFirst:
		return nil, Count{} // an earlier process may have counted some of it, and we cannot know how much
	case !isFollowed:
		flow.origin = origin
	}
	if flow.origin == nil {
		f.missed.OtherProgram++
		return nil, Count{}
	}
	if !e.IsCounted {
		f.missed.NoCounters++
	}
	count := f.rest(&flow, e)
	switch {
	case flow.countedAsConnection, count.Connections > 0:
	case isConnectionRefused(e):
		count.Refused = 1
	default:
		count.Unreplied = 1
	}
	return flow.origin, count
}

func (f *flowTracker) beginDump() {
	f.dumping = true
	f.dumpNumber++
}

// onEntry returns what is to be counted for an entry in a dump, and the origin to count it for; nil if nothing is. AtEnd is
// the origin that its end alone would tell.
func (f *flowTracker) onEntry(e *conntrack.Entry, origin, atEnd *serviceindex.Attribution) (*serviceindex.Attribution, Count) {
	isWanted := f.shouldTrack(e) && origin != nil
	if len(f.flows) == 0 && !isWanted && origin == atEnd {
		return nil, Count{}
	}
	name := f.keyOf(e)
	flow, isFollowed := f.flows[name]
	if !isFollowed {
		if f.ended[name] || len(f.flows) >= maxTracked || !isWanted && origin == atEnd {
			return nil, Count{}
		}
		flow.origin = origin
	}
	flow.lastDump, flow.missing = f.dumpNumber, 0
	var count Count
	switch {
	case flow.origin == nil:
	case !isFollowed && isWanted && f.isFirst:
		flow.counted, flow.countedAsConnection = trafficOf(e), true
	case isWanted || flow.counted != Traffic{}:
		count = f.rest(&flow, e)
		flow.counted, flow.countedAsConnection = trafficOf(e), flow.countedAsConnection || count.Connections > 0
	}
	f.flows[name] = flow
	return flow.origin, count
}

// shouldTrack reports whether a flow that is not followed should be. The entry of a flow that is over soon ends by itself;
// but before the first dump an earlier process may have counted part of it.
func (f *flowTracker) shouldTrack(e *conntrack.Entry) bool {
	return isLong(e) && (f.isFirst || !IsClosed(e))
}

// endDump ends a dump, and forgets flows that have long been missing in dumps though the kernel reported no end.
func (f *flowTracker) endDump(isWhole bool, now time.Time) {
	f.dumping = false
	clear(f.ended)
	if !isWhole {
		return
	}
	f.isFirst = false
	at := uint32(now.Unix())
	for name, flow := range f.flows {
		switch {
		case flow.lastDump == f.dumpNumber:
		case flow.missing == 0:
			flow.missing = at
			f.flows[name] = flow
		case at-flow.missing >= uint32(missingGrace/time.Second):
			delete(f.flows, name)
		}
	}
}
