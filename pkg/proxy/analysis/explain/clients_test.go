package explain_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
)

// brief is the part of a Traffic that depends on the clients.
type brief struct{ from, choice, source, message string }

func TestTrafficIsShownForTheClientsThatTheProxyDistinguishes(t *testing.T) {
	const (
		clusterIP = "New connections to the ClusterIP are spread at random over 2 endpoints"
		here      = " go to one endpoint on this node, which sees the client's own address."
		anywhere  = " are spread at random over 2 endpoints, which see "
	)
	var (
		toClusterIP = brief{"everybody", "cluster", "", clusterIP + "."}
		outside     = brief{"outside", "local", "kept", "New connections from outside" + here}
		inside      = brief{
			"inside", "cluster", "keptForPods", "New connections from pods and this node" + anywhere + "a pod's own address, or one of this node.",
		}
		withPods = brief{
			"outside", "local", "kept", "New connections from outside (which includes pods, because no CIDR is known)" + here,
		}
		nodeAlone = brief{
			"inside", "cluster", "masqueraded", "New connections from this node" + anywhere + "an address of this node.",
		}
		masqueraded = brief{"everybody", "cluster", "masqueraded", clusterIP + ", which see an address of this node instead of the client's."}
	)
	unknown := func(family model.Family) map[model.Family]string {
		return map[model.Family]string{family: "no CIDR is known"}
	}
	tests := map[string]struct {
		clients explain.Clients
		want    []brief
	}{
		"pods are recognized":                               {explain.Clients{}, []brief{toClusterIP, outside, inside}},
		"pods are not recognized, so they count as outside": {explain.Clients{PodsUnknown: unknown(model.IPv4)}, []brief{toClusterIP, withPods, nodeAlone}},
		"pods of the other family are not recognized":       {explain.Clients{PodsUnknown: unknown(model.IPv6)}, []brief{toClusterIP, outside, inside}},
		"all connections to ClusterIPs are masqueraded, and no others": {
			explain.Clients{MasqueradeAll: true}, []brief{masqueraded, outside, inside},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			service := balanced()
			service.ExternalTrafficLocal = true
			cluster := clusterOf(webSlice(endpoint("10.244.1.5", "node-a", true), endpoint("10.244.2.5", "node-b", true)), service)
			var got []brief
			for _, port := range test.clients.Ports(cluster, explain.Query{}) {
				for _, traffic := range port.Traffic {
					got = append(got, brief{traffic.From, traffic.Choice, traffic.Source, traffic.Message})
				}
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(brief{})); diff != "" {
				t.Errorf("traffic (-want +got):\n%s", diff)
			}
		})
	}
}
