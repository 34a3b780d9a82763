package model

import (
	"maps"
	"slices"
	"strings"
)

// boundedServices tracks the load-bounded Services. Their endpoints are chosen for the demand of all nodes, so each
// node that is added or removed affects all of them a little.
type boundedServices struct {
	services map[ObjectName]bool
	// byClient maps a Service to the bounded Services that name it as their client.
	byClient map[ObjectName]map[ObjectName]bool
	// stale are the bounded Services with new clients or new demand. allStale means that all of them are stale.
	stale    map[ObjectName]bool
	allStale bool
	// version counts the changes of clients' endpoints.
	version uint64
}

func newBoundedServices() boundedServices {
	return boundedServices{
		services: map[ObjectName]bool{}, byClient: map[ObjectName]map[ObjectName]bool{}, stale: map[ObjectName]bool{},
	}
}

// add starts tracking a Service if its load is bounded.
func (b *boundedServices) add(service *Service) {
	if service.Topology.MaxLoad == 0 {
		return
	}
	b.services[service.Name] = true
	for _, client := range service.Clients() {
		if b.byClient[client] == nil {
			b.byClient[client] = map[ObjectName]bool{}
			b.version++ // its endpoints may have changed while no Service named it
		}
		b.byClient[client][service.Name] = true
	}
}

func (b *boundedServices) remove(service *Service) {
	delete(b.services, service.Name)
	delete(b.stale, service.Name)
	for _, client := range service.Clients() {
		if delete(b.byClient[client], service.Name); len(b.byClient[client]) == 0 {
			delete(b.byClient, client)
		}
	}
}

// markNodeChanged records that a node was added, removed or relabelled. A change of this node's own labels makes all
// bounded Services dirty at once.
func (b *boundedServices) markNodeChanged(isSelf bool, dirty map[ObjectName]bool) {
	if isSelf {
		maps.Copy(dirty, b.services)
		return
	}
	b.allStale = true
}

// markClientsChanged records that the endpoints of a Service changed. Bounded Services may name it as their client.
func (b *boundedServices) markClientsChanged(client ObjectName) {
	if len(b.byClient[client]) > 0 {
		maps.Copy(b.stale, b.byClient[client])
		b.version++
	}
}

// markDemandChanged records that the measured demand of a Service changed. A nil Service is ignored.
func (b *boundedServices) markDemandChanged(service *Service) {
	if service != nil && service.Topology.MaxLoad > 0 && service.Topology.Measured {
		b.stale[service.Name] = true
	}
}

// ClientsVersion returns a number that changes whenever a Service is first named as a client, or a client's endpoints
// change.
func (c *Cluster) ClientsVersion() uint64 { return c.bounded.version }

// HasStale reports whether any load-bounded Service has had new clients or new demand since the last TakeStale.
func (c *Cluster) HasStale() bool {
	return len(c.bounded.stale) > 0 || c.bounded.allStale && len(c.bounded.services) > 0
}

// TakeStale returns the Services with new clients or new demand, in any order, and clears the list. Apply does not
// return them, because their shares change only a little and there may be very many.
func (c *Cluster) TakeStale() []ObjectName {
	stale := c.bounded.stale
	if c.bounded.allStale {
		stale = c.bounded.services
	}
	names := slices.AppendSeq(make([]ObjectName, 0, len(stale)), maps.Keys(stale))
	c.bounded.stale, c.bounded.allStale = map[ObjectName]bool{}, false
	return names
}

// Clients returns the Services in vicinity.dev/clients, whose endpoints are this Service's clients.
func (s *Service) Clients() []ObjectName {
	clients := make([]ObjectName, 0, len(s.Topology.Clients))
	for _, client := range s.Topology.Clients {
		if namespace, name, found := strings.Cut(client, "/"); found {
			clients = append(clients, ObjectName{namespace, name})
		}
	}
	return clients
}
