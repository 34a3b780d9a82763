package packets_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/ruleset"
)

// TestWhomTheServerSees: a pod's connection to a ClusterIP keeps its source; anybody else's comes from the node that
// translated it, so that the answers pass there again.
func TestWhomTheServerSees(t *testing.T) {
	c := newCluster(t, 2)
	server := c.addServer(c.nodes[1], "server")
	client := c.addPod(c.nodes[0], "client")
	host, err := c.fabric.AddHost("outside", c.nodes[0].Node)
	if err != nil {
		t.Fatal(err)
	}
	c.apply(service())
	c.apply(endpoints(server))
	for _, to := range paths {
		for _, tt := range []struct {
			from *fabric.Namespace
			want netip.Addr
		}{
			{client.Namespace, to.own(client.Namespace)},
			{c.nodes[0].Namespace, to.own(c.nodes[0].Namespace)},
			{host.Namespace, to.own(c.nodes[0].Namespace)},
		} {
			if got := mustAsk(t, tt.from, to).Client.Addr(); got != tt.want {
				t.Errorf("%s from %s: the server sees %s, want %s", to, tt.from.Name, got, tt.want)
			}
		}
	}
}

// TestNothingIsMasqueradedWithoutADetector, as in kube-proxy: without a prefix of local traffic nobody knows who is outside.
func TestNothingIsMasqueradedWithoutADetector(t *testing.T) {
	c := newClusterWith(t, 1, ruleset.Config{Families: model.Families})
	server := c.addServer(c.nodes[0], "server")
	host, err := c.fabric.AddHost("outside", c.nodes[0].Node)
	if err != nil {
		t.Fatal(err)
	}
	c.apply(service())
	c.apply(endpoints(server))
	for _, to := range paths {
		if got := mustAsk(t, host.Namespace, to).Client.Addr(); got != to.own(host.Namespace) {
			t.Errorf("%s: the server sees %s, want the host's own address", to, got)
		}
	}
}

// TestAPodReachesItselfThroughItsService, and sees the connection come from its node: with its own source it would drop the answer.
func TestAPodReachesItselfThroughItsService(t *testing.T) {
	for name, config := range map[string]ruleset.Config{
		"with a detector":    {Families: model.Families, LocalTraffic: []netip.Prefix{fabric.PodsIPv4, fabric.PodsIPv6}},
		"without a detector": {Families: model.Families},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClusterWith(t, 1, config)
			server := c.addServer(c.nodes[0], "server")
			c.apply(service())
			c.apply(endpoints(server))
			for _, to := range paths {
				got := mustAsk(t, server.Namespace, to).Client.Addr()
				if slices.Contains([]netip.Addr{server.IPv4, server.IPv6}, got) {
					t.Errorf("%s: the pod sees itself as the client: %s", to, got)
				}
			}
		})
	}
}
