package xds

import (
	"maps"
	"net/netip"
	"sync"

	"golang.org/x/time/rate"
)

// Limits of concurrent usage. A node has 110 pods, each with a stream for each Service that it dials: about 2,200
// streams with twenty Services each. Each stream subscribes to one name of each kind. It takes 64 clients at their
// limits to leave nothing for others.
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

// RejectReasons are all reasons.
var RejectReasons = []RejectReason{
	RemoteClient, TooManyConnections, TooManyStreams, TooManyNames, MalformedRequest, TooLargeRequest, UnknownName,
}

// usageTracker tracks the usage of clients. The zero address stands for all clients of the socket.
type usageTracker struct {
	mutex         sync.Mutex
	clients       map[netip.Addr]*clientUsage
	all           usageCounts
	cleanUpAt     int // number of clients at which idle ones are removed
	counts        Counts
	addressErrors map[string]string // why an address is not served; empty if it is
}

// clientUsage is the usage of a client, and the rate limiter of its requests.
type clientUsage struct {
	usageCounts
	limiter *rate.Limiter
}

// isIdle reports whether a client uses nothing, and has sent no request recently.
func (u *clientUsage) isIdle() bool {
	return u.usageCounts == usageCounts{} && u.limiter.Tokens() >= float64(u.limiter.Burst())
}

// usageOf returns the usage of a client. It occasionally removes idle clients. The caller must hold the mutex.
func (t *usageTracker) usageOf(client netip.Addr) *clientUsage {
	if found := t.clients[client]; found != nil {
		return found
	}
	if len(t.clients) >= t.cleanUpAt {
		maps.DeleteFunc(t.clients, func(_ netip.Addr, u *clientUsage) bool { return u.isIdle() })
		t.cleanUpAt = 2*len(t.clients) + maxPerClient
	}
	if t.clients == nil {
		t.clients = map[netip.Addr]*clientUsage{}
	}
	factor := 1
	if !client.IsValid() {
		factor = maxPerSocket / maxPerClient
	}
	t.clients[client] = &clientUsage{limiter: rate.NewLimiter(rate.Limit(factor*namesPerSecond), factor*nameBurst)}
	return t.clients[client]
}

// admit adds to the usage of a client unless that would exceed a limit, and reports whether it did.
func (t *usageTracker) admit(client netip.Addr, more usageCounts) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	used, limits := t.usageOf(client), &clientLimits
	if !client.IsValid() {
		limits = &socketLimits
	}
	for i, more := range more {
		if more > 0 && (used.usageCounts[i]+more > limits[i] || t.all[i]+more > totalLimits[i]) {
			return false
		}
	}
	t.add(used, more)
	return true
}

// release subtracts from the usage of a client.
func (t *usageTracker) release(client netip.Addr, less usageCounts) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for i := range less {
		less[i] = -less[i]
	}
	t.add(t.usageOf(client), less)
}

func (t *usageTracker) add(used *clientUsage, more usageCounts) {
	for i, more := range more {
		used.usageCounts[i] += more
		t.all[i] += more
	}
}

// usage returns the usage of a client, and of all.
func (t *usageTracker) usage(client netip.Addr) (used clientUsage, all usageCounts) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return *t.usageOf(client), t.all
}

// updateCounts updates the event counts.
func (t *usageTracker) updateCounts(change func(*Counts)) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.counts.Rejected == nil {
		t.counts.Rejected = map[RejectReason]int{}
	}
	change(&t.counts)
}

// setAddressError records why an address is not served; empty if it is.
func (t *usageTracker) setAddressError(address, reason string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.addressErrors == nil {
		t.addressErrors = map[string]string{}
	}
	t.addressErrors[address] = reason
}
