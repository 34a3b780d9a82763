package simulate

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// BenchmarkHosts measures the worst case: a Service with an endpoint on each of 5,000 nodes, and the hostname as first
// key.
func BenchmarkHosts(b *testing.B) {
	const hosts = 5000
	var nodes []model.Node
	var q Query
	for i := range hosts {
		name, zone := fmt.Sprintf("node-%04d", i), fmt.Sprint("zone-", i%3)
		nodes = append(nodes, model.Node{Name: name, Labels: map[string]string{string(policy.Zone): zone}})
		endpoint := model.PortEndpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)}
		endpoint.Node, endpoint.Zone, endpoint.Ready, endpoint.Serving = name, zone, true, true
		q.Endpoints = append(q.Endpoints, endpoint)
	}
	q.Topology.Keys = []policy.Key{policy.Hostname, policy.Zone, policy.AnyNode}
	for name, limit := range map[string]uint64{"keys": 0, "bound": 120} {
		b.Run(name, func(b *testing.B) {
			q.Topology.MaxLoad = limit
			for b.Loop() {
				New(nodes, nil).Distribute(q)
			}
		})
	}
}
