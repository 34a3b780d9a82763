package xds

import (
	"net/netip"
	"sync"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/notify"
)

// session is one stream of a client. One goroutine reads its requests, another one writes responses.
type session struct {
	table  *Table
	usage  *usageTracker
	client netip.Addr
	// changed signals that there may be a new response. Changes share the signal: a client that does not read gets one
	// response of each kind, and has no queue.
	changed notify.Signal

	mutex     sync.Mutex
	stream    stream
	nameCount int // names that the stream subscribes to
	hasEnded  bool
	// watched counts the subscribed names of each Service, over all kinds.
	watched map[model.ObjectName]int
}

// newSession starts a session of an admitted client. The caller must end it.
func newSession(table *Table, usage *usageTracker, client netip.Addr, defaultType string) *session {
	s := &session{
		table: table, usage: usage, client: client, changed: notify.NewSignal(), watched: map[model.ObjectName]int{},
		stream: stream{domain: table.domain, defaultType: defaultType},
	}
	table.addSession(s)
	return s
}

// handleRequest processes a request. If it returns false, a limit of names is exceeded, and the session must end.
func (s *session) handleRequest(r request) (requestResult, bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	result := s.stream.handleRequest(r)
	for _, ref := range result.added {
		if s.watched[ref.service]++; s.watched[ref.service] == 1 {
			s.table.setWatch(s, ref.service, true)
		}
	}
	for _, ref := range result.removed {
		if s.watched[ref.service]--; s.watched[ref.service] == 0 {
			delete(s.watched, ref.service)
			s.table.setWatch(s, ref.service, false)
		}
	}
	result.unknownNames = append(result.unknownNames, s.table.missing(result.added)...)
	nameCount := s.stream.nameCount()
	hasRoom := s.usage.admit(s.client, usageCounts{subscribedNames: nameCount - s.nameCount})
	if hasRoom {
		s.nameCount = nameCount
	}
	s.usage.release(s.client, usageCounts{unreadBytes: result.ackedBytes})
	s.changed.Notify()
	return result, hasRoom
}

// next returns the next response and the kind of its resources; nil if there is nothing to send. hasRoom is false if
// too many bytes are unread.
func (s *session) next() (k kind, response []byte, hasRoom bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.hasEnded {
		return 0, nil, true
	}
	if !s.usage.admit(s.client, usageCounts{unreadBytes: maxResponse}) { // about the maximum size of a response
		return 0, nil, false
	}
	k, response = s.nextResponse()
	s.usage.release(s.client, usageCounts{unreadBytes: maxResponse - len(response)})
	return k, response, true
}

func (s *session) nextResponse() (kind, []byte) {
	version, isOpen := s.table.version()
	if !isOpen {
		return 0, nil
	}
	return s.stream.next(s.table.find, version)
}

// end ends the session, releases the client's usage, and reports whether the client has acknowledged or rejected all
// responses.
func (s *session) end() (isRead bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.hasEnded = true
	s.table.removeSession(s)
	unread := s.stream.unackedBytes()
	s.usage.release(s.client, usageCounts{openStreams: 1, subscribedNames: s.nameCount, unreadBytes: unread})
	return unread == 0
}
