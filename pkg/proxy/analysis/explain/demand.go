package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// setDemand sets which demand the plan is for, and what would change with default demand.
func (l *Load) setDemand(cluster *model.Cluster, decision selection.Decision, loads selection.Loads) {
	topology, m := decision.Service.Topology, loads.Measured
	if m == nil {
		l.Demand = defaultDemandReason(cluster, decision.Service) + " " + defaultClientsText(topology.Clients, loads.Clients)
		l.setWaiting(cluster, decision.Service)
		return
	}
	l.Measured = &Measured{
		ObservedAt: m.ObservedAt, NodesReporting: m.NodesReporting, Nodes: m.NodesTotal, ConnectionsPerMinute: m.ConnectionsPerMinute,
		Zones: roundedShares(m.Zones), AssumedZones: m.Demand.AssumedZones,
	}
	l.Demand = fmt.Sprintf("Demand was measured at %s, %s per minute, with reports from %d of %s: %s.",
		timeText(m.ObservedAt), sanitize.Count(m.ConnectionsPerMinute, "connection"), m.NodesReporting,
		sanitize.Count(m.NodesTotal, "node"), zoneSharesText(largestFirst(m.Zones), m.Zones))
	if len(m.Open) > 0 {
		open := map[string]float64{}
		for zone, ppm := range m.Open {
			open[zone] = float64(ppm) / v1alpha1.PPM
		}
		l.Measured.OpenConnections = roundedShares(open)
		l.Demand += " Open connections: " + zoneSharesText(largestFirst(open), open) + "."
	}
	l.Demand += assumedZonesText(m.Demand.AssumedZones)
	l.setWaiting(cluster, decision.Service)
	busiest := m.AssumedBusiest()
	busiestLoad := m.AssumedLoads[busiest]
	l.BusiestIfAssumed = float64(busiestLoad) / 1000
	l.Assumed = fmt.Sprintf("%s, the demand of zones would be %s: planned with it, %s would get %s times the mean.",
		defaultDemandClause(topology.Clients, loads.Clients), zoneSharesText(largestFirst(m.Zones), m.AssumedZones),
		EndpointName(decision.Endpoints[busiest].Addr), times(busiestLoad))
}

// setWaiting describes whether a newer measurement waits for the publisher. The Lease names only some of the Services.
func (l *Load) setWaiting(cluster *model.Cluster, service *model.Service) {
	backlog := cluster.DemandBacklog()
	if !service.Topology.Measured || backlog.Waiting == 0 {
		return
	}
	waiting := sanitize.CountOf(backlog.Waiting, "ServiceDemand waits", "ServiceDemands wait") + " for the publisher's budget"
	switch since, isListed := backlog.Since[service.Name]; {
	case isListed:
		l.WaitingSince = &since
		l.Demand += fmt.Sprintf(" A newer measurement has been waiting since %s: %s.", timeText(since), waiting)
	case backlog.Waiting > len(backlog.Since):
		l.Demand += fmt.Sprintf(" A newer measurement may be waiting: %s.", waiting)
	}
}

// assumedZonesText names the zones in which a proxy never reported.
func assumedZonesText(zones []string) string {
	names := make([]string, 0, len(zones))
	for _, zone := range zones {
		names = append(names, cmp.Or(zone, "no zone"))
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf(" Zones with a proxy that never reported count as assumed: %s.", ListOrCount(names))
}

func timeText(at time.Time) string { return at.UTC().Format("2006-01-02 15:04 UTC") }

// largestFirst returns the zones in the order of their shares.
func largestFirst(shares map[string]float64) []string {
	return slices.SortedFunc(maps.Keys(shares), func(a, b string) int {
		return cmp.Or(cmp.Compare(shares[b], shares[a]), strings.Compare(a, b))
	})
}

// defaultDemandClause describes the default demand, of clients with a number of ready endpoints.
func defaultDemandClause(clients []string, ready int) string {
	names := strings.Join(clients, " and ")
	switch {
	case len(clients) == 0:
		return "If each Node had the same demand, or that of its labels"
	case ready == 0:
		return "No endpoint of " + names + " is ready on a Node; if each Node had the same demand"
	case ready == 1:
		return "If the one ready endpoint of " + names + " were the only client"
	}
	return "If each ready endpoint of " + names + " had the same demand"
}

// roundedShares returns shares of a whole, rounded by RoundParts.
func roundedShares(shares map[string]float64) map[string]float64 {
	names := slices.Sorted(maps.Keys(shares))
	values, pointers, rounded := make([]float64, len(names)), make([]*float64, len(names)), map[string]float64{}
	for i, name := range names {
		values[i], pointers[i] = shares[name], &values[i]
	}
	RoundParts(pointers...)
	for i, name := range names {
		rounded[name] = values[i]
	}
	return rounded
}

// maxListedZones is the maximum number of zones in a sentence.
const maxListedZones = 6

// zoneSharesText lists the share of the demand that comes from each of some zones.
func zoneSharesText(zones []string, demand map[string]float64) string {
	words, rest := make([]string, 0, maxListedZones), 0.0
	for i, zone := range zones {
		if i < maxListedZones {
			words = append(words, cmp.Or(zone, "no zone")+" "+percent(demand[zone]))
		} else {
			rest += demand[zone]
		}
	}
	if others := len(zones) - maxListedZones; others > 0 {
		words = append(words, sanitize.Count(others, "more zone")+" "+percent(rest))
	}
	return strings.Join(words, ", ")
}

// percent formats a share from 0 to 1 as package selection does.
func percent(share float64) string { return selection.FractionOf(share).String() }

// defaultDemandReason states that the default demand is used, and why if the Service has the setting "measured".
func defaultDemandReason(cluster *model.Cluster, service *model.Service) string {
	if !service.Topology.Measured {
		return "Demand is assumed."
	}
	return string(cluster.DemandState().AssumedReason())
}

// defaultClientsText describes the clients of the default demand.
func defaultClientsText(clients []string, ready int) string {
	names := strings.Join(clients, " and ")
	switch {
	case len(clients) == 0:
		return "Each Node counts as one client, unless its labels say otherwise."
	case ready == 0:
		return "No endpoint of " + names + " is ready on a Node, so each Node counts as one client."
	case ready == 1:
		return "The only client is the one ready endpoint of " + names + "."
	}
	return fmt.Sprintf("The clients are the %d ready endpoints of %s.", ready, names)
}
