package xds

import (
	"sync"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// session is one stream of a client, between the goroutine that reads its requests and the one that writes responses.
type session struct {
	table *Table
	// news holds a signal that there may be something to tell. Changes meet in it: a client that does not read has one
	// response made for it, and no queue.
	news chan struct{}

	mutex  sync.Mutex
	stream stream
	// waits counts the names of each Service, over all kinds.
	waits map[model.ObjectName]int
}

func newSession(table *Table, only string) *session {
	s := &session{
		table: table, news: make(chan struct{}, 1), waits: map[model.ObjectName]int{},
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

// take takes a request in, and returns how many names the client asks for now.
func (s *session) take(r request) (effect, int) {
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
	s.awake()
	return result, s.stream.names()
}

// next returns the next response, and what kind of resources it has; nil if there is nothing to tell.
func (s *session) next() (kind, []byte) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.table.mutex.RLock()
	defer s.table.mutex.RUnlock()
	if !s.table.isOpen {
		return 0, nil
	}
	return s.stream.next(s.table.find, s.table.version())
}

// end ends it. No request may be taken in any more.
func (s *session) end() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.table.leave(s)
}
