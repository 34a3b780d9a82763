//go:build linux

package probe

import (
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
	"github.com/vicinity-proxy/vicinity/pkg/wake"
)

// Served reads from decisions on which nodes Services have endpoints. Its work is proportional to what changes.
type Served struct {
	nodes    map[model.ObjectName][]string
	services map[string]int // by node
	isNew    bool

	changed wake.Signal
	mutex   sync.Mutex
	names   map[string]bool // of the nodes, as of the last sync that made a difference
	local   []netip.Addr
}

// NewServed returns a reader that knows of no endpoint yet.
func NewServed() *Served {
	return &Served{nodes: map[model.ObjectName][]string{}, services: map[string]int{}, changed: wake.NewSignal()}
}

// Digest returns the nodes of a Service's endpoints.
func (s *Served) Digest(decisions []selection.Decision) any {
	names := map[string]bool{}
	for i := range decisions {
		for j := range decisions[i].Endpoints {
			if node := decisions[i].Endpoints[j].Node; node != "" && !decisions[i].Service.IsHeadless {
				names[node] = true
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(names))
}

// Accept takes over the nodes of a Service.
func (s *Served) Accept(service model.ObjectName, digest any) {
	now, _ := digest.([]string)
	before := s.nodes[service]
	if slices.Equal(before, now) {
		return
	}
	for _, node := range now {
		if s.services[node]++; s.services[node] == 1 {
			s.isNew = true
		}
	}
	for _, node := range before {
		if s.services[node]--; s.services[node] == 0 {
			delete(s.services, node)
			s.isNew = true
		}
	}
	if s.nodes[service] = now; now == nil {
		delete(s.nodes, service)
	}
}

// Synced wakes whoever waits if the nodes that serve, or this node's addresses, have changed.
func (s *Served) Synced(sync selection.Sync) {
	s.mutex.Lock()
	isNew := s.isNew || s.names == nil || !slices.Equal(s.local, sync.LocalAddrs)
	if isNew {
		s.names, s.local, s.isNew = map[string]bool{}, slices.Clone(sync.LocalAddrs), false
		for node := range s.services {
			s.names[node] = true
		}
	}
	s.mutex.Unlock()
	if isNew {
		s.changed.Send()
	}
}

// known returns the nodes with endpoints, and the addresses of this node. They never change.
func (s *Served) known() (nodes map[string]bool, local []netip.Addr) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.names, s.local
}
