package syncer

import (
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// Report is what a sync did.
type Report struct {
	// Full reports whether everything was written, and not only what changed.
	Full     bool
	Services int // decided
	Total    int // in force
	Waiting  int // that wait for their turn, some of them with a part of their change in force
	// Triggered says, by family, when each change of an EndpointSlice that this sync brought into force was caused, as
	// far as the slices say.
	Triggered map[model.Family][]time.Time
	// CleanupErr is why something that no Service uses is still in the kernel; nil if nothing is. The next sync tries again.
	CleanupErr error
	// EvacuatedTimed and EvacuatedOpen are the numbers of nodes that are being evacuated: until a time, or until their label
	// goes.
	EvacuatedTimed, EvacuatedUntimed int
	// Contested is the number of frontends that several Services want.
	Contested int
	// WithoutAffinity says for Services that this sync wrote whether their clients are not remembered although they should
	// be, because no numbers are left. A Service that neither is nor was short of numbers is absent.
	WithoutAffinity map[model.ObjectName]bool
	// Rejected are the Services that the kernel refused in this sync, for the first time or again, by name;
	// NoLongerRefused those that it took now, or that are gone. RefusedTotal is the number of all that it does not take.
	Rejected         []Rejected
	NoLongerRejected []model.ObjectName
	RejectedTotal    int
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
	r.count(plan.Prerequisites)
	r.count(plan.Batch)
}

// addAffinityChanges adds the Services whose clients a plan does not remember, and those whose clients it remembers
// again. The mirror does not have the plan yet; it is nil if what was in force is unknown.
func (r *Report) addAffinityChanges(mirror *ruleset.Mirror, plan *ruleset.Plan, decided decisions) {
	if r.WithoutAffinity == nil {
		r.WithoutAffinity = map[model.ObjectName]bool{}
	}
	for i := range decided.owned {
		if name := decided.owned[i].Name; mirror != nil && mirror.Service(name).LacksAffinity() {
			r.WithoutAffinity[name] = false
		}
	}
	for _, port := range plan.WithoutAffinity {
		r.WithoutAffinity[port.Service] = true
	}
}

// written returns how many elements were written.
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
