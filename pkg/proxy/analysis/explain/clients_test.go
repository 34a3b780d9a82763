package explain_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
)

// trafficSummary is the part of a Traffic that depends on the clients.
type trafficSummary struct{ from, choice, source, message string }

func TestTrafficIsShownForTheClientsThatTheProxyDistinguishes(t *testing.T) {
	const (
		clusterIP  = "New connections to the ClusterIP are spread at random over 2 endpoints"
		onThisNode = " go to one endpoint on this node, which sees the client's own address."
		onAllNodes = " are spread at random over 2 endpoints, which see "
	)
	var (
		toClusterIP = trafficSummary{"everybody", "cluster", "", clusterIP + "."}
		outside     = trafficSummary{"outside", "local", "kept", "New connections from outside" + onThisNode}
		inside      = trafficSummary{
			"inside", "cluster", "keptForPods", "New connections from pods and this node" + onAllNodes + "a pod's own address, or one of this node.",
		}
		outsideWithPods = trafficSummary{
			"outside", "local", "kept", "New connections from outside (which includes pods, because no CIDR is known)" + onThisNode,
		}
		nodeOnly = trafficSummary{
			"inside", "cluster", "masqueraded", "New connections from this node" + onAllNodes + "an address of this node.",
		}
		masqueraded = trafficSummary{"everybody", "cluster", "masqueraded",
			clusterIP + ", which see an address of this node instead of the client's."}
	)
	podsUnknownIn := func(family model.Family) map[model.Family]string {
		return map[model.Family]string{family: "no CIDR is known"}
	}
	tests := map[string]struct {
		clients explain.Clients
		want    []trafficSummary
	}{
		"pods are recognized": {explain.Clients{}, []trafficSummary{toClusterIP, outside, inside}},
		"pods are not recognized, so they count as outside": {explain.Clients{PodsUnknown: podsUnknownIn(model.IPv4)},
			[]trafficSummary{toClusterIP, outsideWithPods, nodeOnly}},
		"pods of the other family are not recognized": {explain.Clients{PodsUnknown: podsUnknownIn(model.IPv6)},
			[]trafficSummary{toClusterIP, outside, inside}},
		"all connections to ClusterIPs are masqueraded, and no others": {
			explain.Clients{MasqueradeAll: true}, []trafficSummary{masqueraded, outside, inside},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			service := exposedService()
			service.ExternalTrafficLocal = true
			cluster := clusterOf(webSlice(endpoint("10.244.1.5", "node-a", true), endpoint("10.244.2.5", "node-b", true)), service)
			var got []trafficSummary
			for _, port := range test.clients.Ports(cluster, explain.Query{}) {
				for _, traffic := range port.Traffic {
					got = append(got, trafficSummary{traffic.From, traffic.Choice, traffic.Source, traffic.Message})
				}
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(trafficSummary{})); diff != "" {
				t.Errorf("traffic (-want +got):\n%s", diff)
			}
		})
	}
}
