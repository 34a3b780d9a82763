package servicefindings

import (
	"maps"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/fair"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// ServiceFindings are all findings of one source about a Service; none means that earlier ones ended.
type ServiceFindings struct {
	Service  model.ObjectName
	Findings []model.Finding
}

// The limits of a report after one sync: Services with findings, and findings of each.
const (
	MaxServices = 100
	maxFindings = 2 * selection.MaxFindings
)

// Collector reports which parts of a Service have no effect, whenever the Service is decided. It is a handler of the
// proxy's decisions.
type Collector struct {
	report func([]ServiceFindings)
	// changed holds the findings of the Services that were applied since the last OnSynced, if they have or had any.
	// reported are the Services whose findings were reported last.
	changed  map[model.ObjectName][]model.Finding
	reported map[model.ObjectName]bool
}

// NewCollector returns a handler. After each sync it reports, sorted by name, which of the decided Services have
// findings, at most MaxServices of them, and which no longer do. If there are more, they are selected fairly by
// namespace.
func NewCollector(report func([]ServiceFindings)) *Collector {
	return &Collector{report: report, changed: map[model.ObjectName][]model.Finding{}, reported: map[model.ObjectName]bool{}}
}

// Derive returns the findings about a Service. Usually all its ports have the same endpoints.
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

// OnApplied records the findings about an applied Service.
func (c *Collector) OnApplied(service model.ObjectName, derived any) {
	list, _ := derived.([]model.Finding)
	if len(list) == 0 && !c.reported[service] {
		delete(c.changed, service)
		return
	}
	c.changed[service] = list
}

// OnSynced reports the changes.
func (c *Collector) OnSynced(selection.SyncState) {
	if len(c.changed) == 0 {
		return
	}
	var all []ServiceFindings
	remaining := MaxServices
	names := slices.SortedFunc(maps.Keys(c.changed), model.ObjectName.Compare)
	for _, name := range fair.Order(names, func(name model.ObjectName) fair.Share {
		return fair.Share{Namespace: name.Namespace, Weight: min(1, len(c.changed[name]))}
	}) {
		list := c.changed[name]
		switch {
		case len(list) == 0:
			delete(c.reported, name)
		case remaining == 0:
			continue
		default:
			c.reported[name] = true
			remaining--
		}
		all = append(all, ServiceFindings{name, list})
	}
	slices.SortFunc(all, func(a, b ServiceFindings) int { return a.Service.Compare(b.Service) })
	c.changed = map[model.ObjectName][]model.Finding{}
	c.report(all)
}
