package model

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// claimant returns a Service with a creation time, in seconds, that claims port 80 of ClusterIPs.
func claimant(name string, created int64, addrs ...string) *Service {
	service := &Service{Name: named(name), Created: time.Unix(created, 0), Ports: []ServicePort{web}}
	for _, addr := range addrs {
		service.ClusterIPs = append(service.ClusterIPs, netip.MustParseAddr(addr))
	}
	return service
}

const (
	clusterIP1  = "10.96.0.1"
	clusterIP2  = "10.96.0.2"
	clusterIPv6 = "fd00::3"
)

// owners returns the owner of the frontend at each address, from the Frontends of all Services. An address must have at
// most one owner.
func owners(t testing.TB, cluster *Cluster) map[string]string {
	t.Helper()
	owned := map[string]string{}
	for _, name := range cluster.ServiceNames() {
		service := cluster.Service(name)
		for _, port := range service.Ports {
			for _, family := range Families {
				frontends, _ := cluster.Frontends(service, port, family)
				for _, frontend := range frontends {
					addr := frontend.Addr.String()
					if owned[addr] != "" {
						t.Errorf("%s is owned by both %s and %s", frontend, owned[addr], name.Name)
					}
					owned[addr] = name.Name
				}
			}
		}
	}
	return owned
}

func TestALostFrontendNamesItsOwner(t *testing.T) {
	cluster := NewCluster("node-1")
	younger := claimant("young", 2, clusterIP1, clusterIPv6)
	cluster.Apply(changeOf(claimant("old", 1, clusterIP1), younger))
	owned, lost := cluster.Frontends(younger, web, IPv4)
	frontend := PortFrontend{Frontend: Frontend{Addr: netip.MustParseAddr(clusterIP1), Protocol: TCP, Port: 80}}
	want := []LostFrontend{{PortFrontend: frontend, Owner: named("old"), OwnerIsOlder: true}}
	if diff := cmp.Diff(want, lost, compareAddrs); diff != "" || len(owned) > 0 {
		t.Errorf("owned %v, lost (-want +got):\n%s", owned, diff)
	}
	owned, lost = cluster.Frontends(younger, web, IPv6)
	if len(owned) != 1 || owned[0].Addr.String() != clusterIPv6 || len(lost) > 0 {
		t.Errorf("in the other family: owned %v, lost %v; want only %s owned", owned, lost, clusterIPv6)
	}
}

func TestFrontendsDifferByAddressProtocolAndPort(t *testing.T) {
	cluster := NewCluster("node-1")
	other := claimant("other", 2, clusterIP1)
	other.Ports = []ServicePort{{Protocol: UDP, Port: 80}, {Protocol: TCP, Port: 81}, {Protocol: TCP, Port: 80}}
	cluster.Apply(changeOf(claimant("old", 1, clusterIP1), other))
	for index, wantLost := range []int{0, 0, 1} {
		if owned, lost := cluster.Frontends(other, other.Ports[index], IPv4); len(lost) != wantLost || len(owned)+len(lost) != 1 {
			t.Errorf("port %+v: owned %v, lost %v", other.Ports[index], owned, lost)
		}
	}
}
