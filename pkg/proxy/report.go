package proxy

import (
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Report is what a sync did.
type Report struct {
	// Complete reports whether everything was written, and not only what changed.
	Complete bool
	Services int // decided
	Total    int // in force
	Waiting  int // that wait for their turn, some of them with a part of their change in force
	// Ports are the Service ports in force, by family.
	Ports map[model.Family]int
	// Reasons counts the Service ports in force by why they have the endpoints that they have. A reason that no port has
	// any more stays, with zero.
	Reasons map[PortReason]int
	// Shares say where the Service ports in force whose load is bounded send this node's connections.
	Shares selection.Shares
	// Triggered is, by family, when the cause of each EndpointSlice's change happened that this sync brought into force,
	// as far as the slices say.
	Triggered map[model.Family][]time.Time
	// Unswept is why something that no Service uses is still in the kernel; nil if nothing is. The next sync tries again.
	Unswept error
	// Unrecalled is why flows may be left to frontends that an earlier proxy served and this one does not; nil after the
	// first sync.
	Unrecalled error
	// EvacuatedTimed and EvacuatedOpen are the numbers of nodes that are being evacuated: until a time, or until their label
	// goes.
	EvacuatedTimed, EvacuatedOpen int
	// Contested is the number of frontends that several Services want.
	Contested int
	// Found say of Services decided in this sync what of them has no effect, or no longer, by name; at most MaxFound of those
	// of which there is something to say.
	Found []Found
	// Refused are the Services that the kernel refused in this sync, for the first time or again, by name;
	// NoLongerRefused those that it took now, or that are gone. RefusedTotal is the number of all that it does not take.
	Refused         []Refused
	NoLongerRefused []model.ObjectName
	RefusedTotal    int
	// HealthChecks are what load balancers ask about the Services in force; nil if that is the same as before.
	// Surroundings have the addresses on which they ask.
	HealthChecks map[model.ObjectName]selection.HealthCheck
	Surroundings ruleset.Surroundings
	// Added and Deleted count the elements that were written, at once or by the sweep.
	Added   map[model.Family]int
	Deleted map[model.Family]int
}

// newReport returns the report of a sync that decided about some Services.
func (p *Proxy) newReport(services int) Report {
	report := Report{Services: services, Added: map[model.Family]int{}, Deleted: map[model.Family]int{}}
	for _, family := range p.config.Families {
		report.Added[family], report.Deleted[family] = 0, 0
	}
	return report
}

// add counts what a plan wrote.
func (r *Report) add(plan *ruleset.Plan) {
	r.count(plan.Prepare)
	r.count(plan.Batch)
}

// count fills in what is in force now.
func (p *Proxy) count(report *Report) {
	report.Total, report.Contested = p.mirror.Services(), p.cluster.Contested()
	report.Reasons, report.Surroundings = p.reasons.counts(), p.mirror.Surroundings()
	report.Shares = p.nodes.Shares()
	report.EvacuatedTimed, report.EvacuatedOpen = p.cluster.Evacuated()
	report.Ports = map[model.Family]int{}
	for _, family := range p.config.Families {
		report.Ports[family] = p.mirror.Ports(family)
	}
}

// written returns how many elements were.
func (r *Report) written() (elements int) {
	for family := range r.Added {
		elements += r.Added[family] + r.Deleted[family]
	}
	return elements
}

// count counts what a batch wrote, and returns how many elements that are.
func (r *Report) count(batch ruleset.Batch) (elements int) {
	for family := range r.Added {
		added, deleted := batch.Count(family, ruleset.Add), batch.Count(family, ruleset.Delete)
		r.Added[family] += added
		r.Deleted[family] += deleted
		elements += added + deleted
	}
	return elements
}
