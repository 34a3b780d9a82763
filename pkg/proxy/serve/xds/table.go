package xds

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Table holds the Services, and which sessions wait for news of which. It is a reader of the proxy's decisions.
type Table struct {
	// domain is the cluster's, in names of resources.
	domain string
	// epoch is the prefix of all versions of this process: a client must not mistake its version 1 for an earlier
	// process's.
	epoch string

	mutex    sync.RWMutex
	services map[model.ObjectName]service
	// sessions are all, and waiting those that ask for a Service.
	sessions map[*session]bool
	waiting  map[model.ObjectName]map[*session]bool
	changes  uint64
	// isSynced: the table is complete. Before that clients are told nothing, because they obey what they are told.
	isSynced bool
}

// NewTable returns a table that is empty, and closed until the first sync.
func NewTable(domain string) *Table {
	return &Table{
		domain:   domain,
		epoch:    strconv.FormatInt(time.Now().UnixNano(), 36),
		services: map[model.ObjectName]service{}, sessions: map[*session]bool{},
		waiting: map[model.ObjectName]map[*session]bool{},
	}
}

// Derive returns what clients may be told of a Service; nil if it has no TCP port.
func (t *Table) Derive(decisions []selection.Decision) any {
	if made := newService(decisions); len(made) > 0 {
		return made
	}
	return nil
}

// OnApplied replaces what clients may be told of a Service.
func (t *Table) OnApplied(name model.ObjectName, digest any) {
	now, _ := digest.(service)
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if slices.Equal(t.services[name], now) {
		return // a complete sync hands over everything, and mostly nothing is new
	}
	if t.services[name] = now; len(now) == 0 {
		delete(t.services, name)
	}
	t.changes++
	for who := range t.waiting[name] {
		who.changed.Notify()
	}
}

// OnSynced lets clients be answered.
func (t *Table) OnSynced(selection.SyncState) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.isSynced {
		return
	}
	t.isSynced = true
	for who := range t.sessions {
		who.changed.Notify()
	}
}

// addSession takes a session in.
func (t *Table) addSession(who *session) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.sessions[who] = true
}

// removeSession takes a session out: no change wakes it any more.
func (t *Table) removeSession(who *session) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	delete(t.sessions, who)
	for name := range who.watched {
		t.unwatch(who, name)
	}
}

// find is a lookup. It holds the mutex only for itself: making a large response must not keep a sync waiting.
func (t *Table) find(of portOf) (port, bool) {
	t.mutex.RLock()
	service := t.services[of.service] // it never changes, it is only replaced
	t.mutex.RUnlock()
	return service.port(of.number)
}

// missing returns which of some Service ports do not exist, as clients may write them.
func (t *Table) missing(ports []portOf) []string {
	if _, isOpen := t.version(); !isOpen {
		return nil
	}
	var names []string
	for _, of := range ports {
		if _, is := t.find(of); !is {
			names = append(names, of.name(t.domain))
		}
	}
	return names
}

// version names what is in the table, and says whether clients may be told of it.
func (t *Table) version() (version string, isOpen bool) {
	t.mutex.RLock()
	defer t.mutex.RUnlock()
	return t.epoch + "-" + strconv.FormatUint(t.changes, 10), t.isSynced
}

// setWatch makes changes of a Service wake a session, or no longer do so.
func (t *Table) setWatch(who *session, name model.ObjectName, waits bool) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	switch sessions := t.waiting[name]; {
	case !waits:
		t.unwatch(who, name)
	case sessions == nil:
		t.waiting[name] = map[*session]bool{who: true}
	default:
		sessions[who] = true
	}
}

// unwatch must be called with the mutex held.
func (t *Table) unwatch(who *session, name model.ObjectName) {
	sessions := t.waiting[name]
	if delete(sessions, who); len(sessions) == 0 {
		delete(t.waiting, name)
	}
}
