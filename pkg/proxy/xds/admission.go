package xds

import (
	"net/netip"
	"sync"
)

// How much there may be at once. A node has 110 pods, and each a stream for each Service that it dials: some 2,200 with
// twenty. Each asks for a name of each kind.
const (
	maxStreams     = 4096
	maxPerClient   = 64
	maxPerSocket   = 1024 // the clients of the socket, which all look alike
	maxAllNames    = 100_000
	maxClientNames = 10_000
	// maxUnread is how many bytes of responses one client may leave unread, over all its streams. The first may be larger.
	maxUnread       = 2 << 20
	maxUnreadSocket = 32 << 20
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
	DoesNotRead        Refusal = "does-not-read"
)

// admission counts what clients have. The zero address stands for all clients of the socket.
type admission struct {
	mutex   sync.Mutex
	clients map[netip.Addr]*usage
	streams int
	names   int
}

type usage struct{ streams, names, unread int }

// enter admits a stream of a client, or not.
func (a *admission) enter(client netip.Addr) bool {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	most, used := maxPerClient, a.clients[client]
	if !client.IsValid() {
		most = maxPerSocket
	}
	if a.streams >= maxStreams || used != nil && used.streams >= most {
		return false
	}
	if used == nil {
		if a.clients == nil {
			a.clients = map[netip.Addr]*usage{}
		}
		used = &usage{}
		a.clients[client] = used
	}
	used.streams++
	a.streams++
	return true
}

// ask changes how many names a stream has, and reports whether there is room for them.
func (a *admission) ask(client netip.Addr, before, now int) bool {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	used := a.clients[client]
	used.names += now - before
	a.names += now - before
	most := maxClientNames
	if !client.IsValid() {
		most = maxAllNames / 2
	}
	return now <= before || used.names <= most && a.names <= maxAllNames
}

// send notes that a client has so many more bytes to read, and reports whether it may.
func (a *admission) send(client netip.Addr, bytes int) bool {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	used, most := a.clients[client], maxUnread
	if !client.IsValid() {
		most = maxUnreadSocket
	}
	before := used.unread
	used.unread += bytes
	return bytes <= 0 || before == 0 || used.unread <= most
}

// leave takes out a stream that has so many names, and so much unread.
func (a *admission) leave(client netip.Addr, names, unread int) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	used := a.clients[client]
	used.names -= names
	used.unread -= unread
	a.names -= names
	a.streams--
	if used.streams--; used.streams == 0 {
		delete(a.clients, client)
	}
}

// counts returns how many streams and names there are.
func (a *admission) counts() (streams, names int) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.streams, a.names
}

// heard remembers what was said already, so that it is said once. It has an end: whoever asks for ever new names would
// fill the memory with them, and the log.
type heard struct {
	mutex sync.Mutex
	said  map[string]bool
}

// maxHeard is how much is remembered. What is new behind that is not said.
const maxHeard = 1000

// isNew reports whether something was not said yet.
func (h *heard) isNew(what string) bool {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.said[what] || len(h.said) >= maxHeard {
		return false
	}
	if h.said == nil {
		h.said = map[string]bool{}
	}
	h.said[what] = true
	return true
}
