package model

import (
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
)

// Demand is the measured demand of a Service, from its ServiceDemand.
type Demand struct {
	// Zones is the demand of each zone's nodes, in millionths of the demand of all nodes. A missing zone has no demand.
	// Nodes without a zone have the key "".
	Zones map[string]uint32
	// Open is the same for open connections. It is nil if they are distributed like new ones.
	Open map[string]uint32
	// AssumedZones are the zones with a proxy that never reported, sorted: their demand is at least the assumed one.
	AssumedZones []string
	// EffectiveNodes is the number of nodes with equal demand that would be as concentrated as those that connect. 0 means
	// that it is unknown.
	EffectiveNodes uint64
	// ObservedAt is the time of the measurement. NodesReporting of NodesTotal nodes contributed to it.
	ObservedAt                 time.Time
	NodesReporting, NodesTotal int
	// ConnectionsPerMinute is the rate of new connections to the Service.
	ConnectionsPerMinute uint64
}

// DemandBacklog are measurements that wait because the publisher's budget is used up.
type DemandBacklog struct {
	Waiting int
	// Since is when those of some Services began to wait: as many as are known.
	Since map[ObjectName]time.Time
}

// DemandState is whether measured demand is used.
type DemandState int

// The demand states.
const (
	DemandUnknown     DemandState = iota // not read yet, or not needed
	DemandUnavailable                    // not published in this cluster, or reading it is forbidden
	DemandStale                          // published too long ago to be used
	DemandActive
)

// AssumedReason returns why the demand of a Service without measured demand is assumed.
func (s DemandState) AssumedReason() v1alpha1.DemandAssumedReason {
	switch s {
	case DemandUnavailable:
		return v1alpha1.DemandNotPublished
	case DemandStale:
		return v1alpha1.DemandLeaseNotRenewed
	case DemandActive:
		return v1alpha1.NoUsableDemand
	case DemandUnknown:
	}
	return v1alpha1.DemandUnknown
}

// MeasuredDemand returns the measured demand of a Service. It returns nil if there is none, if measured demand is not
// active, or if the Service does not use it.
func (c *Cluster) MeasuredDemand(service *Service) *Demand {
	if c.demandState != DemandActive || !service.Topology.Measured {
		return nil
	}
	return c.demands[service.Name]
}

// DemandState returns whether measured demand is used.
func (c *Cluster) DemandState() DemandState { return c.demandState }

// DemandBacklog returns the measurements that wait for the publisher. It affects no decision.
func (c *Cluster) DemandBacklog() DemandBacklog { return c.demandBacklog }

// applyDemand marks as stale the Services that use measured demand and have a new measurement, or all that use it if
// the state changed. TakeStale returns them: their shares change only a little, as with a new node.
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
