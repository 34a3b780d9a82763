package model

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// claims records which Services claim which frontend. If several Services claim one, the first of them owns it until it
// releases it. Claims are ordered by the kind of the frontend (see rank), then by age (the oldest Service first), then
// by name.
type claims struct {
	byFrontend map[Frontend][]claim
	// external has the Services with each external IP. A node port of another Service that is served on that address takes
	// precedence (see Cluster.overriddenBy).
	external map[netip.Addr]map[ObjectName]bool
	// contested is the number of frontends that several Services claim.
	contested int
}

// claim is a Service's claim to a frontend, with the kind of frontend that it is for the Service.
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

// add records a Service's claims to all its frontends and marks every Service that loses one as dirty.
func (c *claims) add(service *Service, dirty map[ObjectName]bool) {
	for _, addr := range service.ExternalIPs {
		if c.external[addr] == nil {
			c.external[addr] = map[ObjectName]bool{}
		}
		c.external[addr][service.Name] = true
	}
	for _, frontend := range allFrontends(service) {
		claimants, newClaim := c.byFrontend[frontend.Frontend], claim{service, frontend.Kind}
		index, _ := slices.BinarySearchFunc(claimants, newClaim, claim.compare)
		if index == 0 && len(claimants) > 0 {
			dirty[claimants[0].service.Name] = true
		}
		c.byFrontend[frontend.Frontend] = slices.Insert(claimants, index, newClaim)
		if len(claimants) == 1 {
			c.contested++
		}
	}
}

// release removes a Service's claims and marks every Service that gains a frontend as dirty.
func (c *claims) release(service *Service, dirty map[ObjectName]bool) {
	for _, addr := range service.ExternalIPs {
		if delete(c.external[addr], service.Name); len(c.external[addr]) == 0 {
			delete(c.external, addr)
		}
	}
	for _, frontend := range allFrontends(service) {
		claimants := c.byFrontend[frontend.Frontend]
		index := slices.Index(claimants, claim{service, frontend.Kind})
		claimants = slices.Delete(claimants, index, index+1)
		if len(claimants) == 0 {
			delete(c.byFrontend, frontend.Frontend)
			continue
		}
		c.byFrontend[frontend.Frontend] = claimants
		if len(claimants) == 1 {
			c.contested--
		}
		if index == 0 {
			dirty[claimants[0].service.Name] = true
		}
	}
}

// allFrontends returns the distinct frontends of all ports.
func allFrontends(service *Service) []PortFrontend {
	var frontends []PortFrontend
	for _, port := range service.Ports {
		for _, family := range Families {
			frontends = append(frontends, service.Frontends(port, family)...)
		}
	}
	return frontends
}

// Contested returns the number of frontends that several Services claim.
func (c *Cluster) Contested() int { return c.claims.contested }

// LostFrontend is a frontend that a Service claims but does not own.
type LostFrontend struct {
	PortFrontend
	Owner        ObjectName
	OwnerKind    FrontendKind // the kind of frontend that it is for the owner
	OwnerIsOlder bool         // than the Service that lost it
	// Reserved is the reason why no Service may own it. It is empty if another Service owns it.
	Reserved LossReason
}

// LossReason is a stable code for why a Service does not own a frontend. The rules apply in the order of claim.compare.
type LossReason string

// The loss reasons.
const (
	// This process reaches the API server there. If the address were translated, a restarted proxy could never learn that
	// the Service was deleted.
	apiServersAddress LossReason = "APIServersAddress"
	// Proxies probe nodes there. If the address were translated, something other than the node would reply.
	probedAddress        LossReason = "ProbedAddress"
	ownersClusterIP      LossReason = "OwnersClusterIP"
	ownersLoadBalancerIP LossReason = "OwnersLoadBalancerIP"
	ownersNodePort       LossReason = "OwnersNodePort"
	ownerIsOlder         LossReason = "OwnerIsOlder"
	ownersNameIsFirst    LossReason = "OwnersNameIsFirst"
)

// Reason returns why the Service does not own the frontend.
func (l LostFrontend) Reason() LossReason {
	switch {
	case l.Reserved != "":
		return l.Reserved
	case l.Kind != ClusterIP && l.OwnerKind == ClusterIP:
		return ownersClusterIP
	case l.Kind == ExternalIP && l.OwnerKind == LoadBalancerIP:
		return ownersLoadBalancerIP
	case l.Kind == ExternalIP && l.OwnerKind == NodePort:
		return ownersNodePort
	case l.OwnerIsOlder:
		return ownerIsOlder
	}
	return ownersNameIsFirst
}

// Sentence returns a sentence that names the frontend's owner and the reason.
func (l LostFrontend) Sentence() string {
	const untilReleased = "until that Service releases it."
	switch l.Reason() {
	case apiServersAddress:
		return fmt.Sprintf("%s is not served because the proxy reaches the API server there", l.Frontend)
	case probedAddress:
		return fmt.Sprintf("%s is not served because proxies probe nodes there", l.Frontend)
	case ownersClusterIP:
		return fmt.Sprintf("%s belongs to the Service %s, whose ClusterIP it is, %s", l.Frontend, l.Owner, untilReleased)
	case ownersLoadBalancerIP:
		return fmt.Sprintf("%s belongs to the Service %s, whose load balancer has it, %s", l.Frontend, l.Owner, untilReleased)
	case ownersNodePort:
		return fmt.Sprintf("%s belongs to the Service %s, whose node port is served there, %s", l.Frontend, l.Owner, untilReleased)
	case ownerIsOlder:
		return fmt.Sprintf("%s belongs to the older Service %s, %s", l.Frontend, l.Owner, untilReleased)
	default:
		return fmt.Sprintf("%s belongs to the Service %s, which has the same age and comes first by name, %s", l.Frontend, l.Owner, untilReleased)
	}
}

// Finding returns the finding that the Service does not own the frontend.
func (l LostFrontend) Finding() Finding {
	if l.Reserved == apiServersAddress {
		return Finding{Code: FrontendIsAPIServer, Reason: l.Sentence(), Local: true}
	}
	if l.Reserved == probedAddress {
		return Finding{Code: FrontendIsProbed, Reason: l.Sentence()}
	}
	return Finding{Code: FrontendConflict, Reason: l.Sentence()}
}

// Frontends returns the frontends of a Service's port that the Service owns, and those that it lost. The Service must
// be the cluster's current object of that name.
func (c *Cluster) Frontends(service *Service, port ServicePort, family Family) (owned []PortFrontend, lost []LostFrontend) {
	for _, frontend := range service.Frontends(port, family) {
		if reason := c.reservedReason(frontend); reason != "" {
			lost = append(lost, LostFrontend{PortFrontend: frontend, Reserved: reason})
			continue
		}
		first := c.claims.byFrontend[frontend.Frontend][0]
		if nodePort, overridden := c.overriddenBy(frontend, service.Name); overridden {
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

// Owner returns the Service that owns a frontend. isOwned is false if no Service owns it.
func (c *Cluster) Owner(frontend Frontend) (service ObjectName, isOwned bool) {
	claimants := c.claims.byFrontend[frontend]
	if len(claimants) == 0 {
		return ObjectName{}, false
	}
	first := claimants[0]
	owned := PortFrontend{Frontend: frontend, Kind: first.kind}
	if _, overridden := c.overriddenBy(owned, first.service.Name); overridden || c.reservedReason(owned) != "" {
		return ObjectName{}, false
	}
	return first.service.Name, true
}

// Owns reports whether a Service owns a frontend.
func (c *Cluster) Owns(service ObjectName, frontend Frontend) bool {
	owner, isOwned := c.Owner(frontend)
	return isOwned && owner == service
}

// reservedReason returns why no Service may own a frontend that was set in the Service or by a load balancer; it is
// empty if one may. The API server's own ClusterIP is not reserved, because pods dial it.
func (c *Cluster) reservedReason(frontend PortFrontend) LossReason {
	switch {
	case frontend.Kind != ExternalIP && frontend.Kind != LoadBalancerIP:
	case c.apiServers[frontend.Frontend]:
		return apiServersAddress
	case c.probeTargets.has(frontend.Frontend):
		return probedAddress
	}
	return ""
}

// applyAPIServers marks the Services that claim a new or former address of the API server.
func (c *Cluster) applyAPIServers(addrs []netip.AddrPort, dirty map[ObjectName]bool) {
	current := make(map[Frontend]bool, len(addrs))
	for _, addr := range addrs {
		current[Frontend{Addr: addr.Addr(), Protocol: TCP, Port: addr.Port()}] = true
	}
	eachDifferent(c.apiServers, current, func(frontend Frontend) { c.markClaimants(frontend, dirty) })
	c.apiServers = current
}

// applyProbeTargets marks the Services that claim a frontend that is or was a probed address.
func (c *Cluster) applyProbeTargets(targets *ProbeTargets, dirty map[ObjectName]bool) {
	old := cmp.Or(c.probeTargets, &ProbeTargets{})
	eachDifferent(old.Addrs, targets.Addrs, func(addr netip.Addr) {
		for _, port := range targets.Ports {
			c.markClaimants(Frontend{Addr: addr, Protocol: TCP, Port: port}, dirty)
		}
	})
	c.probeTargets = targets
}

func (c *Cluster) markClaimants(frontend Frontend, dirty map[ObjectName]bool) {
	for _, claimant := range c.claims.byFrontend[frontend] {
		dirty[claimant.service.Name] = true
	}
}

// eachDifferent calls a function with each element that is in only one of the two sets.
func eachDifferent[T comparable](old, current map[T]bool, call func(T)) {
	for element := range current {
		if !old[element] {
			call(element)
		}
	}
	for element := range old {
		if !current[element] {
			call(element)
		}
	}
}

// overriddenBy returns the node port of another Service that overrides an external IP: the IP is an address of this
// node, and protocol and port number are the same. The tables match frontends with an address first, so without this
// rule the external IP would capture the node port's clients.
func (c *Cluster) overriddenBy(frontend PortFrontend, service ObjectName) (nodePort claim, overridden bool) {
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

// ServesNodePorts reports whether the tables serve node ports on an address: a local address other than loopback.
func (c *Cluster) ServesNodePorts(addr netip.Addr) bool {
	return c.localSet[addr] && !addr.IsLoopback() && (c.NodePorts.All(FamilyOf(addr)) || c.NodePorts.includes(addr, c.Self()))
}

// markOverridden marks the Services with an external IP that a node port of the given Service overrides or overrode.
func (c *Cluster) markOverridden(service *Service, dirty map[ObjectName]bool) {
	for _, port := range service.Ports {
		if port.NodePort == 0 {
			continue
		}
		for addr := range c.localSet {
			for _, claimant := range c.claims.byFrontend[Frontend{Addr: addr, Protocol: port.Protocol, Port: port.NodePort}] {
				if claimant.kind == ExternalIP {
					dirty[claimant.service.Name] = true
				}
			}
		}
	}
}

// applyLocalAddrs marks the Services with an external IP that is or was an address of this node.
func (c *Cluster) applyLocalAddrs(addrs []netip.Addr, dirty map[ObjectName]bool) {
	old := c.localSet
	c.localAddrs, c.localSet = addrs, make(map[netip.Addr]bool, len(addrs))
	for _, addr := range addrs {
		c.localSet[addr] = true
	}
	eachDifferent(old, c.localSet, func(addr netip.Addr) { maps.Copy(dirty, c.claims.external[addr]) })
}
