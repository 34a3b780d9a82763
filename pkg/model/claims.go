package model

import (
	"cmp"
	"slices"
)

// claims says which Services want which frontend. Among several, the oldest owns it until it lets go; of the same age, the
// lexically smallest name.
type claims map[Frontend][]*Service

// claim enters a Service for all its frontends and marks every Service that loses one.
func (c claims) claim(service *Service, dirty map[ObjectName]bool) {
	for _, frontend := range allFrontends(service) {
		claimants := c[frontend]
		at, _ := slices.BinarySearchFunc(claimants, service, compareAge)
		if at == 0 && len(claimants) > 0 {
			dirty[claimants[0].Name] = true
		}
		c[frontend] = slices.Insert(claimants, at, service)
	}
}

// release takes a Service out and marks every Service that gains a frontend.
func (c claims) release(service *Service, dirty map[ObjectName]bool) {
	for _, frontend := range allFrontends(service) {
		claimants := c[frontend]
		at := slices.Index(claimants, service)
		claimants = slices.Delete(claimants, at, at+1)
		if len(claimants) == 0 {
			delete(c, frontend)
			continue
		}
		c[frontend] = claimants
		if at == 0 {
			dirty[claimants[0].Name] = true
		}
	}
}

func compareAge(a, b *Service) int {
	return cmp.Or(a.Created.Compare(b.Created), a.Name.Compare(b.Name))
}

func allFrontends(service *Service) []Frontend {
	var frontends []Frontend
	for _, port := range service.Ports {
		for _, family := range Families {
			frontends = append(frontends, service.Frontends(port, family)...)
		}
	}
	return frontends
}

// LostFrontend is a frontend that a Service wants and another one owns.
type LostFrontend struct {
	Frontend Frontend
	Owner    ObjectName
}

// Frontends returns those frontends of a Service's port that it owns, and those that an older Service owns.
func (c *Cluster) Frontends(service *Service, port ServicePort, family Family) (owned []Frontend, lost []LostFrontend) {
	for _, frontend := range service.Frontends(port, family) {
		if owner := c.claims[frontend][0].Name; owner != service.Name {
			lost = append(lost, LostFrontend{Frontend: frontend, Owner: owner})
			continue
		}
		owned = append(owned, frontend)
	}
	return owned, lost
}
