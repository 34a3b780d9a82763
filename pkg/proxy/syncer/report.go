package syncer

import (
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// Report is the result of a sync.
type Report struct {
	// Full reports whether the sync was a full one.
	Full    bool
	Decided int // number of Services that this sync decided about
	Applied int // number of Services that are applied
	Waiting int // number of Services that wait for a batch, some with part of their change applied
	// Triggered holds, by family, when each change of an EndpointSlice that this sync applied was caused, if the slices
	// have that time.
	Triggered map[model.Family][]time.Time
	// CleanupErr is the error of the cleanup; nil means that it succeeded. If it is set, the next sync cleans up again.
	CleanupErr error
	// EvacuatedTimed and EvacuatedUntimed are the numbers of nodes that are being evacuated: until a time, or until their
	// label is removed.
	EvacuatedTimed, EvacuatedUntimed int
	// Contested is the number of frontends that several Services claim.
	Contested int
	// WithoutAffinity holds the Services that this sync wrote and that lack or lacked session affinity because no numbers
	// were left; true means that they lack it now.
	WithoutAffinity map[model.ObjectName]bool
	// Rejected are the Services that the kernel rejected in this sync, for the first time or again, by name.
	// NoLongerRejected are those that it accepted now, or that were deleted. RejectedTotal is the number of all Services
	// that are rejected.
	Rejected         []Rejected
	NoLongerRejected []model.ObjectName
	RejectedTotal    int
	// Added and Deleted count the elements that were written, including those of the cleanup.
	Added   map[model.Family]int
	Deleted map[model.Family]int
}

// newReport returns the report of a sync that decided about a number of Services.
func (p *Proxy) newReport(services int) Report {
	report := Report{Decided: services, Added: map[model.Family]int{}, Deleted: map[model.Family]int{}}
	for _, family := range p.config.Families {
		report.Added[family], report.Deleted[family] = 0, 0
	}
	return report
}

// countPlan adds the elements of a plan to the report.
func (r *Report) countPlan(plan *ruleset.Plan) {
	r.countBatch(plan.Prerequisites)
	r.countBatch(plan.Batch)
}

// addAffinityChanges adds the Services that lack session affinity in a plan, and those that lacked it before. The plan
// is not applied to the mirror yet; the mirror is nil if the applied state is unknown.
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

// written returns the number of elements that were written.
func (r *Report) written() (elements int) {
	for family := range r.Added {
		elements += r.Added[family] + r.Deleted[family]
	}
	return elements
}

// countBatch adds the elements of a batch to the report, and returns their number.
func (r *Report) countBatch(batch ruleset.Batch) (elements int) {
	for family := range r.Added {
		added, deleted := batch.Count(family, ruleset.Add), batch.Count(family, ruleset.Delete)
		r.Added[family] += added
		r.Deleted[family] += deleted
		elements += added + deleted
	}
	return elements
}
