package metrics

import (
	"maps"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// PortReason is why a Service port has the endpoints that it has in one family.
type PortReason struct {
	Family model.Family
	// External is set if the reason is for the frontends that externalTrafficPolicy governs, for clients from outside;
	// otherwise it is for the ClusterIP.
	External bool
	Code     selection.Code
}

// PortCounts are the numbers of applied Service ports.
type PortCounts struct {
	// Reasons counts the ports by the reason for their endpoints. A reason that no port has any more remains, with zero.
	Reasons map[PortReason]int
	// Shares are where Services with a load bound send this node's connections.
	Shares selection.Shares
}

// PortCounter counts the applied Service ports. It keeps the contribution of each Service, so that a sync only updates
// the counts of the Services that it decides. It is a handler of the proxy's decisions.
type PortCounter struct {
	onChange func(PortCounts)
	// lastReport is the last report; changed is set if the counts may differ from it.
	lastReport *PortCounts
	changed    bool

	byReason  map[PortReason]*int
	byService map[model.ObjectName][]*int // by Service: one pointer for each port, because there may be very many
	plans     map[model.ObjectName]selection.Plans
	shares    selection.Shares
}

// NewPortCounter returns a handler that reports the counts after each sync that changed any.
func NewPortCounter(onChange func(PortCounts)) *PortCounter {
	return &PortCounter{
		onChange: onChange, byReason: map[PortReason]*int{}, byService: map[model.ObjectName][]*int{},
		plans: map[model.ObjectName]selection.Plans{},
	}
}

// contribution is the contribution of a Service.
type contribution struct {
	reasons []PortReason
	plans   selection.Plans
}

// Derive returns the contribution of a Service.
func (*PortCounter) Derive(decisions []selection.Decision) any {
	var reasons []PortReason
	for _, decision := range decisions {
		if !decision.Service.IsHeadless { // only served by DNS: nothing of it is in the kernel
			reasons = appendReasons(reasons, decision)
		}
	}
	if len(reasons) == 0 {
		return nil
	}
	return contribution{reasons, selection.PlansOf(decisions)}
}

// appendReasons appends the reasons of a decision: for the ClusterIP, and for the external frontends if the port has
// any.
func appendReasons(list []PortReason, decision selection.Decision) []PortReason {
	internal, _ := decision.Selection.ClusterIP()
	list = append(list, PortReason{Family: decision.Family, Code: internal.Reason.Code})
	if decision.Service.IsExternal(decision.Port, decision.Family) {
		external, _ := decision.Selection.External()
		list = append(list, PortReason{Family: decision.Family, External: true, Code: external.Reason.Code})
	}
	return list
}

// OnApplied updates the counts of a Service.
func (c *PortCounter) OnApplied(service model.ObjectName, derived any) {
	c.changed = true
	for _, count := range c.byService[service] {
		*count--
	}
	c.shares.Add(c.plans[service], -1)
	delete(c.byService, service)
	delete(c.plans, service)
	added, isCounted := derived.(contribution)
	if !isCounted {
		return
	}
	counts := make([]*int, 0, len(added.reasons))
	for _, reason := range added.reasons {
		count := c.byReason[reason]
		if count == nil {
			count = new(int)
			c.byReason[reason] = count
		}
		*count++
		counts = append(counts, count)
	}
	c.byService[service] = counts
	c.shares.Add(added.plans, 1)
	if len(added.plans) > 0 {
		c.plans[service] = added.plans
	}
}

// OnSynced reports the counts if they changed.
func (c *PortCounter) OnSynced(selection.SyncState) {
	if !c.changed && c.lastReport != nil {
		return
	}
	current := PortCounts{Reasons: make(map[PortReason]int, len(c.byReason)), Shares: c.shares}
	for reason, count := range c.byReason {
		current.Reasons[reason] = *count
	}
	if c.changed = false; c.lastReport != nil && c.lastReport.equal(current) {
		return
	}
	c.lastReport = &current
	c.onChange(current)
}

func (c PortCounts) equal(other PortCounts) bool {
	return c.Shares == other.Shares && maps.Equal(c.Reasons, other.Reasons)
}
