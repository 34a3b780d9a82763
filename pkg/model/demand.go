package model

import (
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/servicedemand"
)

// Demand is the measured demand of a Service, from its ServiceDemand.
type Demand struct {
	// Zones are the total demand of each zone's nodes, in millionths of all; a missing zone has none. The zone of nodes
	// without a zone is empty.
	Zones map[string]uint32
	// ObservedAt is when that was determined, from NodesHeard of NodesAll.
	ObservedAt                 time.Time
	NodesReporting, NodesTotal int
	// ConnectionsPerMinute are the new connections to the Service.
	ConnectionsPerMinute uint64
}

// DemandState says whether measured demand counts.
type DemandState int

// The states.
const (
	DemandUnknown     DemandState = iota // nobody has looked yet, or nobody needs it
	DemandUnavailable                    // nobody publishes it in this cluster, or it may not be read
	DemandStale                          // nobody has published for so long that it no longer counts
	DemandActive
)

// Assumed returns why the demand on a Service that has no measured demand is assumed.
func (s DemandState) Assumed() servicedemand.Assumed {
	switch s {
	case DemandUnavailable:
		return servicedemand.NotPublished
	case DemandStale:
		return servicedemand.NotConfirmed
	case DemandActive:
		return servicedemand.NoneToPlan
	case DemandUnknown:
	}
	return servicedemand.DemandUnknown
}

// MeasuredDemand returns the measured demand of a Service; nil if there is none, it does not count, or the owner does
// not want it.
func (c *Cluster) MeasuredDemand(service *Service) *Demand {
	if c.demandState != DemandActive || !service.Topology.Measured {
		return nil
	}
	return c.demands[service.Name]
}

// DemandState returns whether measured demand counts.
func (c *Cluster) DemandState() DemandState { return c.demandState }

// applyDemand notes the Services that are planned with measured demand and have a new measurement, or all of those if
// measured demand begins or ceases to count. TakeStale returns them: their shares change a little, as with a new node.
func (c *Cluster) applyDemand(demands map[ObjectName]*Demand, state *DemandState) {
	for name, demand := range demands {
		if demand == nil {
			delete(c.demands, name)
		} else {
			c.demands[name] = demand
		}
		c.bounded.markDemandChanged(c.services[name])
	}
	if state == nil || *state == c.demandState {
		return
	}
	c.demandState = *state
	for name := range c.bounded.services {
		c.bounded.markDemandChanged(c.services[name])
	}
}
