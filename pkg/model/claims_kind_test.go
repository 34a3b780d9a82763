package model

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// withExternalIPs and the next two methods add frontends of other kinds to a claimant.
func (s *Service) withExternalIPs(text string) *Service { s.ExternalIPs = addrs(text); return s }
func (s *Service) withLoadBalancerIPs(text string) *Service {
	s.LoadBalancerIPs = addrs(text)
	return s
}
func (s *Service) withNodePort(number uint16) *Service {
	s.Ports = []ServicePort{web}
	s.Ports[0].NodePort = number
	return s
}

const (
	uncontestedIP1 = "10.96.0.11" // ClusterIPs that no other Service claims
	uncontestedIP2 = "10.96.0.12"
	uncontestedIP3 = "10.96.0.13"
	vip            = "192.0.2.1" // an address outside the cluster
)

func TestALostFrontendOfAnyKindNamesItsOwner(t *testing.T) {
	cluster := NewCluster("node-1")
	losing := claimant("young", 2, uncontestedIP1).withExternalIPs("192.0.2.1 192.0.2.2").withLoadBalancerIPs(clusterIP1).withNodePort(30080)
	cluster.Apply(changeOf(
		losing, claimant("first", 3, clusterIP1), claimant("second", 1, uncontestedIP2).withLoadBalancerIPs("192.0.2.1"),
		claimant("ported", 1, uncontestedIP3).withNodePort(30080)))
	owned, lost := cluster.Frontends(losing, losing.Ports[0], IPv4)
	if got := texts(owned); got != "10.96.0.11:80/TCP 192.0.2.2:80/TCP" {
		t.Errorf("owned frontends are %s, want the ClusterIP and 192.0.2.2", got)
	}
	var got []string
	for _, frontend := range lost {
		got = append(got, frontend.Kind.String()+" "+frontend.String()+" to "+frontend.Owner.Name+" as "+frontend.OwnerKind.String())
	}
	want := []string{
		"LoadBalancerIP 10.96.0.1:80/TCP to first as ClusterIP", "ExternalIP 192.0.2.1:80/TCP to second as LoadBalancerIP",
		"NodePort *:30080/TCP to ported as NodePort",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lost frontends (-want +got):\n%s", diff)
	}
	if cluster.Contested() != 3 {
		t.Errorf("%d frontends are contested, want 3", cluster.Contested())
	}
}

// TestNodePortOverridesExternalIPOnNodeAddress: if node ports are served on the address, the node port takes
// precedence, regardless of the Services' ages.
func TestNodePortOverridesExternalIPOnNodeAddress(t *testing.T) {
	const nodeIP, otherIP = "192.168.0.1", "192.168.0.2"
	withIP := claimant("with-ip", 1, uncontestedIP1).withExternalIPs(nodeIP + " " + otherIP + " 127.0.0.1")
	withNodePort := claimant("given", 2, uncontestedIP2).withNodePort(80)
	node := &Node{Name: "node-1", Addresses: addrs(nodeIP)}
	localAddrs := func(text string) Change { return Change{LocalAddrs: addrs(text)} }
	for name, nodePorts := range map[string]NodePortAddresses{"on all addresses": {}, "on the primary addresses": {Primary: true}} {
		t.Run(name, func(t *testing.T) {
			cluster := NewCluster("node-1")
			cluster.NodePorts = nodePorts
			for number, step := range []struct {
				change Change
				dirty  string
				lost   string
			}{
				{changeOf(node, withIP, withNodePort), "given with-ip", ""},
				{localAddrs(nodeIP + " 10.244.0.1 127.0.0.1"), "with-ip", nodeIP + ":80/TCP"},
				{localAddrs(nodeIP + " 10.244.0.9 127.0.0.1"), "", nodeIP + ":80/TCP"},
				{changeOf(claimant("given", 2, uncontestedIP2)), "given with-ip", ""},
				{changeOf(withNodePort), "given with-ip", nodeIP + ":80/TCP"},
				{changeOf(named("given")), "given with-ip", ""},
				{changeOf(claimant("given", 2, uncontestedIP2).withNodePort(81)), "given", ""},
				{changeOf(withNodePort, claimant("with-ip", 1, uncontestedIP1).withExternalIPs(nodeIP).withNodePort(82)), "given with-ip",
					nodeIP + ":80/TCP"},
				{localAddrs("10.244.0.9"), "with-ip", ""},
			} {
				if got := namesText(cluster.Apply(step.change)); got != step.dirty {
					t.Errorf("step %d: Apply returned %q, want %q", number+1, got, step.dirty)
				}
				service := cluster.Service(named("with-ip"))
				owned, lost := cluster.Frontends(service, service.Ports[0], IPv4)
				if got := texts(lost); got != step.lost {
					t.Errorf("step %d: lost frontends %q, want %q", number+1, got, step.lost)
				}
				for _, frontend := range owned {
					if !cluster.Owns(service.Name, frontend.Frontend) {
						t.Errorf("step %d: Frontends returns %s as owned, but Owns returns false", number+1, frontend)
					}
				}
				for _, frontend := range lost {
					if frontend.OwnerKind != NodePort || frontend.Owner != withNodePort.Name || cluster.Owns(service.Name, frontend.Frontend) {
						t.Errorf("step %d: %s is owned by %s as %s", number+1, frontend, frontend.Owner.Name, frontend.OwnerKind)
					}
				}
			}
		})
	}
}

// TestReservedAddressesHaveNoOwner: no Service may own an address of the API server or a probed one, as an
// external IP or from a load balancer. The API server's own ClusterIP belongs to its Service.
func TestReservedAddressesHaveNoOwner(t *testing.T) {
	const server = "192.0.2.10"
	withIP := claimant("with-ip", 1, uncontestedIP1).withExternalIPs(server)
	withLoadBalancer := claimant("balanced", 1, uncontestedIP2).withLoadBalancerIPs(server)
	kubernetes := claimant("kubernetes", 2, clusterIP1)
	cluster := NewCluster("node-1")
	apiServersAt := func(addrs ...string) Change {
		change := Change{APIServers: []netip.AddrPort{}}
		for _, addr := range addrs {
			change.APIServers = append(change.APIServers, netip.MustParseAddrPort(addr))
		}
		return change
	}
	probedAt := func(addrs ...string) Change {
		change := Change{ProbeTargets: &ProbeTargets{Addrs: map[netip.Addr]bool{}, Ports: []uint16{80, 9}}}
		for _, addr := range addrs {
			change.ProbeTargets.Addrs[netip.MustParseAddr(addr)] = true
		}
		return change
	}
	for number, step := range []struct {
		change Change
		dirty  string
		lost   string // the Services that lost frontends
	}{
		{changeOf(withIP, withLoadBalancer, kubernetes), "balanced kubernetes with-ip", "with-ip"},
		{apiServersAt(server+":80", clusterIP1+":80"), "balanced kubernetes with-ip", "balanced with-ip"},
		{apiServersAt(server+":80", clusterIP1+":80"), "", "balanced with-ip"},
		{apiServersAt(clusterIP1 + ":80"), "balanced with-ip", "with-ip"},
		{apiServersAt(server+":81", clusterIP1+":80"), "", "with-ip"},
		{apiServersAt(server + ":80"), "balanced kubernetes with-ip", "balanced with-ip"},
		{probedAt(server), "balanced with-ip", "balanced with-ip"},
		{apiServersAt(), "balanced with-ip", "balanced with-ip"},
		{probedAt(), "balanced with-ip", "with-ip"},
	} {
		if got := namesText(cluster.Apply(step.change)); got != step.dirty {
			t.Errorf("step %d: Apply returned %q, want %q", number+1, got, step.dirty)
		}
		var losing []string
		for _, name := range cluster.ServiceNames() {
			service := cluster.Service(name)
			_, lost := cluster.Frontends(service, service.Ports[0], IPv4)
			for _, frontend := range lost {
				losing = append(losing, name.Name)
				if cluster.Owns(name, frontend.Frontend) {
					t.Errorf("step %d: %s lost %s, but Owns returns true", number+1, name, frontend)
				}
				var want LossReason
				switch {
				case cluster.apiServers[frontend.Frontend]:
					want = apiServersAddress
				case cluster.probeTargets.has(frontend.Frontend):
					want = probedAddress
				}
				if frontend.Reserved != want {
					t.Errorf("step %d: %s lost %s with reason %q, want %q", number+1, name, frontend, frontend.Reserved, want)
				}
			}
		}
		if got := strings.Join(losing, " "); got != step.lost {
			t.Errorf("step %d: the Services that lost frontends are %q, want %q", number+1, got, step.lost)
		}
	}
}
