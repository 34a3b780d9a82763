package model

import (
	"cmp"
	"slices"
)

// claims says which Services want which frontend. Among several, the first owns it until it lets go. A ClusterIP comes
// before any other kind: the API server gave it to one Service, while any owner may write any external IP. Then the
// oldest Service, then the lexically smallest name.
type claims struct {
	byFrontend map[Frontend][]claim
	// contested is the number of frontends that several Services want.
	contested int
}

// claim is that a Service wants a frontend, and why.
type claim struct {
	service *Service
	kind    FrontendKind
}

func (c claim) compare(other claim) int {
	return cmp.Or(
		falseFirst(c.kind.IsExternal(), other.kind.IsExternal()),
		c.service.Created.Compare(other.service.Created),
		c.service.Name.Compare(other.service.Name))
}

// claim enters a Service for all its frontends and marks every Service that loses one.
func (c *claims) claim(service *Service, dirty map[ObjectName]bool) {
	for _, frontend := range allFrontends(service) {
		claimants, wanted := c.byFrontend[frontend.Frontend], claim{service, frontend.Kind}
		at, _ := slices.BinarySearchFunc(claimants, wanted, claim.compare)
		if at == 0 && len(claimants) > 0 {
			dirty[claimants[0].service.Name] = true
		}
		c.byFrontend[frontend.Frontend] = slices.Insert(claimants, at, wanted)
		if len(claimants) == 1 {
			c.contested++
		}
	}
}

// release takes a Service out and marks every Service that gains a frontend.
func (c *claims) release(service *Service, dirty map[ObjectName]bool) {
	for _, frontend := range allFrontends(service) {
		claimants := c.byFrontend[frontend.Frontend]
		at := slices.Index(claimants, claim{service, frontend.Kind})
		claimants = slices.Delete(claimants, at, at+1)
		if len(claimants) == 0 {
			delete(c.byFrontend, frontend.Frontend)
			continue
		}
		c.byFrontend[frontend.Frontend] = claimants
		if len(claimants) == 1 {
			c.contested--
		}
		if at == 0 {
			dirty[claimants[0].service.Name] = true
		}
	}
}

// allFrontends returns the frontends of all ports, each once.
func allFrontends(service *Service) []PortFrontend {
	var frontends []PortFrontend
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
	PortFrontend
	Owner     ObjectName
	OwnerKind FrontendKind // why the owner has it
}

// Frontends returns those frontends of a Service's port that it owns, and those that another Service owns. The Service
// must be the one that the cluster has under its name.
func (c *Cluster) Frontends(service *Service, port ServicePort, family Family) (owned []PortFrontend, lost []LostFrontend) {
	for _, frontend := range service.Frontends(port, family) {
		first := c.claims.byFrontend[frontend.Frontend][0]
		if first.service.Name != service.Name {
			lost = append(lost, LostFrontend{PortFrontend: frontend, Owner: first.service.Name, OwnerKind: first.kind})
			continue
		}
		owned = append(owned, frontend)
	}
	return owned, lost
}

// Owns reports whether a Service owns a frontend.
func (c *Cluster) Owns(service ObjectName, frontend Frontend) bool {
	claimants := c.claims.byFrontend[frontend]
	return len(claimants) > 0 && claimants[0].service.Name == service
}
