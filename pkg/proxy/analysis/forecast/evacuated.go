package forecast

import (
	"cmp"
	"maps"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
	"github.com/vicinity-proxy/vicinity/pkg/selection/simulate"
)

// OnlyEvacuated is a Service that, for some clients, has endpoints only on Nodes that are being evacuated: its topology
// keys or a Local policy allow no others, or there are none. Those endpoints still serve.
type OnlyEvacuated struct {
	Service string `json:"service"` // namespace/name
	// Share is the part of the Service's connections inside the cluster that still go to these Nodes.
	Share float64 `json:"share"`
	// Clients counts the Nodes from which these connections come, and ClientNodes names them, at most MaxListed; never
	// null.
	Clients     int      `json:"clients"`
	ClientNodes []string `json:"on"`
	// ExternalNodes are the evacuated Nodes on which connections from outside the cluster stay, because
	// externalTrafficPolicy is Local; by name, never null.
	ExternalNodes []string `json:"outside"`
}

// recordEvacuated records a Service that has only evacuated endpoints for some clients.
func (f *forecaster) recordEvacuated(service *model.Service, groups []endpointGroup, now *Projection) {
	entry := OnlyEvacuated{
		Service: service.Name.String(), Share: now.evacuated, Clients: len(now.onlyEvacuated), ClientNodes: []string{}, ExternalNodes: []string{},
	}
	for i, node := range slices.Sorted(maps.Keys(now.onlyEvacuated)) {
		if i < MaxListed {
			entry.ClientNodes = append(entry.ClientNodes, node)
		}
	}
	if service.ExternalTrafficLocal && isExternal(service) {
		for _, group := range groups {
			for i := range group.endpoints {
				if endpoint := &group.endpoints[i]; endpoint.Demotion.HasReason(model.Evacuated) && endpoint.Phase() != model.PhaseNever {
					entry.ExternalNodes = append(entry.ExternalNodes, endpoint.Node)
				}
			}
		}
		slices.Sort(entry.ExternalNodes)
		entry.ExternalNodes = slices.Compact(entry.ExternalNodes)
	}
	if entry.Share > 0 || len(entry.ExternalNodes) > 0 {
		f.onlyEvacuated = append(f.onlyEvacuated, entry)
	}
}

// isExternal reports whether a Service can be dialled from outside the cluster.
func isExternal(service *model.Service) bool {
	return slices.ContainsFunc(service.Ports, func(port model.ServicePort) bool {
		return slices.ContainsFunc(model.Families, func(family model.Family) bool { return service.IsExternal(port, family) })
	})
}

// onlyEvacuated writes which Services have only evacuated endpoints, if any Node is evacuated.
func (p *printer) onlyEvacuated(report *Report, limit int) {
	nodes := sanitize.Count(report.EvacuatedNodes, "Node")
	switch {
	case report.EvacuatedNodes == 0 || len(report.Services) == 0:
		return
	case len(report.OnlyEvacuated) == 0 && report.Service != "":
		p.printf("\nEvacuated: %s. %s does not depend on the endpoints there.\n", nodes, report.Service)
		return
	case len(report.OnlyEvacuated) == 0:
		p.printf("\nEvacuated: %s. No Service%s depends on the endpoints there.\n", nodes, report.namespaceSuffix())
		return
	}
	p.printf("\nEvacuated: %s. Some clients of %s have no other endpoints. The endpoints there continue to serve them:\n\n",
		nodes, sanitize.Count(len(report.OnlyEvacuated), "Service"))
	list := slices.SortedStableFunc(slices.Values(report.OnlyEvacuated), func(a, b OnlyEvacuated) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(len(b.ExternalNodes), len(a.ExternalNodes)))
	})
	p.table(func(line func(...string)) {
		line("SERVICE", "CONNECTIONS", "CLIENT NODES", "EXTERNAL TRAFFIC ON")
		for i, entry := range list {
			if limit > 0 && i == limit {
				break
			}
			line(entry.Service, percent(entry.Share), cmp.Or(listFirst(entry.ClientNodes[:min(len(entry.ClientNodes), simulate.MaxNamed)],
				entry.Clients), "-"),
				cmp.Or(explain.ListOrCount(entry.ExternalNodes), "-"))
		}
	})
	p.more(len(list), limit)
}
