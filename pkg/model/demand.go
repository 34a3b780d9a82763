package model

import (
	"time"
)

// Demand is what is asked of a Service, as somebody measured it: its ServiceDemand says so.
type Demand struct {
	// Zones are what each zone's nodes ask together, in millionths of all; a zone that is missing asks nothing. The zone of
	// nodes without a zone is empty.
	Zones map[string]uint32
	// Nodes are those that ask much more than others of their zone, and what of its zone's demand each asks.
	Nodes map[string]uint32
	// Since is when that was found out, from NodesHeard of NodesAll.
	Since                time.Time
	NodesHeard, NodesAll int
	// ConnectionsPerMinute are the new connections to the Service.
	ConnectionsPerMinute uint64
}

// AllDemand is what all zones ask together.
const AllDemand = 1_000_000

// DemandState is whether the demand counts that was measured.
type DemandState int

// The states.
const (
	DemandUnknown     DemandState = iota // nobody has looked yet, or nobody needs it
	DemandUnpublished                    // nobody publishes it in this cluster, or it may not be read
	DemandStale                          // nobody has published for so long that it counts no more
	DemandCounts
)

// MeasuredDemand returns what was measured of a Service; nil if nothing was, it does not count, or the owner does not want it.
func (c *Cluster) MeasuredDemand(service *Service) *Demand {
	if c.demandState != DemandCounts || !service.Topology.Measured {
		return nil
	}
	return c.demands[service.Name]
}

// DemandState returns whether what was measured counts.
func (c *Cluster) DemandState() DemandState { return c.demandState }

// applyDemand marks the Services that are planned with what was measured, and was measured anew. It changes their shares a
// little, as a node that comes does.
func (c *Cluster) applyDemand(demands map[ObjectName]*Demand, state *DemandState) {
	for name, demand := range demands {
		if demand == nil {
			delete(c.demands, name)
		} else {
			c.demands[name] = demand
		}
		c.bounded.measureAnew(c.services[name])
	}
	if state == nil || *state == c.demandState {
		return
	}
	c.demandState = *state
	for name := range c.bounded.services {
		c.bounded.measureAnew(c.services[name])
	}
}
