package model

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

// TestOwnershipDoesNotDependOnHistory: any history of changes results in the same owners. Apply returns every Service
// that gains or loses a frontend. If only one Service changes, Apply returns no others than it must.
func TestOwnershipDoesNotDependOnHistory(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		cluster, final := NewCluster("node-1"), map[ObjectName]*Service{}
		for range 25 {
			before := owners(t, cluster)
			change := randomClaims(random)
			maps.Copy(final, change.Services)
			affected := affectedBy(cluster, change.Services)
			dirty := cluster.Apply(change)
			if len(change.Services) == 1 && !slices.Equal(dirty, affected) {
				t.Errorf("Apply returned %v, want %v", dirty, affected)
			}
			checkDirty(t, before, owners(t, cluster), dirty)
			checkOwners(t, cluster)
		}
		fresh := NewCluster("node-1")
		fresh.Apply(Change{Services: final})
		if diff := gocmp.Diff(owners(t, fresh), owners(t, cluster)); diff != "" {
			t.Errorf("owners (-new cluster +after the history):\n%s", diff)
		}
		if len(fresh.claims.byFrontend) != len(cluster.claims.byFrontend) || fresh.Contested() != cluster.Contested() {
			t.Errorf("after the history there are claims for %d frontends, %d of them contested; in a new cluster %d and %d",
				len(cluster.claims.byFrontend), cluster.Contested(), len(fresh.claims.byFrontend), fresh.Contested())
		}
		if t.Failed() {
			return
		}
	}
}

// TestNothingIsContestedWhenAllAreRemoved: no frontend is contested when all Services are removed. Before that, some
// were.
func TestNothingIsContestedWhenAllAreRemoved(t *testing.T) {
	random, maxContested := rand.New(rand.NewPCG(3, 4)), 0
	cluster := NewCluster("node-1")
	for range 50 {
		cluster.Apply(randomClaims(random))
		maxContested = max(maxContested, cluster.Contested())
	}
	deletions := Change{Services: map[ObjectName]*Service{}}
	for _, name := range cluster.ServiceNames() {
		deletions.Services[name] = nil
	}
	cluster.Apply(deletions)
	if maxContested < 3 || cluster.Contested() != 0 || len(cluster.claims.byFrontend) != 0 {
		t.Errorf("at most %d frontends were contested, want 3 or more; after all Services were removed, %d are, and %d have claims, want "+
			"none", maxContested, cluster.Contested(), len(cluster.claims.byFrontend))
	}
}

func checkDirty(t *testing.T, before, after map[string]string, dirty []ObjectName) {
	t.Helper()
	addrs := maps.Clone(before)
	maps.Copy(addrs, after)
	for addr := range addrs {
		for _, owner := range []string{before[addr], after[addr]} {
			if before[addr] != after[addr] && owner != "" && !slices.Contains(dirty, named(owner)) {
				t.Errorf("the owner of %s changed from %q to %q, but %s is not among %v", addr, before[addr], after[addr], owner, dirty)
			}
		}
	}
}

// checkOwners computes from scratch which Service claims what, and compares what each Service owns and how many
// frontends are contested.
func checkOwners(t *testing.T, cluster *Cluster) {
	t.Helper()
	type testClaim struct {
		*Service
		kind FrontendKind
	}
	claimsByFrontend := map[Frontend][]testClaim{}
	for _, name := range cluster.ServiceNames() {
		service := cluster.Service(name)
		for _, family := range Families {
			for _, frontend := range service.Frontends(service.Ports[0], family) {
				claimsByFrontend[frontend.Frontend] = append(claimsByFrontend[frontend.Frontend], testClaim{service, frontend.Kind})
			}
		}
	}
	contested := 0
	for frontend, claims := range claimsByFrontend {
		if len(claims) > 1 {
			contested++
		}
		owner := slices.MinFunc(claims, func(a, b testClaim) int { return precedence(a.Service, b.Service, frontend) })
		for _, claim := range claims {
			portFrontend := PortFrontend{Frontend: frontend, Kind: claim.kind}
			owned, lost := cluster.Frontends(claim.Service, claim.Ports[0], FamilyOf(frontend.Addr))
			if slices.Contains(owned, portFrontend) != (claim == owner) {
				t.Errorf("%s owns %v, want %s owned by %s", claim.Name, owned, frontend, owner.Name)
			}
			wantLost := LostFrontend{
				PortFrontend: portFrontend, Owner: owner.Name, OwnerKind: owner.kind, OwnerIsOlder: owner.Created.Before(claim.Created),
			}
			if slices.Contains(lost, wantLost) != (claim != owner) {
				t.Errorf("%s lost %v, want %s owned by %s", claim.Name, lost, frontend, owner.Name)
			}
		}
	}
	if cluster.Contested() != contested {
		t.Errorf("%d frontends are contested, want %d", cluster.Contested(), contested)
	}
}

// affectedBy returns the Services to decide again when one changes: itself, and the next claimant of each frontend that
// it owns or owned.
func affectedBy(cluster *Cluster, changed map[ObjectName]*Service) []ObjectName {
	affected := map[ObjectName]bool{}
	for name, current := range changed {
		affected[name] = true
		for _, version := range []*Service{cluster.Service(name), current} {
			if version == nil {
				continue
			}
			for _, frontend := range allFrontends(version) {
				claimants := []*Service{version}
				for _, other := range cluster.services {
					isSame := func(f PortFrontend) bool { return f.Frontend == frontend.Frontend }
					if other.Name != name && slices.ContainsFunc(allFrontends(other), isSame) {
						claimants = append(claimants, other)
					}
				}
				slices.SortFunc(claimants, func(a, b *Service) int { return precedence(a, b, frontend.Frontend) })
				if len(claimants) > 1 && claimants[0] == version {
					affected[claimants[1].Name] = true
				}
			}
		}
	}
	return slices.SortedFunc(maps.Keys(affected), ObjectName.Compare)
}

// precedence returns a negative number if the first of two Services owns a frontend that both claim.
func precedence(a, b *Service, frontend Frontend) int {
	return cmp.Or(rank(a, frontend)-rank(b, frontend), a.Created.Compare(b.Created), cmp.Compare(a.Name.Name, b.Name.Name))
}

// rank returns 0 if the frontend is the Service's ClusterIP, 1 if it is an address of its load balancer or a node port,
// and 2 otherwise.
func rank(service *Service, frontend Frontend) int {
	switch {
	case slices.Contains(service.ClusterIPs, frontend.Addr):
		return 0
	case frontend.IsNodePort() || slices.Contains(service.LoadBalancerIPs, frontend.Addr):
		return 1
	}
	return 2
}

// randomClaims changes one to three of five Services, which share three ages and a handful of addresses of every kind.
func randomClaims(random *rand.Rand) Change {
	change := Change{Services: map[ObjectName]*Service{}}
	for range 1 + random.IntN(3) {
		name := fmt.Sprintf("service-%d", random.IntN(5))
		if random.IntN(4) == 0 {
			change.Services[named(name)] = nil
			continue
		}
		pick := func(choices ...string) string { return choices[random.IntN(len(choices))] }
		service := &Service{
			Name: named(name), Created: time.Unix(int64(random.IntN(3)), 0), Ports: []ServicePort{web},
			ClusterIPs:      addrs(pick(clusterIP1, clusterIP2, clusterIPv6, clusterIP1+" "+clusterIPv6, clusterIP2+" "+clusterIPv6)),
			ExternalIPs:     addrs(pick("", "", clusterIP1, vip, vip+" 2001:db8::1")),
			LoadBalancerIPs: addrs(pick("", "", clusterIP2, vip, clusterIPv6, "192.0.2.2 "+vip)),
		}
		change.Services[named(name)] = service.withNodePort([]uint16{0, 30080}[random.IntN(2)])
	}
	return change
}
