package model

import (
	"cmp"
	"slices"
)

// claims says which Services want which frontend. Among several, the first owns it until it lets go. A ClusterIP comes before
// any other kind: the API server gave it to one Service, while anybody may write any external IP. Then the oldest Service, then
// the lexically smallest name.
type claims struct {
	of map[Frontend][]*Service
	// contested is the number of frontends that several Services want.
	contested int
}

// claim enters a Service for all its frontends and marks every Service that loses one.
func (c *claims) claim(service *Service, dirty map[ObjectName]bool) {
	for _, frontend := range allFrontends(service) {
		claimants := c.of[frontend]
		at, _ := slices.BinarySearchFunc(claimants, service, func(a, b *Service) int { return compareClaims(frontend, a, b) })
		if at == 0 && len(claimants) > 0 {
			dirty[claimants[0].Name] = true
		}
		c.of[frontend] = slices.Insert(claimants, at, service)
		if len(claimants) == 1 {
			c.contested++
		}
	}
}

// release takes a Service out and marks every Service that gains a frontend.
func (c *claims) release(service *Service, dirty map[ObjectName]bool) {
	for _, frontend := range allFrontends(service) {
		claimants := c.of[frontend]
		at := slices.Index(claimants, service)
		claimants = slices.Delete(claimants, at, at+1)
		if len(claimants) == 0 {
			delete(c.of, frontend)
			continue
		}
		c.of[frontend] = claimants
		if len(claimants) == 1 {
			c.contested--
		}
		if at == 0 {
			dirty[claimants[0].Name] = true
		}
	}
}

func compareClaims(frontend Frontend, a, b *Service) int {
	return cmp.Or(
		falseFirst(a.KindOf(frontend).IsExternal(), b.KindOf(frontend).IsExternal()),
		a.Created.Compare(b.Created),
		a.Name.Compare(b.Name))
}

// allFrontends returns the frontends of all ports, each once.
func allFrontends(service *Service) []Frontend {
	var frontends []Frontend
	for _, port := range service.Ports {
		for _, family := range Families {
			frontends = append(frontends, service.Frontends(port, family)...)
		}
	}
	return frontends
}

// Contested returns the number of frontends that several Services want.
func (c *Cluster) Contested() int { return c.claims.contested }

// LostFrontend is a frontend that a Service wants and another one owns.
type LostFrontend struct {
	Frontend Frontend
	Owner    ObjectName
}

// Frontends returns those frontends of a Service's port that it owns, and those that another Service owns. The Service must be
// the one that the cluster has under its name.
func (c *Cluster) Frontends(service *Service, port ServicePort, family Family) (owned []Frontend, lost []LostFrontend) {
	for _, frontend := range service.Frontends(port, family) {
		if owner := c.claims.of[frontend][0].Name; owner != service.Name {
			lost = append(lost, LostFrontend{Frontend: frontend, Owner: owner})
			continue
		}
		owned = append(owned, frontend)
	}
	return owned, lost
}

// Owns reports whether a Service owns a frontend.
func (c *Cluster) Owns(service ObjectName, frontend Frontend) bool {
	claimants := c.claims.of[frontend]
	return len(claimants) > 0 && claimants[0].Name == service
}
