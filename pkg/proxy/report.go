package proxy

import (
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Report is what a sync did.
type Report struct {
	// Complete reports whether everything was written, and not only what changed.
	Complete bool
	Services int // decided
	Total    int // in force
	// Ports are the Service ports in force, by family.
	Ports map[model.Family]int
	// Reasons counts the Service ports in force by why they have the endpoints that they have. A reason that no port has any more
	// stays, with zero.
	Reasons map[PortReason]int
	// Triggered is, by family, when the cause of each EndpointSlice's change happened that this sync brought into force, as far as
	// the slices say.
	Triggered map[model.Family][]time.Time
	// Unswept is why something that nobody uses is still in the kernel; nil if nothing is. The next sync tries again.
	Unswept error
	// Unrecalled is why flows may be left to frontends that an earlier proxy served and this one does not; nil after the first sync.
	Unrecalled error
	// Contested is the number of frontends that several Services want.
	Contested int
	// Conflicts are the Services decided in this sync that want what another one owns, by name; at most MaxConflicts of them.
	Conflicts []Conflict
	// HealthChecks are what load balancers ask about the Services in force; nil if that is the same as before. Surroundings have
	// the addresses on which they ask.
	HealthChecks map[model.ObjectName]selection.HealthCheck
	Surroundings ruleset.Surroundings
	// Added and Deleted count the elements that were written, without those of clients that were forgotten.
	Added   map[model.Family]int
	Deleted map[model.Family]int
}

func (p *Proxy) report(plan *ruleset.Plan, services int, conflicts []Conflict) Report {
	report := Report{
		Services:     services,
		Total:        p.mirror.Services(),
		Ports:        map[model.Family]int{},
		Reasons:      p.reasons.counts(),
		Added:        map[model.Family]int{},
		Deleted:      map[model.Family]int{},
		Contested:    p.cluster.Contested(),
		Conflicts:    conflicts,
		Surroundings: p.mirror.Surroundings(),
	}
	for _, family := range p.config.Families {
		report.Ports[family] = p.mirror.Ports(family)
		report.Added[family], report.Deleted[family] = 0, 0
	}
	report.count(plan.Prepare)
	report.count(plan.Batch)
	return report
}

func (r *Report) count(batch ruleset.Batch) {
	for family := range r.Added {
		r.Added[family] += batch.Count(family, ruleset.Add)
		r.Deleted[family] += batch.Count(family, ruleset.Delete)
	}
}
