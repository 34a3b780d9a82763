package xds

import (
	"maps"
	"net/netip"
	"sync"

	"golang.org/x/time/rate"
)

// Limits of concurrent usage. A node has 110 pods, each with a stream for each Service that it dials: about 2,200 with
// twenty. Each subscribes to one name of each kind. It takes 64 clients at their limits to leave nothing for others.
const (
	maxStreams     = 4096
	maxPerClient   = 64
	maxPerSocket   = 1024 // all clients of the socket, which cannot be distinguished
	maxAllNames    = 200_000
	maxClientNames = 3 * maxNames
	// maxUnread limits the bytes of responses that one client may leave unread, over all its streams; the last response
	// may exceed it. A node's 110 pods and its socket together cannot use up maxAllUnread.
	maxUnread       = 1 << 20
	maxUnreadSocket = 16 << 20
	maxAllUnread    = 128 << 20
)

// usageCounts are the resources that the server holds for a client, or for all.
type usageCounts [4]int

const (
	openConnections = iota // each gRPC channel has its own, so their limit is that of streams
	openStreams
	subscribedNames
	unreadBytes
)

// The limits for one client, for all clients of the socket together, and for all.
var (
	clientLimits = usageCounts{maxPerClient, maxPerClient, maxClientNames, maxUnread}
	socketLimits = usageCounts{maxPerSocket, maxPerSocket, maxAllNames / 2, maxUnreadSocket}
	totalLimits  = usageCounts{maxStreams, maxStreams, maxAllNames, maxAllUnread}
)

// Requests cost CPU time in proportion to their names. Each client may subscribe to namesPerSecond names a second on
// average, with a burst of nameBurst. A stream costs as much as namesOfStream names, so reconnecting repeatedly gains
// nothing.
const (
	namesPerSecond = 20_000
	nameBurst      = 100_000
	namesOfStream  = 100
)

// RejectReason is why a connection, stream, request or name is rejected.
type RejectReason string

// The reasons.
const (
	RemoteClient       RejectReason = "remote_client"
	TooManyConnections RejectReason = "too_many_connections"
	TooManyStreams     RejectReason = "too_many_streams"
	TooManyNames       RejectReason = "too_many_names"
	MalformedRequest   RejectReason = "malformed_request"
	TooLargeRequest    RejectReason = "too_large_request"
	UnknownName        RejectReason = "unknown_name" // the name is not a TCP port of a Service
)

// Rejections are all reasons.
var Rejections = []RejectReason{
	RemoteClient, TooManyConnections, TooManyStreams, TooManyNames, MalformedRequest, TooLargeRequest, UnknownName,
}

// usageTracker tracks the usage of clients. The zero address stands for all clients of the socket.
type usageTracker struct {
	mutex    sync.Mutex
	clients  map[netip.Addr]*usage
	all      usageCounts
	forgetAt int // number of clients at which idle ones are removed
	counts   Counts
	failing  map[string]string // why an address is not served; empty if it is
}

// usage is the usage of a client, and the rate limiter of its requests.
type usage struct {
	usageCounts
	limiter *rate.Limiter
}

// isIdle reports whether a client uses nothing, and has sent no request recently.
func (u *usage) isIdle() bool {
	return u.usageCounts == usageCounts{} && u.limiter.Tokens() >= float64(u.limiter.Burst())
}

// of returns the usage of a client. It occasionally removes idle clients. The caller must hold the mutex.
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

// admit adds to the usage of a client, and reports false if that would exceed a limit.
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

// release subtracts from the usage of a client.
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

// usage returns the usage of a client, and of all.
func (l *usageTracker) usage(client netip.Addr) (its usage, all usageCounts) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return *l.of(client), l.all
}

// count updates the event counts.
func (l *usageTracker) count(change func(*Counts)) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.counts.Rejected == nil {
		l.counts.Rejected = map[RejectReason]int{}
	}
	change(&l.counts)
}

// onUnresponsive records why an address is not served; empty if it is.
func (l *usageTracker) onUnresponsive(address, why string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.failing == nil {
		l.failing = map[string]string{}
	}
	l.failing[address] = why
}
