package model

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// claimant is a Service of an age, in seconds, that wants port 80 of ClusterIPs.
func claimant(name string, created int64, addrs ...string) *Service {
	service := &Service{Name: named(name), Created: time.Unix(created, 0), Ports: []ServicePort{web}}
	for _, addr := range addrs {
		service.ClusterIPs = append(service.ClusterIPs, netip.MustParseAddr(addr))
	}
	return service
}

const (
	one   = "10.96.0.1"
	two   = "10.96.0.2"
	three = "fd00::3"
)

// owners returns who owns the frontend at each address, as the Services themselves see it. No Service may have two
// frontends at one address.
func owners(t testing.TB, cluster *Cluster) map[string]string {
	t.Helper()
	owned := map[string]string{}
	for _, name := range cluster.ServiceNames() {
		service := cluster.Service(name)
		for _, port := range service.Ports {
			for _, family := range Families {
				mine, _ := cluster.Frontends(service, port, family)
				for _, frontend := range mine {
					addr := frontend.Addr.String()
					if owned[addr] != "" {
						t.Errorf("%s is owned by %s and by %s", frontend, owned[addr], name.Name)
					}
					owned[addr] = name.Name
				}
			}
		}
	}
	return owned
}

func TestOwnershipOfAFrontend(t *testing.T) {
	gone := func(name string) Change { return Change{Services: map[ObjectName]*Service{named(name): nil}} }
	type step struct {
		change Change
		dirty  string
		owners map[string]string
	}
	tests := map[string][]step{
		"the older Service wins, though it comes later": {
			{changeOf(claimant("young", 2, one)), "young", map[string]string{one: "young"}},
			{changeOf(claimant("old", 1, one)), "old young", map[string]string{one: "old"}},
		},
		"the younger one changes nothing for the owner": {
			{changeOf(claimant("old", 1, one)), "old", map[string]string{one: "old"}},
			{changeOf(claimant("young", 2, one)), "young", map[string]string{one: "old"}},
		},
		"of equal age, the smaller name wins": {
			{changeOf(claimant("b", 1, one)), "b", map[string]string{one: "b"}},
			{changeOf(claimant("a", 1, one)), "a b", map[string]string{one: "a"}},
			{changeOf(claimant("c", 1, one)), "c", map[string]string{one: "a"}},
		},
		"the owner leaves: the next becomes owner": {
			{changeOf(claimant("old", 1, one), claimant("young", 2, one)), "old young", map[string]string{one: "old"}},
			{gone("old"), "old young", map[string]string{one: "young"}},
		},
		"the owner takes another address": {
			{changeOf(claimant("old", 1, one), claimant("young", 2, one)), "old young", map[string]string{one: "old"}},
			{changeOf(claimant("old", 1, two)), "old young", map[string]string{one: "young", two: "old"}},
		},
		"the owner is made anew, younger than the other": {
			{changeOf(claimant("old", 1, one), claimant("young", 2, one)), "old young", map[string]string{one: "old"}},
			{changeOf(claimant("old", 3, one)), "old young", map[string]string{one: "young"}},
		},
		"one that owns nothing leaves: no other changes": {
			{changeOf(claimant("old", 1, one), claimant("young", 2, one)), "old young", map[string]string{one: "old"}},
			{gone("young"), "young", map[string]string{one: "old"}},
		},
		"three claimants: only the next in line becomes owner": {
			{
				changeOf(claimant("third", 3, one), claimant("first", 1, one), claimant("second", 2, one)), "first second third",
				map[string]string{one: "first"},
			},
			{gone("first"), "first second", map[string]string{one: "second"}},
			{gone("third"), "third", map[string]string{one: "second"}},
			{gone("second"), "second", map[string]string{}},
		},
		"three claimants: the one in the middle leaves first": {
			{
				changeOf(claimant("third", 3, one), claimant("first", 1, one), claimant("second", 2, one)), "first second third",
				map[string]string{one: "first"},
			},
			{gone("second"), "second", map[string]string{one: "first"}},
			{gone("first"), "first third", map[string]string{one: "third"}},
		},
		"each address has an owner of its own": {
			{changeOf(claimant("old", 1, one), claimant("young", 2, one, three)), "old young", map[string]string{one: "old", three: "young"}},
			{changeOf(claimant("oldest", 0, three)), "oldest young", map[string]string{one: "old", three: "oldest"}},
		},
		"two Services swap their addresses": {
			{changeOf(claimant("a", 1, one), claimant("b", 2, two)), "a b", map[string]string{one: "a", two: "b"}},
			{changeOf(claimant("a", 1, two), claimant("b", 2, one)), "a b", map[string]string{two: "a", one: "b"}},
		},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			cluster := NewCluster("node-1")
			for number, step := range steps {
				if got := words(cluster.Apply(step.change)); got != step.dirty {
					t.Errorf("step %d: Services to decide anew: %q, want %q", number+1, got, step.dirty)
				}
				if diff := cmp.Diff(step.owners, owners(t, cluster)); diff != "" {
					t.Errorf("step %d: owners (-want +got):\n%s", number+1, diff)
				}
			}
		})
	}
}

func TestALostFrontendNamesItsOwner(t *testing.T) {
	cluster := NewCluster("node-1")
	loser := claimant("young", 2, one, three)
	cluster.Apply(changeOf(claimant("old", 1, one), loser))
	owned, lost := cluster.Frontends(loser, web, IPv4)
	wanted := PortFrontend{Frontend: Frontend{Addr: netip.MustParseAddr(one), Protocol: TCP, Port: 80}}
	want := []LostFrontend{{PortFrontend: wanted, Owner: named("old"), IsOlder: true}}
	if diff := cmp.Diff(want, lost, compareAddrs); diff != "" || len(owned) > 0 {
		t.Errorf("the loser owns %v and lost (-want +got):\n%s", owned, diff)
	}
	owned, lost = cluster.Frontends(loser, web, IPv6)
	if len(owned) != 1 || owned[0].Addr.String() != three || len(lost) > 0 {
		t.Errorf("in the other family it owns %v and lost %v, want %s alone", owned, lost, three)
	}
}

func TestAFrontendIsAnAddressAProtocolAndAPort(t *testing.T) {
	cluster := NewCluster("node-1")
	other := claimant("other", 2, one)
	other.Ports = []ServicePort{{Protocol: UDP, Port: 80}, {Protocol: TCP, Port: 81}, {Protocol: TCP, Port: 80}}
	cluster.Apply(changeOf(claimant("old", 1, one), other))
	for at, wantLost := range []int{0, 0, 1} {
		if owned, lost := cluster.Frontends(other, other.Ports[at], IPv4); len(lost) != wantLost || len(owned)+len(lost) != 1 {
			t.Errorf("port %+v owns %v and lost %v", other.Ports[at], owned, lost)
		}
	}
}
