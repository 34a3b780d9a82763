package servicefindings

import (
	"maps"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/fair"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Found is all that one finder has found about a Service; no findings: what it had found before is gone.
type Found struct {
	Service  model.ObjectName
	Findings []model.Finding
}

// The bounds of what is said after one sync: for how many Services with findings, and how many findings of each.
const (
	MaxFound    = 100
	maxFindings = 2 * selection.MaxFindings
)

// Reader reports which parts of a Service have no effect, whenever the Service is decided. It is a reader of the
// proxy's decisions.
type Reader struct {
	found func([]Found)
	// news are the Services that have findings since the last Synced, or had some before. Told are the Services whose
	// findings were reported last.
	news map[model.ObjectName][]model.Finding
	told map[model.ObjectName]bool
}

// NewReader returns a reader. After each sync it reports, by name, which of the decided Services have findings, at most
// MaxFound of them, and which no longer do. If there are more, Namespaces get equal parts.
func NewReader(found func([]Found)) *Reader {
	return &Reader{found: found, news: map[model.ObjectName][]model.Finding{}, told: map[model.ObjectName]bool{}}
}

// Digest returns what is found of a Service. Usually all its ports have the same endpoints.
func (*Reader) Digest(decisions []selection.Decision) any {
	var list []model.Finding
	for _, decision := range decisions {
		for _, finding := range decision.Findings() {
			finding = finding.Of("Service", decision.Service.Name)
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

// Accept takes over what is found of a Service that is in force.
func (r *Reader) Accept(service model.ObjectName, digest any) {
	list, _ := digest.([]model.Finding)
	if len(list) == 0 && !r.told[service] {
		delete(r.news, service)
		return
	}
	r.news[service] = list
}

// Synced reports what is new.
func (r *Reader) Synced(selection.Sync) {
	if len(r.news) == 0 {
		return
	}
	var all []Found
	room := MaxFound
	names := slices.SortedFunc(maps.Keys(r.news), model.ObjectName.Compare)
	for _, name := range fair.Order(names, func(name model.ObjectName) fair.Share {
		return fair.Share{Namespace: name.Namespace, Weight: min(1, len(r.news[name]))}
	}) {
		list := r.news[name]
		switch {
		case len(list) == 0:
			delete(r.told, name)
		case room == 0:
			continue
		default:
			r.told[name] = true
			room--
		}
		all = append(all, Found{name, list})
	}
	slices.SortFunc(all, func(a, b Found) int { return a.Service.Compare(b.Service) })
	r.news = map[model.ObjectName][]model.Finding{}
	r.found(all)
}
