package xds

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Table holds the Services, and the sessions that watch them. It is a handler of the proxy's decisions.
type Table struct {
	// domain is the cluster's domain in resource names.
	domain string
	// epoch is the prefix of all versions of this process: a client must not mistake its version 1 for that of an earlier
	// process.
	epoch string

	mutex    sync.RWMutex
	services map[model.ObjectName]service
	// sessions are all sessions, waiting those that watch a Service.
	sessions map[*session]bool
	watchers map[model.ObjectName]map[*session]bool
	changes  uint64
	// isSynced is set when the table is complete. Before that, clients get no responses, because they would apply an
	// incomplete state.
	isSynced bool
}

// NewTable returns an empty table, which is closed until the first sync.
func NewTable(domain string) *Table {
	return &Table{
		domain:   domain,
		epoch:    strconv.FormatInt(time.Now().UnixNano(), 36),
		services: map[model.ObjectName]service{}, sessions: map[*session]bool{},
		watchers: map[model.ObjectName]map[*session]bool{},
	}
}

// Derive returns the part of the decisions about a Service that clients may get; nil if it has no TCP port.
func (t *Table) Derive(decisions []selection.Decision) any {
	if derived := newService(decisions); len(derived) > 0 {
		return derived
	}
	return nil
}

// OnApplied replaces a Service.
func (t *Table) OnApplied(name model.ObjectName, digest any) {
	updated, _ := digest.(service)
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if slices.Equal(t.services[name], updated) {
		return // a full sync applies every Service, and most are unchanged
	}
	if t.services[name] = updated; len(updated) == 0 {
		delete(t.services, name)
	}
	t.changes++
	for s := range t.watchers[name] {
		s.changed.Notify()
	}
}

// OnSynced opens the table for clients.
func (t *Table) OnSynced(selection.SyncState) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.isSynced {
		return
	}
	t.isSynced = true
	for s := range t.sessions {
		s.changed.Notify()
	}
}

// addSession adds a session.
func (t *Table) addSession(s *session) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.sessions[s] = true
}

// removeSession removes a session: no change notifies it any more.
func (t *Table) removeSession(s *session) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	delete(t.sessions, s)
	for name := range s.watched {
		t.unwatch(s, name)
	}
}

// find implements lookup. It holds the mutex only briefly: building a large response must not delay a sync.
func (t *Table) find(ref portRef) (port, bool) {
	t.mutex.RLock()
	service := t.services[ref.service] // it is immutable, and only replaced
	t.mutex.RUnlock()
	return service.port(ref.number)
}

// missing returns the names of the given Service ports that do not exist, in their most common form.
func (t *Table) missing(ports []portRef) []string {
	if _, isOpen := t.version(); !isOpen {
		return nil
	}
	var names []string
	for _, ref := range ports {
		if _, exists := t.find(ref); !exists {
			names = append(names, ref.name(t.domain))
		}
	}
	return names
}

// version returns the version of the table's content, and reports whether clients may get it.
func (t *Table) version() (version string, isOpen bool) {
	t.mutex.RLock()
	defer t.mutex.RUnlock()
	return t.epoch + "-" + strconv.FormatUint(t.changes, 10), t.isSynced
}

// setWatch starts or stops notifying a session of changes of a Service.
func (t *Table) setWatch(s *session, name model.ObjectName, watch bool) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	switch sessions := t.watchers[name]; {
	case !watch:
		t.unwatch(s, name)
	case sessions == nil:
		t.watchers[name] = map[*session]bool{s: true}
	default:
		sessions[s] = true
	}
}

// unwatch stops notifying a session. The caller must hold the mutex.
func (t *Table) unwatch(s *session, name model.ObjectName) {
	sessions := t.watchers[name]
	if delete(sessions, s); len(sessions) == 0 {
		delete(t.watchers, name)
	}
}
