package model

import (
	"maps"
	"slices"
	"strings"
)

// bounded are the Services whose load is bounded. Their endpoints are chosen with regard to all nodes and their demand,
// so each node that comes or goes affects all of them a little.
type bounded struct {
	services map[ObjectName]bool
	// clients are the bounded Services that name a Service as their client, by that Service.
	clients map[ObjectName]map[ObjectName]bool
	// stale are those with new clients or new demand; all of them have when allStale is set.
	stale    map[ObjectName]bool
	allStale bool
	// version counts the changes of clients' endpoints.
	version uint64
}

func newBounded() bounded {
	return bounded{
		services: map[ObjectName]bool{}, clients: map[ObjectName]map[ObjectName]bool{}, stale: map[ObjectName]bool{},
	}
}

// add takes in a Service, if its load is bounded.
func (b *bounded) add(service *Service) {
	if service.Topology.MaxLoad == 0 {
		return
	}
	b.services[service.Name] = true
	for _, client := range service.Clients() {
		if b.clients[client] == nil {
			b.clients[client] = map[ObjectName]bool{}
			b.version++ // its endpoints may have changed while no Service named it
		}
		b.clients[client][service.Name] = true
	}
}

func (b *bounded) remove(service *Service) {
	delete(b.services, service.Name)
	delete(b.stale, service.Name)
	for _, client := range service.Clients() {
		if delete(b.clients[client], service.Name); len(b.clients[client]) == 0 {
			delete(b.clients, client)
		}
	}
}

// markNodeChanged takes in that a node came, went or changed its labels. Changes of this node's own labels concern all bounded
// Services at once.
func (b *bounded) markNodeChanged(isSelf bool, dirty map[ObjectName]bool) {
	if isSelf {
		maps.Copy(dirty, b.services)
		return
	}
	b.allStale = true
}

// markClientsChanged takes in that the endpoints of a Service, which may be clients, have changed.
func (b *bounded) markClientsChanged(client ObjectName) {
	if len(b.clients[client]) > 0 {
		maps.Copy(b.stale, b.clients[client])
		b.version++
	}
}

// markDemandChanged takes in that the measured demand of a Service changed. Nil: there is no such Service.
func (b *bounded) markDemandChanged(service *Service) {
	if service != nil && service.Topology.MaxLoad > 0 && service.Topology.Measured {
		b.stale[service.Name] = true
	}
}

// ClientsVersion changes whenever a Service is first named as a client, or a client's endpoints change.
func (c *Cluster) ClientsVersion() uint64 { return c.bounded.version }

// HasStale reports whether Services whose load is bounded have new clients or new demand since TakeStale.
func (c *Cluster) HasStale() bool {
	return len(c.bounded.stale) > 0 || c.bounded.allStale && len(c.bounded.services) > 0
}

// TakeStale returns the Services with new clients or new demand, in any order, and forgets them. Apply does not return
// them: it changes their shares a little, and may concern very many at once.
func (c *Cluster) TakeStale() []ObjectName {
	stale := c.bounded.stale
	if c.bounded.allStale {
		stale = c.bounded.services
	}
	names := slices.AppendSeq(make([]ObjectName, 0, len(stale)), maps.Keys(stale))
	c.bounded.stale, c.bounded.allStale = map[ObjectName]bool{}, false
	return names
}

// Clients are the Services whose endpoints are this one's clients, as named by its owner.
func (s *Service) Clients() []ObjectName {
	clients := make([]ObjectName, 0, len(s.Topology.Clients))
	for _, client := range s.Topology.Clients {
		if namespace, name, found := strings.Cut(client, "/"); found {
			clients = append(clients, ObjectName{namespace, name})
		}
	}
	return clients
}
