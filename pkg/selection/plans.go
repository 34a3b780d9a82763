package selection

import "github.com/vicinity-proxy/vicinity/pkg/model"

// Plans are what decisions about a Service were planned from: nil if nothing was.
type Plans []*planInput

// PlansOf returns the plans behind decisions about a Service.
func PlansOf(decisions []Decision) Plans {
	var plans Plans
	for _, decision := range decisions {
		if part := decision.Selection.Cluster.planned; part != nil {
			plans = append(plans, part)
		}
	}
	return plans
}

// A Planner is a reader of the decisions that it makes: MayDiffer tells from the plans in force, without making new
// ones, whether another decision can differ.

// Derive returns the plans behind decisions.
func (*Planner) Derive(decisions []Decision) any {
	if plans := PlansOf(decisions); plans != nil {
		return plans
	}
	return nil
}

// OnApplied takes over the plans in force of a Service.
func (p *Planner) OnApplied(service model.ObjectName, digest any) {
	if plans, _ := digest.(Plans); plans != nil {
		p.applied[service] = plans
		return
	}
	delete(p.applied, service)
}

// OnSynced does nothing.
func (*Planner) OnSynced(SyncState) {}
