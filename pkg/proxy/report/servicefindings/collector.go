package servicefindings

import (
	"maps"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/fair"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// ServiceFindings is all that one finder has found about a Service; no findings: what it had found before is gone.
type ServiceFindings struct {
	Service  model.ObjectName
	Findings []model.Finding
}

// The bounds of what is said after one sync: for how many Services with findings, and how many findings of each.
const (
	MaxFound    = 100
	maxFindings = 2 * selection.MaxFindings
)

// Collector reports which parts of a Service have no effect, whenever the Service is decided. It is a reader of the
// proxy's decisions.
type Collector struct {
	report func([]ServiceFindings)
	// changed are the Services that have findings since the last Synced, or had some before. Told are the Services whose
	// findings were reported last.
	changed  map[model.ObjectName][]model.Finding
	reported map[model.ObjectName]bool
}

// NewCollector returns a reader. After each sync it reports, by name, which of the decided Services have findings, at most
// MaxFound of them, and which no longer do. If there are more, Namespaces get equal parts.
func NewCollector(found func([]ServiceFindings)) *Collector {
	return &Collector{report: found, changed: map[model.ObjectName][]model.Finding{}, reported: map[model.ObjectName]bool{}}
}

// Derive returns what is found of a Service. Usually all its ports have the same endpoints.
func (*Collector) Derive(decisions []selection.Decision) any {
	var list []model.Finding
	for _, decision := range decisions {
		for _, finding := range decision.Findings() {
			finding = finding.WithObject("Service", decision.Service.Name)
			if len(list) < maxFindings && !slices.Contains(list, finding) {
				list = append(list, finding)
			}
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list
}

// OnApplied takes over what is found of a Service that is in force.
func (r *Collector) OnApplied(service model.ObjectName, digest any) {
	list, _ := digest.([]model.Finding)
	if len(list) == 0 && !r.reported[service] {
		delete(r.changed, service)
		return
	}
	r.changed[service] = list
}

// OnSynced reports what is new.
func (r *Collector) OnSynced(selection.SyncState) {
	if len(r.changed) == 0 {
		return
	}
	var all []ServiceFindings
	room := MaxFound
	names := slices.SortedFunc(maps.Keys(r.changed), model.ObjectName.Compare)
	for _, name := range fair.Order(names, func(name model.ObjectName) fair.Share {
		return fair.Share{Namespace: name.Namespace, Weight: min(1, len(r.changed[name]))}
	}) {
		list := r.changed[name]
		switch {
		case len(list) == 0:
			delete(r.reported, name)
		case room == 0:
			continue
		default:
			r.reported[name] = true
			room--
		}
		all = append(all, ServiceFindings{name, list})
	}
	slices.SortFunc(all, func(a, b ServiceFindings) int { return a.Service.Compare(b.Service) })
	r.changed = map[model.ObjectName][]model.Finding{}
	r.report(all)
}
