package selection

import "github.com/vicinity-proxy/vicinity/pkg/model"

// Plans are the plans behind the decisions about a Service. nil means that there is none.
type Plans []*planRecord

// PlansOf returns the plans behind decisions about a Service.
func PlansOf(decisions []Decision) Plans {
	var plans Plans
	for _, decision := range decisions {
		if record := decision.Selection.Cluster.record; record != nil {
			plans = append(plans, record)
		}
	}
	return plans
}

// A Planner is a Handler of its own decisions: from the applied plans, NeedsReplan detects whether another decision can
// differ, without making one.

// Derive returns the plans behind decisions.
func (*Planner) Derive(decisions []Decision) any {
	if plans := PlansOf(decisions); plans != nil {
		return plans
	}
	return nil
}

// OnApplied stores the applied plans of a Service.
func (p *Planner) OnApplied(service model.ObjectName, digest any) {
	if plans, _ := digest.(Plans); plans != nil {
		p.applied[service] = plans
		return
	}
	delete(p.applied, service)
}

// OnSynced does nothing.
func (*Planner) OnSynced(SyncState) {}
