package model

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestVirtualEndpointsDependOnTheFinalStateAlone: on Services, slices, ServiceCIDRs and the node's own addresses,
// whatever the order in which they came. Every Service with an endpoint that becomes virtual, or no longer is, is
// decided anew.
func TestVirtualEndpointsDependOnTheFinalStateAlone(t *testing.T) {
	random, seen := rand.New(rand.NewPCG(5, 6)), map[bool]int{}
	for range 300 {
		cluster, final := NewCluster("node-1"), Change{}
		for range 30 {
			before := virtualOf(cluster)
			change := randomVirtual(random)
			final = final.Then(change)
			dirty := cluster.Apply(change)
			after := virtualOf(cluster)
			for _, service := range virtualNames {
				changed := !maps.EqualFunc(before[service], after[service], func(VirtualIP, VirtualIP) bool { return true })
				if seen[changed]++; changed && !slices.Contains(dirty, service) {
					t.Fatalf("virtual endpoints of %s were %v and are %v after %+v, and only %v are decided anew",
						service, before[service], after[service], change, dirty)
				}
			}
		}
		fresh := NewCluster("node-1")
		fresh.Apply(final)
		if diff := gocmp.Diff(virtualOf(fresh), virtualOf(cluster), cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
			t.Fatalf("virtual endpoints (-fresh +after a history):\n%s", diff)
		}
	}
	if seen[true] < 500 {
		t.Errorf("endpoints became virtual or ceased to be %d times: the test has tested little", seen[true])
	}
}

// TestWhoHasNoEndpointAmongClusterIPsCostsNothing: there is no entry for each endpoint, and no look at others when a
// ClusterIP comes.
func TestWhoHasNoEndpointAmongClusterIPsCostsNothing(t *testing.T) {
	cluster, change := NewCluster("node-1"), Change{Slices: map[ObjectName]*EndpointSlice{}}
	for i := range 1000 {
		slice := &EndpointSlice{Name: named(fmt.Sprintf("slice-%d", i)), Service: named(fmt.Sprintf("service-%d", i))}
		slice.Endpoints = []SliceEndpoint{{Addr: netip.AddrFrom4([4]byte{10, 244, byte(i >> 8), byte(i)})}}
		change.Slices[slice.Name] = slice
	}
	cluster.Apply(change)
	for i := range 100 {
		name := named(fmt.Sprintf("new-%d", i))
		service := &Service{Name: name, ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, byte(i)})}}
		if dirty := cluster.Apply(Change{Services: map[ObjectName]*Service{name: service}}); !slices.Equal(dirty, []ObjectName{name}) {
			t.Fatalf("decided anew are %v, want only %s", dirty, name)
		}
	}
	if near := len(cluster.virtual.near); near != 0 {
		t.Errorf("%d endpoints have an entry, want none", near)
	}
}

var virtualNames = []ObjectName{named("a"), named("b"), named("c"), named("d")}

// virtualOf returns the virtual endpoints of each Service, and why, as MarkVirtual says. It checks that exactly those
// that it marks are unusable.
func virtualOf(cluster *Cluster) map[ObjectName]map[netip.Addr]VirtualIP {
	all := map[ObjectName]map[netip.Addr]VirtualIP{}
	for _, name := range virtualNames {
		var endpoints []PortEndpoint
		for _, slice := range cluster.SlicesOf(name) {
			for _, entry := range slice.Endpoints {
				endpoint := PortEndpoint{Addr: netip.AddrPortFrom(entry.Addr, 80)}
				endpoint.Ready, endpoint.Serving = true, true
				endpoints = append(endpoints, endpoint)
			}
		}
		if found := cluster.MarkVirtual(name, endpoints); found != nil {
			all[name] = found
		}
		for _, endpoint := range endpoints {
			if _, is := all[name][endpoint.Addr.Addr()]; is == endpoint.Ready || is == endpoint.Serving {
				panic(fmt.Sprintf("%s: %v is virtual: %t", name, endpoint, is))
			}
		}
	}
	return all
}

// randomVirtual changes a few Services, slices and ServiceCIDRs that share a handful of addresses in two blocks a family.
func randomVirtual(random *rand.Rand) Change {
	pool := addrs("10.96.0.1 10.96.0.2 10.97.0.1 10.244.0.1 fd00:96::1 fd00:96::2 fd00:244::1")
	some := func(most int) []netip.Addr {
		random.Shuffle(len(pool), func(i, j int) { pool[i], pool[j] = pool[j], pool[i] })
		return slices.Clone(pool[:random.IntN(most+1)])
	}
	change := Change{Services: map[ObjectName]*Service{}, Slices: map[ObjectName]*EndpointSlice{}}
	for range random.IntN(3) {
		name := virtualNames[random.IntN(len(virtualNames))]
		if change.Services[name] = nil; random.IntN(3) > 0 {
			change.Services[name] = &Service{Name: name, ClusterIPs: some(2)}
		}
	}
	for range random.IntN(3) {
		name := named(fmt.Sprintf("slice-%d", random.IntN(5)))
		if change.Slices[name] = nil; random.IntN(3) > 0 {
			slice := &EndpointSlice{Name: name, Service: virtualNames[random.IntN(len(virtualNames))]}
			for _, addr := range some(3) {
				slice.Endpoints = append(slice.Endpoints, SliceEndpoint{Addr: addr})
			}
			change.Slices[name] = slice
		}
	}
	switch random.IntN(6) {
	case 0:
		change.ServiceCIDRs = map[string][]netip.Prefix{"one": nil}
	case 1:
		change.ServiceCIDRs = map[string][]netip.Prefix{"one": {netip.MustParsePrefix("10.96.0.0/15"), netip.MustParsePrefix("fd00:96::/126")}}
	case 2:
		change.LocalAddrs = some(2)
	}
	return change
}
