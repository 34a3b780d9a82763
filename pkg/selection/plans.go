package selection

import "github.com/vicinity-proxy/vicinity/pkg/model"

// Plans are what decisions about a Service were planned from: nil if nothing was.
type Plans []*planned

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

// Digest returns the plans behind decisions.
func (*Planner) Digest(decisions []Decision) any {
	if plans := PlansOf(decisions); plans != nil {
		return plans
	}
	return nil
}

// Accept takes over the plans in force of a Service.
func (p *Planner) Accept(service model.ObjectName, digest any) {
	if plans, _ := digest.(Plans); plans != nil {
		p.inForce[service] = plans
		return
	}
	delete(p.inForce, service)
}

// Synced does nothing.
func (*Planner) Synced(Sync) {}
