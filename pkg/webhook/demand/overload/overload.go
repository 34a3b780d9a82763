// Package overload determines whether load bounds that are planned with assumed demand hold for the measured one.
package overload

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

// maxChecks is the number of Services whose endpoints are listed at once, and maxSlices the number of EndpointSlices of
// one. Beyond that the first ones count as a sample.
const maxChecks, maxSlices = 10, 200

// Result is what a load bound that is planned with assumed demand results in: the load of the busiest endpoint and the
// bound, as multiples of the mean, and the endpoint's zone. The zero value is unknown.
type Result struct {
	Load, Limit float64
	Zone        string
}

// Ratio returns the load of the busiest endpoint relative to the bound; 0 if it is unknown.
func (r Result) Ratio() float64 { return r.Load / max(r.Limit, 1) }

// Demand is the measured demand on a Service, as the shares of zones.
type Demand struct {
	Service  *corev1.Service
	Topology policy.Topology
	Shares   map[string]float64
}

// Checker checks the load bounds of Services.
type Checker struct {
	Slices  discoveryclient.EndpointSlicesGetter
	checked map[string]timedResult // by Service
}

type timedResult struct {
	Result
	at time.Time
}

// Check returns the results for Services, by namespace/name. Each call checks some of them, and others keep their last
// result. labels are the labels of all nodes.
func (c *Checker) Check(ctx context.Context, now time.Time, demands map[string]Demand, labels map[string]map[string]string) (
	results map[string]Result, err error,
) {
	checked := make(map[string]timedResult, len(demands))
	for name := range demands {
		checked[name] = c.checked[name]
	}
	c.checked = checked
	oldestFirst := slices.SortedStableFunc(slices.Values(slices.Sorted(maps.Keys(checked))), func(a, b string) int {
		return checked[a].at.Compare(checked[b].at)
	})
	for _, name := range oldestFirst[:min(len(oldestFirst), maxChecks)] {
		service := demands[name].Service
		list, listErr := c.Slices.EndpointSlices(service.Namespace).List(ctx, metav1.ListOptions{
			LabelSelector: discoveryv1.LabelServiceName + "=" + service.Name, Limit: maxSlices,
		})
		if listErr != nil {
			err = fmt.Errorf("list the EndpointSlices of Service %s: %w", name, listErr)
			break
		}
		checked[name] = timedResult{demands[name].check(labels, endpointsIn(list.Items)), now}
	}
	results = make(map[string]Result, len(checked))
	for name := range checked {
		results[name] = checked[name].Result
	}
	return results, err
}

// check returns the load of endpoints if the bound is planned with the demand of the nodes' labels. It is unknown
// without a bound, and without endpoints that nodes may use.
func (d Demand) check(labels map[string]map[string]string, endpoints []model.PortEndpoint) Result {
	if d.Topology.MaxLoad == 0 {
		return Result{}
	}
	view := selection.NodeView{Labels: func(node string) (map[string]string, bool) { known, ok := labels[node]; return known, ok }}
	classes := balance.NewNodeClasses(selection.WithZone(d.Topology.Keys), "")
	for node := range labels {
		classes.Set(node, labels[node])
	}
	zones := map[string]uint32{}
	for zone, share := range d.Shares {
		zones[zone] = uint32(share * v1alpha1.PPM)
	}
	measured, hasDemand := classes.Measured(&model.Demand{Zones: zones})
	if !hasDemand || len(endpoints) == 0 {
		return Result{}
	}
	endpointClasses := balance.NewEndpointClasses(d.Topology.Keys, endpoints, view.ValueOf)
	plan := balance.NewPlan(classes.ByLabels(), endpointClasses, int(d.Topology.MaxLoad)) //nolint:gosec // at most 1000
	loads := plan.LoadsUnder(measured)
	busiest := slices.Index(loads, slices.Max(loads))
	zone, _ := view.ValueOf(&endpoints[busiest], policy.Zone)
	return Result{Load: float64(loads[busiest]) / 1000, Limit: float64(d.Topology.MaxLoad) / 100, Zone: zone}
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
