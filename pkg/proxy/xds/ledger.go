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

// held is what the server holds for a client, or for all.
type held [4]int

const (
	openConnections = iota // each channel of gRPC has its own, so there may be as many as streams
	openStreams
	askedNames
	unreadBytes
)

// The most that the server holds for one client, for the clients of the socket, and for all.
var (
	mostOfClient = held{maxPerClient, maxPerClient, maxClientNames, maxUnread}
	mostOfSocket = held{maxPerSocket, maxPerSocket, maxAllNames / 2, maxUnreadSocket}
	mostOfAll    = held{maxStreams, maxStreams, maxAllNames, maxAllUnread}
)

// Requests cost processor time in proportion to their names. Each client may ask for so many names a second in the long
// run, and so many at once. A stream costs as much as some names, so reconnecting again and again gains nothing.
const (
	namesPerSecond = 20_000
	namesAtOnce    = 100_000
	namesOfStream  = 100
)

// Refusal is why a client is not served, or a name.
type Refusal string

// The refusals.
const (
	NotOfThisNode      Refusal = "remote_client"
	TooManyConnections Refusal = "too_many_connections"
	TooManyStreams     Refusal = "too_many_streams"
	TooManyNames       Refusal = "too_many_names"
	MalformedRequest   Refusal = "malformed_request"
	TooLargeRequest    Refusal = "too_large_request"
	UnknownName        Refusal = "unknown_name" // it is not a TCP port of a Service
)

// Refusals are all of them.
var Refusals = []Refusal{
	NotOfThisNode, TooManyConnections, TooManyStreams, TooManyNames, MalformedRequest, TooLargeRequest, UnknownName,
}

// ledger holds what the server knows of its clients. The zero address stands for all clients of the socket.
type ledger struct {
	mutex    sync.Mutex
	clients  map[netip.Addr]*usage
	all      held
	forgetAt int // how many clients there may be until those that have gone are forgotten
	counts   Counts
	failing  map[string]string // why an address does not answer; empty if it does
}

// usage is what is held for a client, and how fast it may ask for more.
type usage struct {
	held
	limiter *rate.Limiter
}

// hasGone reports whether nothing is held for a client, and it has not asked for anything lately.
func (u *usage) hasGone() bool {
	return u.held == held{} && u.limiter.Tokens() >= float64(u.limiter.Burst())
}

// of returns the usage of a client. Now and then it forgets those that have gone. The mutex must be held.
func (l *ledger) of(client netip.Addr) *usage {
	if known := l.clients[client]; known != nil {
		return known
	}
	if len(l.clients) >= l.forgetAt {
		maps.DeleteFunc(l.clients, func(_ netip.Addr, u *usage) bool { return u.hasGone() })
		l.forgetAt = 2*len(l.clients) + maxPerClient
	}
	if l.clients == nil {
		l.clients = map[netip.Addr]*usage{}
	}
	many := 1
	if !client.IsValid() {
		many = maxPerSocket / maxPerClient
	}
	l.clients[client] = &usage{limiter: rate.NewLimiter(rate.Limit(many*namesPerSecond), many*namesAtOnce)}
	return l.clients[client]
}

// admit adds to what is held for a client, unless that would be too much of something.
func (l *ledger) admit(client netip.Addr, more held) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	used, most := l.of(client), &mostOfClient
	if !client.IsValid() {
		most = &mostOfSocket
	}
	for of, more := range more {
		if more > 0 && (used.held[of]+more > most[of] || l.all[of]+more > mostOfAll[of]) {
			return false
		}
	}
	l.add(used, more)
	return true
}

// release takes off what is no longer held for a client.
func (l *ledger) release(client netip.Addr, less held) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for of := range less {
		less[of] = -less[of]
	}
	l.add(l.of(client), less)
}

func (l *ledger) add(used *usage, more held) {
	for of, more := range more {
		used.held[of] += more
		l.all[of] += more
	}
}

// usage returns what is held for a client, and for all.
func (l *ledger) usage(client netip.Addr) (its usage, all held) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return *l.of(client), l.all
}

// count changes the counts of what happened.
func (l *ledger) count(change func(*Counts)) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.counts.Refused == nil {
		l.counts.Refused = map[Refusal]int{}
	}
	change(&l.counts)
}

// notAnswering says why an address does not answer; empty if it does.
func (l *ledger) notAnswering(address, why string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.failing == nil {
		l.failing = map[string]string{}
	}
	l.failing[address] = why
}
