package xds

import (
	"net/netip"
	"sync"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/wake"
)

// session is one stream of a client, between the goroutine that reads its requests and the one that writes responses.
type session struct {
	table  *Table
	ledger *ledger
	client netip.Addr
	// news holds a signal that there may be something to tell. Changes share it: a client that does not read gets one
	// response of each kind, and has no queue.
	news wake.Signal

	mutex    sync.Mutex
	stream   stream
	names    int // that the stream asks for
	hasEnded bool
	// waits counts the names of each Service, over all kinds.
	waits map[model.ObjectName]int
}

// newSession begins a session of a client that was admitted. The caller must end it.
func newSession(table *Table, ledger *ledger, client netip.Addr, only string) *session {
	s := &session{
		table: table, ledger: ledger, client: client, news: wake.NewSignal(), waits: map[model.ObjectName]int{},
		stream: stream{domain: table.domain, only: only},
	}
	table.enter(s)
	return s
}

// take takes a request in. If there is no room for what it asks for, the session must end.
func (s *session) take(r request) (effect, bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	result := s.stream.take(r)
	for _, of := range result.added {
		if s.waits[of.service]++; s.waits[of.service] == 1 {
			s.table.wait(s, of.service, true)
		}
	}
	for _, of := range result.removed {
		if s.waits[of.service]--; s.waits[of.service] == 0 {
			delete(s.waits, of.service)
			s.table.wait(s, of.service, false)
		}
	}
	result.wrong = append(result.wrong, s.table.missing(result.added)...)
	now := s.stream.names()
	hasRoom := s.ledger.admit(s.client, held{askedNames: now - s.names})
	if hasRoom {
		s.names = now
	}
	s.ledger.release(s.client, held{unreadBytes: result.read})
	s.news.Send()
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
	if !s.ledger.admit(s.client, held{unreadBytes: maxResponse}) { // about as large as it becomes
		return 0, nil, false
	}
	of, response = s.tell()
	s.ledger.release(s.client, held{unreadBytes: maxResponse - len(response)})
	return of, response, true
}

func (s *session) tell() (kind, []byte) {
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
	s.table.leave(s)
	unread := s.stream.unread()
	s.ledger.release(s.client, held{openStreams: 1, askedNames: s.names, unreadBytes: unread})
	return unread == 0
}
