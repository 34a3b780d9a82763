package xds

import (
	"cmp"
	"net/netip"
	"slices"
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
	// maxUnread is how many bytes of responses one client may leave unread, over all its streams; the first may be larger.
	// A node's 110 pods and its socket cannot use up what all may leave together.
	maxUnread       = 1 << 20
	maxUnreadSocket = 16 << 20
	maxAllUnread    = 128 << 20
)

// Requests cost processor time in proportion to their names. Each client may ask for so many names a second in the long
// run, and so many at once. A stream costs as much as some names, so reconnecting again and again gains nothing.
const (
	namesPerSecond = 20_000
	namesAtOnce    = 100_000
	namesOfStream  = 100
)

// Refusal is why a client is not served.
type Refusal string

// The refusals.
const (
	NotOfThisNode      Refusal = "not-of-this-node"
	TooManyConnections Refusal = "too-many-connections"
	TooManyStreams     Refusal = "too-many-streams"
	TooManyNames       Refusal = "too-many-names"
	MalformedRequest   Refusal = "malformed-request"
	TooLargeRequest    Refusal = "too-large-request"
	DoesNotRead        Refusal = "does-not-read"
)

// Refusals are all of them.
var Refusals = []Refusal{
	NotOfThisNode, TooManyConnections, TooManyStreams, TooManyNames, MalformedRequest, TooLargeRequest, DoesNotRead,
}

// admission counts what clients have. The zero address stands for all clients of the socket.
type admission struct {
	mutex    sync.Mutex
	clients  map[netip.Addr]*usage
	all      held
	forgetAt int // how many clients there may be until those that have gone are forgotten
}

// held is what the server holds for a client, or for all.
type held struct{ streams, names, unread int }

// usage is what a client has, and how fast it may ask for it.
type usage struct {
	held
	limiter *rate.Limiter
}

func newUsage(client netip.Addr) *usage {
	many := 1
	if !client.IsValid() {
		many = maxPerSocket / maxPerClient
	}
	return &usage{limiter: rate.NewLimiter(rate.Limit(many*namesPerSecond), many*namesAtOnce)}
}

// hasGone reports whether a client has nothing, and has not asked for anything lately.
func (u *usage) hasGone() bool {
	return u.streams == 0 && u.limiter.Tokens() >= float64(u.limiter.Burst())
}

// enter admits a stream of a client, and returns how fast it may ask; nil if it is not admitted.
func (a *admission) enter(client netip.Addr) *rate.Limiter {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	most, used := maxPerClient, a.clients[client]
	if !client.IsValid() {
		most = maxPerSocket
	}
	if a.all.streams >= maxStreams || used != nil && used.streams >= most {
		return nil
	}
	if used == nil {
		a.forget()
		used = newUsage(client)
		a.clients[client] = used
	}
	used.streams++
	a.all.streams++
	return used.limiter
}

// forget makes room for another client, now and then.
func (a *admission) forget() {
	if a.clients == nil {
		a.clients = map[netip.Addr]*usage{}
	}
	if len(a.clients) < a.forgetAt {
		return
	}
	for client, used := range a.clients {
		if used.hasGone() {
			delete(a.clients, client)
		}
	}
	a.forgetAt = 2*len(a.clients) + maxPerClient
}

// ask changes how many names a stream has, and reports whether there is room for them.
func (a *admission) ask(client netip.Addr, before, now int) bool {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	used := a.clients[client]
	used.names += now - before
	a.all.names += now - before
	most := maxClientNames
	if !client.IsValid() {
		most = maxAllNames / 2
	}
	return now <= before || used.names <= most && a.all.names <= maxAllNames
}

// reserve makes room for a response of the usual size, and reports whether there was any.
func (a *admission) reserve(client netip.Addr) bool {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	used, most := a.clients[client], maxUnread
	if !client.IsValid() {
		most = maxUnreadSocket
	}
	if used.unread > 0 && used.unread+maxResponse > most || a.all.unread+maxResponse > maxAllUnread {
		return false
	}
	used.unread += maxResponse
	a.all.unread += maxResponse
	return true
}

// settle says how large the response became for which room was reserved.
func (a *admission) settle(client netip.Addr, bytes int) { a.read(client, maxResponse-bytes) }

// read notes that a client has read the given number of bytes.
func (a *admission) read(client netip.Addr, bytes int) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.clients[client].unread -= bytes
	a.all.unread -= bytes
}

// leave takes out a stream with its number of names and of unread bytes.
func (a *admission) leave(client netip.Addr, names, unread int) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	used := a.clients[client]
	used.names -= names
	used.unread -= unread
	used.streams--
	a.all.names -= names
	a.all.unread -= unread
	a.all.streams--
}

// counts returns how many streams and names there are.
func (a *admission) counts() (streams, names int) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.all.streams, a.all.names
}

// connected returns the usage of each client that has a stream, the one with the most streams first.
func (a *admission) connected() []Client {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	all := []Client{}
	for client, used := range a.clients {
		if used.streams > 0 {
			all = append(all, Client{Addr: client, Streams: used.streams, Names: used.names, Unread: used.unread})
		}
	}
	slices.SortFunc(all, func(a, b Client) int { return cmp.Or(cmp.Compare(b.Streams, a.Streams), a.Addr.Compare(b.Addr)) })
	return all
}
