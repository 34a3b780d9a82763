package model

import (
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// Evacuation takes the endpoints on a node out of new connections, as long as others may serve in their place.
type Evacuation struct {
	// Until is when it ends; nil: when the node's label goes. Who watches the clock makes a change of it.
	Until *time.Time
}

// End says when it ends, for people.
func (e *Evacuation) End() string {
	if e.Until == nil {
		return "the label " + policy.EvacuateLabel + " goes"
	}
	return e.Until.UTC().Format("2006-01-02 15:04 UTC")
}

// Evacuation returns the evacuation of a node; nil if it is not being evacuated.
func (c *Cluster) Evacuation(node string) *Evacuation { return c.evacuations[node] }

// Evacuated counts the nodes that are being evacuated: until a time, or until their label goes.
func (c *Cluster) Evacuated() (timed, open int) {
	for _, evacuation := range c.evacuations {
		if evacuation.Until == nil {
			open++
		} else {
			timed++
		}
	}
	return timed, open
}

// MarkEvacuated notes of which endpoints the nodes are being evacuated.
func (c *Cluster) MarkEvacuated(endpoints []PortEndpoint) {
	if len(c.evacuations) == 0 {
		return
	}
	for i := range endpoints {
		endpoints[i].Evacuation = c.evacuations[endpoints[i].Node]
	}
}

// applyEvacuations marks the Services that have endpoints on nodes of which the evacuation begins or ends.
func (c *Cluster) applyEvacuations(evacuations map[string]*Evacuation, dirty map[ObjectName]bool) {
	changed := map[string]bool{}
	for node, evacuation := range evacuations {
		if (c.evacuations[node] == nil) != (evacuation == nil) {
			changed[node] = true
		}
		if c.evacuations[node] = evacuation; evacuation == nil {
			delete(c.evacuations, node)
		}
	}
	if len(changed) == 0 {
		return
	}
	for _, slice := range c.slices {
		if !dirty[slice.Service] && slice.isOn(changed) {
			dirty[slice.Service] = true
		}
	}
}

// WithoutEnded returns the change as it is at a time: of the evacuations that have an end, those that are over by then
// are no more.
func (c Change) WithoutEnded(now time.Time) Change {
	evacuations := make(map[string]*Evacuation, len(c.Evacuations))
	for node, evacuation := range c.Evacuations {
		if evacuation != nil && evacuation.isOver(now) {
			evacuation = nil
		}
		evacuations[node] = evacuation
	}
	c.Evacuations = evacuations
	return c
}

func (e *Evacuation) isOver(now time.Time) bool { return e.Until != nil && !now.Before(*e.Until) }
