package xds

import (
	"net/netip"
	"sync"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// session is one stream of a client, between the goroutine that reads its requests and the one that writes responses.
type session struct {
	table     *Table
	admission *admission
	client    netip.Addr
	// news holds a signal that there may be something to tell. Changes meet in it: a client that does not read has one
	// response of each kind made for it, and no queue.
	news chan struct{}

	mutex    sync.Mutex
	stream   stream
	names    int // that the stream asks for
	hasEnded bool
	// waits counts the names of each Service, over all kinds.
	waits map[model.ObjectName]int
}

// newSession begins a session of a client that was admitted. Who made it ends it.
func newSession(table *Table, admission *admission, client netip.Addr, only string) *session {
	s := &session{
		table: table, admission: admission, client: client, news: make(chan struct{}, 1), waits: map[model.ObjectName]int{},
		stream: stream{domain: table.domain, only: only},
	}
	table.enter(s)
	return s
}

// awake says that there may be something to tell. It never waits.
func (s *session) awake() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// take takes a request in. There may be no room for what it asks for: then the session is to end.
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
	before := s.names
	s.names = s.stream.names()
	hasRoom := s.admission.ask(s.client, before, s.names)
	s.admission.send(s.client, -result.read)
	s.awake()
	return result, hasRoom
}

// next returns the next response, and what kind of resources it has; nil if there is nothing to tell. A client may leave
// too much unread: then the session is to end.
func (s *session) next() (of kind, response []byte, hasRoom bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.hasEnded {
		return 0, nil, true
	}
	if of, response = s.tell(); response == nil {
		return 0, nil, true
	}
	return of, response, s.admission.send(s.client, len(response))
}

func (s *session) tell() (kind, []byte) {
	s.table.mutex.RLock()
	defer s.table.mutex.RUnlock()
	if !s.table.isOpen {
		return 0, nil
	}
	return s.stream.next(s.table.find, s.table.version())
}

// end ends it, and gives back what the client had.
func (s *session) end() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.hasEnded = true
	s.table.leave(s)
	s.admission.leave(s.client, s.names, s.stream.unread())
}
