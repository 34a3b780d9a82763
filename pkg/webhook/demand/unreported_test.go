package demand_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand"
)

// TestUnreportedIngressIsNoWorseThanAssumedDemand checks clients on two nodes in different zones. The proxy of one
// never responds: no endpoint gets more than with assumed demand. With the counted demand alone, the busiest would get
// up to 22 times the mean.
func TestUnreportedIngressIsNoWorseThanAssumedDemand(t *testing.T) {
	for _, endpoints := range [][]int{{4, 4, 3}, {6, 1, 1}, {40, 1, 1, 1}} {
		for reported := range endpoints {
			for unreported := range endpoints {
				if reported == unreported {
					continue
				}
				actual, nodes := map[string]float64{}, slices.Repeat([]int{4}, len(endpoints))
				c := newTestCluster(nodes...)
				for i, node := range c.nodes {
					if c.demand[node.Name] = 0; i == 4*reported || i == 4*unreported {
						c.demand[node.Name], actual[node.Zone] = 100, 0.5
					}
				}
				c.missing[c.nodes[4*unreported].Name] = true
				c.web.ShouldPublish = true
				for range 2 * time.Hour / interval {
					decision := c.run(interval).Decided["shop/web"]
					if decision.Reason == demand.First || decision.Reason == demand.Changed {
						c.web.Published = decision.Shares
					}
				}
				assumed, planned := busiest(endpoints, nil, actual), busiest(endpoints, c.web.Published, actual)
				t.Logf("%v endpoints, zone %d reports, zone %d does not: busiest %.2f, with assumed demand %.2f", endpoints, reported, unreported,
					planned, assumed)
				if planned > assumed+0.02 {
					t.Errorf("%v endpoints, zone %d reports, zone %d does not: the busiest endpoint gets %.2f times the mean with %v, and %.2f with "+
						"assumed demand", endpoints, reported, unreported, planned, c.web.Published, assumed)
				}
			}
		}
	}
}

// busiest returns the load of the busiest endpoint as a multiple of the mean, if the bound is planned for some shares
// of the zones a, b and so on, and the clients have others. nil means the assumed demand of zones of equal size.
// endpoints are the numbers of endpoints by zone.
func busiest(endpoints []int, planned, actual map[string]float64) float64 {
	keys := []policy.Key{policy.Zone, policy.AnyNode}
	classes := balance.NewNodeClasses(keys, "")
	var all []model.PortEndpoint
	for zone, count := range endpoints {
		name := string(rune('a' + zone))
		classes.Set("node-"+name, map[string]string{string(policy.Zone): name})
		for i := range count {
			addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(zone), byte(i)}), 8080)
			all = append(all, model.PortEndpoint{Addr: addr, Endpoint: model.Endpoint{Zone: name, Ready: true, Serving: true}})
		}
	}
	measured := func(shares map[string]float64) balance.Demand {
		zones := map[string]uint32{}
		for zone, share := range shares {
			zones[zone] = uint32(share * 1e6)
		}
		d, hasDemand := classes.Measured(&model.Demand{Zones: zones})
		if !hasDemand {
			panic(fmt.Sprint("no demand: ", shares))
		}
		return d
	}
	plannedDemand := classes.ByLabels()
	if planned != nil {
		plannedDemand = measured(planned)
	}
	zoneOf := func(e *model.PortEndpoint, key policy.Key) (string, bool) { return e.Zone, key == policy.Zone }
	plan := balance.NewPlan(plannedDemand, balance.NewEndpointClasses(keys, all, zoneOf), 100*bound)
	return float64(slices.Max(plan.LoadsUnder(measured(actual)))) / 1000
}
