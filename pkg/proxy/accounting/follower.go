//go:build linux

package accounting

import (
	"hash/maphash"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/owners"
)

const (
	// longFlow is how many bytes a connection must have moved to be counted before it ends.
	longFlow = 1 << 20
	// mostFollowed is how many of these there are at most: some 10 MB. Others count when they end.
	mostFollowed = 100_000
	// missedFor is how long a flow must be missing in dumps until it is forgotten: the report of its end may still be on
	// its way.
	missedFor = 2 * time.Minute
	// removedFor is how long it is remembered that the entry of a connection was removed while the connection lived. Its
	// next packet makes another entry.
	removedFor = 10 * time.Minute
)

// follower remembers what was counted of flows that have not ended.
//
// A small flow is counted once, at its end. So a restart counts it once, too: only one process, the earlier one or this
// one, hears of the end. A long flow is counted bit by bit, and what it moved before the first dump was the earlier
// process's to count.
//
// The report of an end does not have the label that says whose a connection is. So a flow is followed, too, if its end
// alone would be taken for another origin's than the one that a dump knows; it is counted as any other.
type follower struct {
	seed  maphash.Seed
	flows map[key]followed
	// removed are the connections whose entry was removed while they lived, as by conntrack -F, and when: in seconds. The
	// entry that their next packet makes is no other connection. There are at most mostFollowed.
	removed map[uint64]uint32
	// isFirst: no dump has been complete yet.
	isFirst bool
	// looking: a dump is going on. Some of the flows in it may have ended since the kernel was asked; those among them that
	// it might begin to follow are in ended.
	looking bool
	ended   map[key]bool
	// withoutEnds: the kernel does not report ends, so all flows are followed, and end when they are missing in a dump.
	withoutEnds bool
	look        uint32 // number of the dump
	missed      Missed
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

// followed is a flow.
type followed struct {
	origin   *owners.Origin // nil if another program translated it
	counted  Traffic
	isLinked bool // counted as a connection
	look     uint32
	missing  uint32 // since when, in seconds; 0 if the last dump had it
}

func newFollower() follower {
	return follower{
		seed: maphash.MakeSeed(), flows: map[key]followed{}, removed: map[uint64]uint32{}, ended: map[key]bool{}, isFirst: true,
	}
}

// tuples are what a key is made of.
type tuples struct {
	protocol        model.Protocol
	original, reply conntrack.Tuple
}

func (f *follower) keyOf(e *conntrack.Entry) key {
	return key{maphash.Comparable(f.seed, tuples{e.Protocol, e.Original, e.Reply}), e.ID}
}

// dialOf names a connection by what its client sees of it, whichever endpoint answers and however often its entry is
// made anew.
func (f *follower) dialOf(e *conntrack.Entry) uint64 {
	return maphash.Comparable(f.seed, tuples{protocol: e.Protocol, original: e.Original})
}

func trafficOf(e *conntrack.Entry) Traffic { return Traffic{e.Sent.Bytes, e.Received.Bytes} }

func isLong(e *conntrack.Entry) bool { return e.Sent.Bytes+e.Received.Bytes > longFlow }

// IsOver reports whether nothing more is moved by a connection whose entry is still there.
func IsOver(e *conntrack.Entry) bool {
	switch e.Protocol {
	case model.TCP:
		return e.State == conntrack.TCPTimeWait || e.State == conntrack.TCPClose
	case model.SCTP:
		return e.State == conntrack.SCTPClosed
	case model.UDP:
	}
	return false
}

// isAnswered reports whether a connection came about.
func isAnswered(e *conntrack.Entry) bool { return e.Status&conntrack.SeenReply != 0 && !isRefused(e) }

// isRefused reports whether a dial was answered by a reset, or in SCTP by an ABORT. Conntrack does not take a reset for a
// reply, and forgets the connection with it: only the report of its end shows it. UDP is refused by ICMP, of which an
// entry knows nothing.
func isRefused(e *conntrack.Entry) bool {
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

// isRemoved reports whether an entry that ended was removed before its time: it had time left, and its connection was not
// over. Linux says how much time was left since 5.11. A UDP flow lives as long as its entry.
func isRemoved(e *conntrack.Entry) bool {
	return e.Protocol != model.UDP && e.Timeout > 0 && !IsOver(e)
}

// rest returns what an entry has beyond what is counted. If it has less than that, somebody has set its counters to
// zero: then it is all that it has, and what it moved between is lost.
func (d *followed) rest(e *conntrack.Entry) (count Count, isReset bool) {
	now, before := trafficOf(e), d.counted
	if isReset = now.Sent < before.Sent || now.Received < before.Received; isReset {
		before = Traffic{}
	}
	count.Traffic = Traffic{now.Sent - before.Sent, now.Received - before.Received}
	if !d.isLinked && isAnswered(e) {
		count.Connections = 1
	}
	return count, isReset
}

// rest is that of the flow, and notes what is lost.
func (f *follower) rest(flow *followed, e *conntrack.Entry) Count {
	count, isReset := flow.rest(e)
	if isReset {
		f.missed.CountersReset++
	}
	return count
}

// end returns what is to be counted for an entry that has ended, and the origin to count it for; nil if nothing is. The
// origin that is passed is what the end alone tells.
func (f *follower) end(e *conntrack.Entry, origin *owners.Origin, now time.Time) (*owners.Origin, Count) {
	if e.Status&conntrack.DestinationNAT == 0 {
		return nil, Count{}
	}
	name := f.keyOf(e)
	if f.looking && (isLong(e) || isRemoved(e)) {
		f.ended[name] = true
	}
	flow, isFollowed := f.flows[name]
	delete(f.flows, name)
	switch {
	case !isFollowed && isLong(e) && f.looking && f.isFirst:
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
	isLinked := f.resume(e) || flow.isLinked
	switch {
	case isLinked:
		count.Connections = 0
	case count.Connections > 0:
	case isRefused(e):
		count.Refused = 1
	default:
		count.Unanswered = 1
	}
	// The server has no answer to a client's last packets, so the entry that these alone have made has no reply.
	if lived := isLinked || e.Status&conntrack.SeenReply != 0; lived && isRemoved(e) && len(f.removed) < mostFollowed {
		f.removed[f.dialOf(e)] = uint32(now.Unix())
	}
	return flow.origin, count
}

// resume reports whether a connection is one whose entry was removed while it lived, and forgets that.
func (f *follower) resume(e *conntrack.Entry) bool {
	if len(f.removed) == 0 {
		return false
	}
	dial := f.dialOf(e)
	_, isRemoved := f.removed[dial]
	delete(f.removed, dial)
	return isRemoved
}

func (f *follower) begin(withoutEnds bool) {
	f.looking, f.withoutEnds = true, withoutEnds
	f.look++
}

// see returns what is to be counted for an entry in a dump, and the origin to count it for; nil if nothing is. AtEnd is
// the origin that its end alone would tell.
func (f *follower) see(e *conntrack.Entry, origin, atEnd *owners.Origin) (*owners.Origin, Count) {
	isWanted := f.isWanted(e) && origin != nil
	if len(f.flows)+len(f.removed) == 0 && !isWanted && origin == atEnd {
		return nil, Count{}
	}
	name := f.keyOf(e)
	flow, isFollowed := f.flows[name]
	isNew := !isFollowed
	if isNew {
		if f.ended[name] || len(f.flows) >= mostFollowed {
			return nil, Count{}
		}
		isResumed := origin != nil && f.resume(e)
		if !isWanted && !isResumed && origin == atEnd {
			return nil, Count{}
		}
		flow = followed{origin: origin, isLinked: isResumed}
	}
	flow.look, flow.missing = f.look, 0
	var count Count
	switch {
	case flow.origin == nil:
	case isNew && isWanted && f.isFirst:
		flow.counted, flow.isLinked = trafficOf(e), true
	case isWanted || flow.counted != Traffic{}:
		if isNew && f.withoutEnds && !e.IsCounted {
			f.missed.NoCounters++
		}
		count = f.rest(&flow, e)
		flow.counted, flow.isLinked = trafficOf(e), flow.isLinked || count.Connections > 0
	}
	f.flows[name] = flow
	return flow.origin, count
}

// isWanted reports whether a flow that is not followed should be. The entry of a flow that is over soon ends by itself;
// but before the first dump an earlier process may have counted part of it.
func (f *follower) isWanted(e *conntrack.Entry) bool {
	return f.withoutEnds || isLong(e) && (f.isFirst || !IsOver(e))
}

// finish ends a dump, and forgets what is too old. The kernel reported no end for flows that are missing in it: if it
// never reports ends, they are over.
func (f *follower) finish(isWhole bool, now time.Time, add func(*owners.Origin, Count)) {
	f.looking = false
	clear(f.ended)
	if !isWhole {
		return
	}
	f.isFirst = false
	at := uint32(now.Unix())
	for name, flow := range f.flows {
		switch {
		case flow.look == f.look:
		case f.withoutEnds:
			delete(f.flows, name)
			if !flow.isLinked && flow.origin != nil {
				add(flow.origin, Count{Unanswered: 1})
			}
		case flow.missing == 0:
			flow.missing = at
			f.flows[name] = flow
		case at-flow.missing >= uint32(missedFor/time.Second):
			delete(f.flows, name)
		}
	}
	for dial, since := range f.removed {
		if at-since >= uint32(removedFor/time.Second) {
			delete(f.removed, dial)
		}
	}
}
