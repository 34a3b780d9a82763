package forecast

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/printable"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/explain"
	"github.com/vicinity-proxy/vicinity/pkg/selection/fleet"
)

// OnlyEvacuated is a Service that, for some clients, has endpoints only on Nodes that are being evacuated: its topology
// keys or a Local policy allow no others, or there are none. Those endpoints go on serving.
type OnlyEvacuated struct {
	Service string `json:"service"` // namespace/name
	// Share is the part of the Service's connections inside the cluster that keeps going to these Nodes.
	Share float64 `json:"share"`
	// Clients counts the Nodes that these connections come from, and On names the first ones; never null.
	// Report.OnlyEvacuatedOn has all.
	Clients int      `json:"clients"`
	On      []string `json:"on"`
	// Outside are the evacuated Nodes on which connections from outside the cluster stay, because externalTrafficPolicy is
	// Local; by name, never null.
	Outside []string `json:"outside"`
}

// NodeOnlyEvacuated is a client's Node for which some Services have only evacuated endpoints.
type NodeOnlyEvacuated struct {
	Node     string   `json:"node"`
	Count    int      `json:"count"`
	Services []string `json:"services"` // by name, at most MaxListed
}

// noteEvacuated notes a Service that has only evacuated endpoints for some clients.
func (f *forecaster) noteEvacuated(service *model.Service, portions []portion, now *Outlook) {
	one := OnlyEvacuated{Service: service.Name.String(), Share: now.evacuated, On: []string{}, Outside: []string{}}
	for i, node := range slices.Sorted(maps.Keys(now.onlyEvacuated)) {
		if one.Clients++; i < fleet.MostNamed {
			one.On = append(one.On, node)
		}
		on := f.onlyEvacuatedOn[node]
		if on == nil {
			on = &NodeOnlyEvacuated{Node: node}
			f.onlyEvacuatedOn[node] = on
		}
		if on.Count++; on.Count <= MaxListed {
			on.Services = append(on.Services, one.Service)
		}
	}
	if service.ExternalTrafficLocal && isExternal(service) {
		for _, portion := range portions {
			for i := range portion.endpoints {
				if endpoint := &portion.endpoints[i]; endpoint.Avoid.Is(model.Evacuated) && endpoint.Phase() != model.PhaseNever {
					one.Outside = append(one.Outside, endpoint.Node)
				}
			}
		}
		slices.Sort(one.Outside)
		one.Outside = slices.Compact(one.Outside)
	}
	if one.Share > 0 || len(one.Outside) > 0 {
		f.onlyEvacuated = append(f.onlyEvacuated, one)
	}
}

// isExternal reports whether a Service can be dialled from outside the cluster.
func isExternal(service *model.Service) bool {
	return slices.ContainsFunc(service.Ports, func(port model.ServicePort) bool {
		return slices.ContainsFunc(model.Families, func(family model.Family) bool { return service.IsExternal(port, family) })
	})
}

// onlyEvacuated says which Services have only evacuated endpoints, if anything is evacuated.
func (p *printer) onlyEvacuated(report *Report, most int) {
	nodes := printable.Count(report.EvacuatedNodes, "Node")
	switch {
	case report.EvacuatedNodes == 0 || len(report.Services) == 0:
		return
	case len(report.OnlyEvacuated) == 0 && report.Service != "":
		p.f("\nEvacuated: %s. %s does not depend on what runs there.\n", nodes, report.Service)
		return
	case len(report.OnlyEvacuated) == 0:
		p.f("\nEvacuated: %s. No Service%s depends on what runs there.\n", nodes, report.ofNamespace())
		return
	}
	p.f("\nEvacuated: %s. Nothing else is left for some clients of %s. The endpoints there go on serving them:\n\n",
		nodes, printable.Count(len(report.OnlyEvacuated), "Service"))
	list := slices.SortedStableFunc(slices.Values(report.OnlyEvacuated), func(a, b OnlyEvacuated) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(len(b.Outside), len(a.Outside)))
	})
	p.table(func(line func(...string)) {
		line("SERVICE", "OF ITS CONNECTIONS", "NOTHING ELSE ON", "FROM OUTSIDE, ON")
		for i, one := range list {
			if most > 0 && i == most {
				break
			}
			outside := "-"
			if len(one.Outside) > 0 {
				outside = explain.Counted(one.Outside)
			}
			line(one.Service, percent(one.Share), namedOf(one.On, one.Clients), outside)
		}
	})
	p.more(len(list), most)
}

// namedOf names a few of many.
func namedOf(few []string, count int) string {
	switch more := count - len(few); {
	case count == 0:
		return "-"
	case more > 0:
		return fmt.Sprintf("%s and %d more", strings.Join(few, ", "), more)
	}
	return strings.Join(few, ", ")
}
