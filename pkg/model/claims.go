package model

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// claims says which Services want which frontend. If several do, the first one owns it until it lets go: by the kind of
// the frontend (see rank), then the oldest Service, then the lexically smallest name.
type claims struct {
	byFrontend map[Frontend][]claim
	// external are the Services that want an address as an external IP. A node port of another Service that is served
	// there comes before them (see Cluster.overruled).
	external map[netip.Addr]map[ObjectName]bool
	// contested is the number of frontends that several Services want.
	contested int
}

// claim says that a Service wants a frontend, and why.
type claim struct {
	service *Service
	kind    FrontendKind
}

func (c claim) compare(other claim) int {
	return cmp.Or(
		cmp.Compare(c.kind.rank(), other.kind.rank()),
		c.service.Created.Compare(other.service.Created),
		c.service.Name.Compare(other.service.Name))
}

// claim enters a Service for all its frontends and marks every Service that loses one.
func (c *claims) claim(service *Service, dirty map[ObjectName]bool) {
	for _, addr := range service.ExternalIPs {
		if c.external[addr] == nil {
			c.external[addr] = map[ObjectName]bool{}
		}
		c.external[addr][service.Name] = true
	}
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
	for _, addr := range service.ExternalIPs {
		if delete(c.external[addr], service.Name); len(c.external[addr]) == 0 {
			delete(c.external, addr)
		}
	}
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

// LostFrontend is a frontend that a Service wants but another one owns.
type LostFrontend struct {
	PortFrontend
	Owner        ObjectName
	OwnerKind    FrontendKind // why the owner has it
	OwnerIsOlder bool         // the owner is
	// Reserved is why no Service owns it; empty if another one does.
	Reserved LossReason
}

// LossReason is a stable code for why a Service does not get a frontend. The order of the rules is that of claim.compare.
type LossReason string

// Why a Service does not get a frontend.
const (
	// This process reaches the API server there. If it were translated, a restarted proxy could never learn that the Service
	// is gone.
	apiServersAddress LossReason = "APIServersAddress"
	// Proxies find out there whether a node answers. If it were translated, something else would answer in its place.
	probedAddress     LossReason = "ProbedAddress"
	ownersClusterIP   LossReason = "OwnersClusterIP"
	ownersBalancer    LossReason = "OwnersLoadBalancerIP"
	ownersNodePort    LossReason = "OwnersNodePort"
	ownerIsOlder      LossReason = "OwnerIsOlder"
	ownersNameIsFirst LossReason = "OwnersNameIsFirst"
)

// Reason returns why the Service does not get the frontend.
func (l LostFrontend) Reason() LossReason {
	switch {
	case l.Reserved != "":
		return l.Reserved
	case l.Kind != ClusterIP && l.OwnerKind == ClusterIP:
		return ownersClusterIP
	case l.Kind == ExternalIP && l.OwnerKind == LoadBalancerIP:
		return ownersBalancer
	case l.Kind == ExternalIP && l.OwnerKind == NodePort:
		return ownersNodePort
	case l.OwnerIsOlder:
		return ownerIsOlder
	}
	return ownersNameIsFirst
}

// Sentence says who has the frontend, and why.
func (l LostFrontend) Sentence() string {
	const untilReleased = "until that one lets go of it."
	switch l.Reason() {
	case apiServersAddress:
		return fmt.Sprintf("%s is left out because the proxy reaches the API server there", l.Frontend)
	case probedAddress:
		return fmt.Sprintf("%s is left out because proxies find out there whether a node answers", l.Frontend)
	case ownersClusterIP:
		return fmt.Sprintf("%s belongs to the Service %s, whose ClusterIP it is, %s", l.Frontend, l.Owner, untilReleased)
	case ownersBalancer:
		return fmt.Sprintf("%s belongs to the Service %s, whose load balancer has it, %s", l.Frontend, l.Owner, untilReleased)
	case ownersNodePort:
		return fmt.Sprintf("%s belongs to the Service %s, whose node port is served there, %s", l.Frontend, l.Owner, untilReleased)
	case ownerIsOlder:
		return fmt.Sprintf("%s belongs to the older Service %s, %s", l.Frontend, l.Owner, untilReleased)
	default:
		return fmt.Sprintf("%s belongs to the Service %s, which is of the same age and first by name, %s", l.Frontend, l.Owner, untilReleased)
	}
}

// Finding says that a Service does not get the frontend.
func (l LostFrontend) Finding() Finding {
	if l.Reserved == apiServersAddress {
		return Finding{Code: FrontendIsAPIServer, Reason: l.Sentence(), Local: true}
	}
	if l.Reserved == probedAddress {
		return Finding{Code: FrontendIsProbed, Reason: l.Sentence()}
	}
	return Finding{Code: FrontendConflict, Reason: l.Sentence()}
}

// Frontends returns those frontends of a Service's port that it owns, and those that another Service owns. The Service
// must be the one that the cluster has under its name.
func (c *Cluster) Frontends(service *Service, port ServicePort, family Family) (owned []PortFrontend, lost []LostFrontend) {
	for _, frontend := range service.Frontends(port, family) {
		if reason := c.isReserved(frontend); reason != "" {
			lost = append(lost, LostFrontend{PortFrontend: frontend, Reserved: reason})
			continue
		}
		first := c.claims.byFrontend[frontend.Frontend][0]
		if nodePort, overruled := c.overriddenBy(frontend, service.Name); overruled {
			first = nodePort
		}
		if first.service.Name != service.Name {
			lost = append(lost, LostFrontend{
				PortFrontend: frontend, Owner: first.service.Name, OwnerKind: first.kind, OwnerIsOlder: first.service.Created.Before(service.Created),
			})
			continue
		}
		owned = append(owned, frontend)
	}
	return owned, lost
}

// Owner returns the Service that owns a frontend, if one does.
func (c *Cluster) Owner(frontend Frontend) (service ObjectName, isOwned bool) {
	claimants := c.claims.byFrontend[frontend]
	if len(claimants) == 0 {
		return ObjectName{}, false
	}
	first := claimants[0]
	owned := PortFrontend{Frontend: frontend, Kind: first.kind}
	if _, overruled := c.overriddenBy(owned, first.service.Name); overruled || c.isReserved(owned) != "" {
		return ObjectName{}, false
	}
	return first.service.Name, true
}

// Owns reports whether a Service owns a frontend.
func (c *Cluster) Owns(service ObjectName, frontend Frontend) bool {
	owner, isOwned := c.Owner(frontend)
	return isOwned && owner == service
}

// isReserved returns why no Service may own a frontend that the Service's owner or a load balancer chose; empty if one
// may. The API server's own ClusterIP is not among them: it is what pods dial.
func (c *Cluster) isReserved(frontend PortFrontend) LossReason {
	switch {
	case frontend.Kind != ExternalIP && frontend.Kind != LoadBalancerIP:
	case c.apiServers[frontend.Frontend]:
		return apiServersAddress
	case c.probed.has(frontend.Frontend):
		return probedAddress
	}
	return ""
}

// applyAPIServers marks the Services that want a new or former address of the API server.
func (c *Cluster) applyAPIServers(addrs []netip.AddrPort, dirty map[ObjectName]bool) {
	now := make(map[Frontend]bool, len(addrs))
	for _, addr := range addrs {
		now[Frontend{Addr: addr.Addr(), Protocol: TCP, Port: addr.Port()}] = true
	}
	eachDifferent(c.apiServers, now, func(frontend Frontend) { c.markClaimants(frontend, dirty) })
	c.apiServers = now
}

// applyProbed marks the Services that want a frontend where nodes are probed now or were before.
func (c *Cluster) applyProbed(now *Probed, dirty map[ObjectName]bool) {
	before := cmp.Or(c.probed, &Probed{})
	eachDifferent(before.Addrs, now.Addrs, func(addr netip.Addr) {
		for _, port := range now.Ports {
			c.markClaimants(Frontend{Addr: addr, Protocol: TCP, Port: port}, dirty)
		}
	})
	c.probed = now
}

func (c *Cluster) markClaimants(frontend Frontend, dirty map[ObjectName]bool) {
	for _, claimant := range c.claims.byFrontend[frontend] {
		dirty[claimant.service.Name] = true
	}
}

// eachDifferent calls a function with what one set has and the other one has not.
func eachDifferent[T comparable](before, now map[T]bool, call func(T)) {
	for one := range now {
		if !before[one] {
			call(one)
		}
	}
	for one := range before {
		if !now[one] {
			call(one)
		}
	}
}

// overriddenBy returns the node port of another Service that is served on a Service's external IP: on an address of this
// node, with the same protocol and number. The tables look for a frontend with an address first, so the external IP
// would take the node port's clients.
func (c *Cluster) overriddenBy(frontend PortFrontend, service ObjectName) (nodePort claim, overruled bool) {
	if frontend.Kind != ExternalIP || !c.ServesNodePorts(frontend.Addr) {
		return claim{}, false
	}
	claimants := c.claims.byFrontend[frontend.nodePort()]
	if len(claimants) == 0 || claimants[0].service.Name == service {
		return claim{}, false
	}
	return claimants[0], true
}

// nodePort returns the node port with a frontend's protocol and number.
func (f Frontend) nodePort() Frontend {
	f.Addr = AnyAddr(FamilyOf(f.Addr))
	return f
}

// ServesNodePorts reports whether the tables serve node ports on an address: one of this node, and none of loopback.
func (c *Cluster) ServesNodePorts(addr netip.Addr) bool {
	return c.local[addr] && !addr.IsLoopback() && (c.NodePorts.All(FamilyOf(addr)) || c.NodePorts.includes(addr, c.Self()))
}

// markOverridden marks the Services whose external IPs a Service's node ports overrule or did overrule.
func (c *Cluster) markOverridden(service *Service, dirty map[ObjectName]bool) {
	for _, port := range service.Ports {
		if port.NodePort == 0 {
			continue
		}
		for addr := range c.local {
			for _, claimant := range c.claims.byFrontend[Frontend{Addr: addr, Protocol: port.Protocol, Port: port.NodePort}] {
				if claimant.kind == ExternalIP {
					dirty[claimant.service.Name] = true
				}
			}
		}
	}
}

// applyLocalAddrs marks the Services with an external IP that this node has now or had before.
func (c *Cluster) applyLocalAddrs(addrs []netip.Addr, dirty map[ObjectName]bool) {
	before := c.local
	c.localAddrs, c.local = addrs, make(map[netip.Addr]bool, len(addrs))
	for _, addr := range addrs {
		c.local[addr] = true
	}
	eachDifferent(before, c.local, func(addr netip.Addr) { maps.Copy(dirty, c.claims.external[addr]) })
}
