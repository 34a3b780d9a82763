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
)

// follower remembers what was counted of flows that have not ended.
//
// A small flow is counted once, at its end. So a restart counts it once, too: only one process, the earlier one or this
// one, hears of the end. A long flow is counted bit by bit, and what it moved before the first dump was the earlier
// process's to count.
type follower struct {
	seed  maphash.Seed
	flows map[key]followed
	// isFirst: no dump has been complete yet.
	isFirst bool
	// looking: a dump is going on. Some of the flows in it may have ended since the kernel was asked; the long ones among
	// those are in ended.
	looking bool
	ended   map[key]bool
	// withoutEnds: the kernel does not report ends, so all flows are followed, and end when they are missing in a dump.
	withoutEnds bool
	look        uint32 // number of the dump
	noRoom      int    // in the dump
}

// key names an entry: by its id, and by both tuples. The kernel derives ids from addresses in memory, and reuses those.
type key struct {
	tuples uint64
	id     uint32
}

// followed is a flow.
type followed struct {
	origin   *owners.Origin
	counted  Traffic
	isLinked bool // counted as a connection
	look     uint32
	missing  uint32 // since when, in seconds; 0 if the last dump had it
}

func newFollower() follower {
	return follower{seed: maphash.MakeSeed(), flows: map[key]followed{}, ended: map[key]bool{}, isFirst: true}
}

// tuples are what a key is made of.
type tuples struct {
	protocol        model.Protocol
	original, reply conntrack.Tuple
}

func (f *follower) keyOf(e *conntrack.Entry) key {
	return key{maphash.Comparable(f.seed, tuples{e.Protocol, e.Original, e.Reply}), e.ID}
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

// rest returns what an entry has beyond what is counted, and false if what is counted was another connection's.
func (d *followed) rest(e *conntrack.Entry) (Count, bool) {
	now := trafficOf(e)
	if now.Sent < d.counted.Sent || now.Received < d.counted.Received {
		return Count{}, false
	}
	count := Count{Traffic: Traffic{now.Sent - d.counted.Sent, now.Received - d.counted.Received}}
	if !d.isLinked && e.Status&conntrack.SeenReply != 0 {
		count.Connections = 1
	}
	return count, true
}

// whole is the count of a connection of which nothing has been counted yet.
func whole(e *conntrack.Entry) Count {
	if e.Status&conntrack.SeenReply == 0 {
		return Count{Unanswered: 1, Traffic: trafficOf(e)}
	}
	return Count{Connections: 1, Traffic: trafficOf(e)}
}

// end returns what is to be counted for an entry that has ended, and the origin to count it for; nil if nothing is.
func (f *follower) end(e *conntrack.Entry, origin *owners.Origin) (*owners.Origin, Count) {
	if e.Status&conntrack.DestinationNAT == 0 {
		return nil, Count{}
	}
	name := f.keyOf(e)
	isInLook := isLong(e) && f.looking
	if isInLook {
		f.ended[name] = true
	}
	if flow, is := f.flows[name]; is {
		delete(f.flows, name)
		if count, isSame := flow.rest(e); isSame {
			if !flow.isLinked && count.Connections == 0 {
				count.Unanswered = 1
			}
			return flow.origin, count
		}
	}
	if isInLook && f.isFirst {
		return nil, Count{} // an earlier process may have counted some of it, and we cannot know how much
	}
	return origin, whole(e)
}

func (f *follower) begin(withoutEnds bool) {
	f.looking, f.withoutEnds, f.noRoom = true, withoutEnds, 0
	f.look++
}

// see returns what is to be counted for an entry in a dump, and the origin to count it for; nil if nothing is.
func (f *follower) see(e *conntrack.Entry, origin *owners.Origin) (*owners.Origin, Count) {
	if len(f.flows) == 0 && !f.isWanted(e) {
		return nil, Count{}
	}
	name := f.keyOf(e)
	flow, is := f.flows[name]
	if is {
		if count, isSame := flow.rest(e); isSame {
			flow.counted, flow.look, flow.missing = trafficOf(e), f.look, 0
			flow.isLinked = flow.isLinked || count.Connections > 0
			f.flows[name] = flow
			return flow.origin, count
		}
		delete(f.flows, name)
	}
	if origin == nil || f.ended[name] || !f.isWanted(e) {
		return nil, Count{}
	}
	if len(f.flows) >= mostFollowed {
		f.noRoom++
		return nil, Count{}
	}
	flow = followed{origin: origin, counted: trafficOf(e), look: f.look, isLinked: f.isFirst || e.Status&conntrack.SeenReply != 0}
	f.flows[name] = flow
	if f.isFirst {
		return nil, Count{}
	}
	count := whole(e)
	count.Unanswered = 0 // it may still be answered
	return origin, count
}

// isWanted reports whether a flow that is not followed should be. The entry of a flow that is over soon ends by itself;
// but before the first dump an earlier process may have counted part of it.
func (f *follower) isWanted(e *conntrack.Entry) bool {
	return f.withoutEnds || isLong(e) && (f.isFirst || !IsOver(e))
}

// finish ends a dump. The kernel reported no end for flows that are missing in it: if it never reports ends, they are
// over.
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
			if !flow.isLinked {
				add(flow.origin, Count{Unanswered: 1})
			}
		case flow.missing == 0:
			flow.missing = at
			f.flows[name] = flow
		case at-flow.missing >= uint32(missedFor/time.Second):
			delete(f.flows, name)
		}
	}
}
