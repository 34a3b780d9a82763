package selection

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// TestNeedsReplanAfterKeysChange: a Service's keys may have changed since the applied plan was computed.
func TestNeedsReplanAfterKeysChange(t *testing.T) {
	name := model.ObjectName{Namespace: "shop", Name: "web"}
	for _, keys := range [][2][]policy.Key{
		{{policy.Zone, policy.AnyNode}, {policy.AnyNode}},
		{{policy.AnyNode}, {policy.Zone, policy.AnyNode}},
		{{policy.Zone, policy.AnyNode}, {policy.Region, policy.AnyNode}},
	} {
		changeWithKeys := func(keys []policy.Key) model.Change {
			return model.Change{Services: map[model.ObjectName]*model.Service{name: {
				Name: name, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")},
				Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80}}, Topology: policy.Topology{Keys: keys, MaxLoad: 120},
			}}}
		}
		cluster := model.NewCluster("worker-0")
		planner := NewPlanner(cluster)
		change := changeWithKeys(keys[0])
		change.AllNodes, change.Nodes = new(true), map[string]*model.Node{}
		slice := &model.EndpointSlice{Name: name, Service: name, Ports: []model.SlicePort{{Protocol: model.TCP, Port: 8080}}}
		for i := range 4 {
			node := fmt.Sprintf("worker-%d", i)
			labels := map[string]string{string(policy.Zone): fmt.Sprintf("zone-%d", i%2), string(policy.Region): "region"}
			change.Nodes[node] = &model.Node{Name: node, Labels: labels}
			slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{
				Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), Endpoint: model.Endpoint{Node: node, Zone: fmt.Sprintf("zone-%d", i%2), Ready: true},
			})
		}
		change.Slices = map[model.ObjectName]*model.EndpointSlice{name: slice}
		cluster.Apply(change)
		planner.OnApplied(name, planner.Derive(planner.Decide(name, []model.Family{model.IPv4})))
		if differs, _ := planner.NeedsReplan(name); differs {
			t.Errorf("%s: NeedsReplan is true although nothing changed", keys)
		}
		second := changeWithKeys(keys[1])
		second.Nodes = map[string]*model.Node{"worker-1": nil, "worker-3": nil}
		cluster.Apply(second)
		planner.ApplyChange(second)
		if differs, _ := planner.NeedsReplan(name); !differs {
			t.Errorf("%s: NeedsReplan is false", keys)
		}
	}
}
