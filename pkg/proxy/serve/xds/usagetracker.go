package xds

import (
	"maps"
	"net/netip"
	"sync"

	"golang.org/x/time/rate"
)

// How much there may be at once. A node has 110 pods, and each a stream for each Service that it dials: some 2,200 with
// twenty. Each asks for a name of each kind. It takes 64 clients at their limits to leave nothing for others.
const (
	maxStreams     = 4096
	maxPerClient   = 64
	maxPerSocket   = 1024 // the clients of the socket, which all look alike
	maxAllNames    = 200_000
	maxClientNames = 3 * maxNames
	// maxUnread is how many bytes of responses one client may leave unread, over all its streams; the last may exceed it.
	// A node's 110 pods and its socket cannot use up what all may leave together.
	maxUnread       = 1 << 20
	maxUnreadSocket = 16 << 20
	maxAllUnread    = 128 << 20
)

// usageCounts is what the server holds for a client, or for all.
type usageCounts [4]int

const (
	openConnections = iota // each channel of gRPC has its own, so there may be as many as streams
	openStreams
	subscribedNames
	unreadBytes
)

// The most that the server holds for one client, for the clients of the socket, and for all.
var (
	clientLimits = usageCounts{maxPerClient, maxPerClient, maxClientNames, maxUnread}
	socketLimits = usageCounts{maxPerSocket, maxPerSocket, maxAllNames / 2, maxUnreadSocket}
	totalLimits  = usageCounts{maxStreams, maxStreams, maxAllNames, maxAllUnread}
)

// Requests cost processor time in proportion to their names. Each client may ask for so many names a second in the long
// run, and so many at once. A stream costs as much as some names, so reconnecting again and again gains nothing.
const (
	namesPerSecond = 20_000
	nameBurst      = 100_000
	namesOfStream  = 100
)

// RejectReason is why a client is not served, or a name.
type RejectReason string

// The refusals.
const (
	RemoteClient       RejectReason = "remote_client"
	TooManyConnections RejectReason = "too_many_connections"
	TooManyStreams     RejectReason = "too_many_streams"
	TooManyNames       RejectReason = "too_many_names"
	MalformedRequest   RejectReason = "malformed_request"
	TooLargeRequest    RejectReason = "too_large_request"
	UnknownName        RejectReason = "unknown_name" // it is not a TCP port of a Service
)

// Rejections are all of them.
var Rejections = []RejectReason{
	RemoteClient, TooManyConnections, TooManyStreams, TooManyNames, MalformedRequest, TooLargeRequest, UnknownName,
}

// usageTracker holds what the server knows of its clients. The zero address stands for all clients of the socket.
type usageTracker struct {
	mutex    sync.Mutex
	clients  map[netip.Addr]*usage
	all      usageCounts
	forgetAt int // how many clients there may be until those that have gone are forgotten
	counts   Counts
	failing  map[string]string // why an address does not answer; empty if it does
}

// usage is what is held for a client, and how fast it may ask for more.
type usage struct {
	usageCounts
	limiter *rate.Limiter
}

// isIdle reports whether nothing is held for a client, and it has not asked for anything lately.
func (u *usage) isIdle() bool {
	return u.usageCounts == usageCounts{} && u.limiter.Tokens() >= float64(u.limiter.Burst())
}

// of returns the usage of a client. Now and then it forgets those that have gone. The mutex must be held.
func (l *usageTracker) of(client netip.Addr) *usage {
	if known := l.clients[client]; known != nil {
		return known
	}
	if len(l.clients) >= l.forgetAt {
		maps.DeleteFunc(l.clients, func(_ netip.Addr, u *usage) bool { return u.isIdle() })
		l.forgetAt = 2*len(l.clients) + maxPerClient
	}
	if l.clients == nil {
		l.clients = map[netip.Addr]*usage{}
	}
	many := 1
	if !client.IsValid() {
		many = maxPerSocket / maxPerClient
	}
	l.clients[client] = &usage{limiter: rate.NewLimiter(rate.Limit(many*namesPerSecond), many*nameBurst)}
	return l.clients[client]
}

// admit adds to what is held for a client, unless that would be too much of something.
func (l *usageTracker) admit(client netip.Addr, more usageCounts) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	used, most := l.of(client), &clientLimits
	if !client.IsValid() {
		most = &socketLimits
	}
	for of, more := range more {
		if more > 0 && (used.usageCounts[of]+more > most[of] || l.all[of]+more > totalLimits[of]) {
			return false
		}
	}
	l.add(used, more)
	return true
}

// release takes off what is no longer held for a client.
func (l *usageTracker) release(client netip.Addr, less usageCounts) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for of := range less {
		less[of] = -less[of]
	}
	l.add(l.of(client), less)
}

func (l *usageTracker) add(used *usage, more usageCounts) {
	for of, more := range more {
		used.usageCounts[of] += more
		l.all[of] += more
	}
}

// usage returns what is held for a client, and for all.
func (l *usageTracker) usage(client netip.Addr) (its usage, all usageCounts) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return *l.of(client), l.all
}

// count changes the counts of what happened.
func (l *usageTracker) count(change func(*Counts)) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.counts.Rejected == nil {
		l.counts.Rejected = map[RejectReason]int{}
	}
	change(&l.counts)
}

// onUnresponsive says why an address does not answer; empty if it does.
func (l *usageTracker) onUnresponsive(address, why string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.failing == nil {
		l.failing = map[string]string{}
	}
	l.failing[address] = why
}
