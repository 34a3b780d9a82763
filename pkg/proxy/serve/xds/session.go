package xds

import (
	"net/netip"
	"sync"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/notify"
)

// session is one stream of a client, between the goroutine that reads its requests and the one that writes responses.
type session struct {
	table  *Table
	usage  *usageTracker
	client netip.Addr
	// changed holds a signal that there may be something to tell. Changes share it: a client that does not read gets one
	// response of each kind, and has no queue.
	changed notify.Signal

	mutex    sync.Mutex
	stream   stream
	names    int // that the stream asks for
	hasEnded bool
	// watched counts the names of each Service, over all kinds.
	watched map[model.ObjectName]int
}

// newSession begins a session of a client that was admitted. The caller must end it.
func newSession(table *Table, usage *usageTracker, client netip.Addr, only string) *session {
	s := &session{
		table: table, usage: usage, client: client, changed: notify.NewSignal(), watched: map[model.ObjectName]int{},
		stream: stream{domain: table.domain, only: only},
	}
	table.addSession(s)
	return s
}

// handleRequest takes a request in. If there is no room for what it asks for, the session must end.
func (s *session) handleRequest(r request) (requestResult, bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	result := s.stream.handleRequest(r)
	for _, of := range result.added {
		if s.watched[of.service]++; s.watched[of.service] == 1 {
			s.table.setWatch(s, of.service, true)
		}
	}
	for _, of := range result.removed {
		if s.watched[of.service]--; s.watched[of.service] == 0 {
			delete(s.watched, of.service)
			s.table.setWatch(s, of.service, false)
		}
	}
	result.unknownNames = append(result.unknownNames, s.table.missing(result.added)...)
	now := s.stream.names()
	hasRoom := s.usage.admit(s.client, usageCounts{subscribedNames: now - s.names})
	if hasRoom {
		s.names = now
	}
	s.usage.release(s.client, usageCounts{unreadBytes: result.read})
	s.changed.Notify()
	return result, hasRoom
}

// next returns the next response, and what kind of resources it has; nil if there is nothing to tell, or no room for it:
// too much is unread.
func (s *session) next() (of kind, response []byte, hasRoom bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.hasEnded {
		return 0, nil, true
	}
	if !s.usage.admit(s.client, usageCounts{unreadBytes: maxResponse}) { // about as large as it becomes
		return 0, nil, false
	}
	of, response = s.nextResponse()
	s.usage.release(s.client, usageCounts{unreadBytes: maxResponse - len(response)})
	return of, response, true
}

func (s *session) nextResponse() (kind, []byte) {
	version, isOpen := s.table.version()
	if !isOpen {
		return 0, nil
	}
	return s.stream.next(s.table.find, version)
}

// end ends it, gives back what the client had, and reports whether the client has answered everything.
func (s *session) end() (isRead bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.hasEnded = true
	s.table.removeSession(s)
	unread := s.stream.unackedBytes()
	s.usage.release(s.client, usageCounts{openStreams: 1, subscribedNames: s.names, unreadBytes: unread})
	return unread == 0
}
