package demand

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

const (
	// minOverload is the ratio of the busiest endpoint's load to the load bound from which on it is a problem, and minRate
	// the connections per minute. The alert VicinityDemandSkew uses the same numbers.
	minOverload, minRate = 1.25, 100
	// maxChecksPerRound is the number of Services whose endpoints are listed in a round, and maxSlices the number of
	// EndpointSlices of one. Beyond that the first ones count as a sample.
	maxChecksPerRound, maxSlices = 10, 200
)

// Overload is what a load bound that is planned with assumed demand results in: the load of the busiest endpoint and the
// bound, as multiples of the mean, and the endpoint's zone. The zero value is unknown.
type Overload struct {
	Load, Limit float64
	Zone        string
}

// Ratio returns the load of the busiest endpoint relative to the bound; 0 if it is unknown.
func (o Overload) Ratio() float64 { return o.Load / max(o.Limit, 1) }

// overloadChecker determines the overloads of Services with skewed demand.
type overloadChecker struct {
	slices  discoveryclient.EndpointSlicesGetter
	checked map[string]checkedOverload // by Service
}

type checkedOverload struct {
	Overload
	at time.Time
}

// check sets the overloads in a round: those of Services in which a zone exceeds its assumed demand by so much that an
// endpoint may be overloaded. Each round checks some of these, and others keep their last result. labels are the labels
// of all nodes.
func (o *overloadChecker) check(
	ctx context.Context, now time.Time, round Round, services map[string]*corev1.Service, topologyOf func(*corev1.Service) policy.Topology,
	labels map[string]map[string]string,
) error {
	checked := map[string]checkedOverload{}
	for name, report := range round.Services {
		// An endpoint gets at most MaxSkew times what the bound allows.
		if report.MaxSkew > minOverload && report.ConnectionsPerMinute > minRate {
			checked[name] = o.checked[name]
		}
	}
	o.checked = checked
	oldestFirst := slices.SortedStableFunc(slices.Values(slices.Sorted(maps.Keys(checked))), func(a, b string) int {
		return checked[a].at.Compare(checked[b].at)
	})
	var firstErr error
	for _, name := range oldestFirst[:min(len(oldestFirst), maxChecksPerRound)] {
		service := services[name]
		list, err := o.slices.EndpointSlices(service.Namespace).List(ctx, metav1.ListOptions{
			LabelSelector: discoveryv1.LabelServiceName + "=" + service.Name, Limit: maxSlices,
		})
		if err != nil {
			firstErr = fmt.Errorf("list the EndpointSlices of Service %s: %w", name, err)
			break
		}
		checked[name] = checkedOverload{overloadOf(topologyOf(service), labels, endpointsIn(list.Items), round.Services[name].Shares), now}
	}
	for name := range checked {
		report := round.Services[name]
		report.Overload = checked[name].Overload
		round.Services[name] = report
	}
	return firstErr
}

// overloadOf returns the overload of a Service whose bound is planned with the demand of the nodes' labels, if the
// clients have the given shares. It is unknown without a bound, and without endpoints that nodes may use.
func overloadOf(
	topology policy.Topology, labels map[string]map[string]string, endpoints []model.PortEndpoint, shares map[string]float64,
) Overload {
	if topology.MaxLoad == 0 {
		return Overload{}
	}
	view := selection.NodeView{Labels: func(node string) (map[string]string, bool) { known, ok := labels[node]; return known, ok }}
	classes := balance.NewNodeClasses(selection.WithZone(topology.Keys), "")
	for node := range labels {
		classes.Set(node, labels[node])
	}
	demand := map[string]uint32{}
	for zone, share := range shares {
		demand[zone] = uint32(share * v1alpha1.PPM)
	}
	measured, hasDemand := classes.Measured(demand)
	if !hasDemand || len(endpoints) == 0 {
		return Overload{}
	}
	endpointClasses := balance.NewEndpointClasses(topology.Keys, endpoints, view.ValueOf)
	loads := balance.NewPlan(classes.ByLabels(), endpointClasses, int(topology.MaxLoad)).LoadsUnder(measured) //nolint:gosec // at most 1000
	busiest := slices.Index(loads, slices.Max(loads))
	zone, _ := view.ValueOf(&endpoints[busiest], policy.Zone)
	return Overload{Load: float64(loads[busiest]) / 1000, Limit: float64(topology.MaxLoad) / 100, Zone: zone}
}

// endpointsIn returns the ready endpoints in a Service's EndpointSlices, in the address family of the first one, and
// regardless of ports.
func endpointsIn(endpointSlices []discoveryv1.EndpointSlice) []model.PortEndpoint {
	var endpoints []model.PortEndpoint
	known := map[netip.Addr]bool{}
	for i := range endpointSlices {
		if endpointSlices[i].AddressType != endpointSlices[0].AddressType {
			continue
		}
		for _, endpoint := range endpointSlices[i].Endpoints {
			if len(endpoint.Addresses) == 0 || !ptr.Deref(endpoint.Conditions.Ready, true) {
				continue
			}
			addr, err := netip.ParseAddr(endpoint.Addresses[0])
			if err != nil || known[addr] {
				continue
			}
			known[addr] = true
			endpoints = append(endpoints, model.PortEndpoint{Addr: netip.AddrPortFrom(addr, 0), Endpoint: model.Endpoint{
				Node: ptr.Deref(endpoint.NodeName, ""), Zone: ptr.Deref(endpoint.Zone, ""), Ready: true, Serving: true,
			}})
		}
	}
	return endpoints
}
