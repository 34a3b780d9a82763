package ruleset

import (
	"net/netip"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// isShared reports whether several owners may have the same element of a set.
func isShared(set Set) bool { return set.static.shared }

// each yields the elements that the port owns in one of the static sets, and reports whether yield accepted all of
// them. It is a function and not a sequence because a first sync passes hundreds of thousands of elements through it,
// and each level of sequences copies each of them.
func (p *Port) each(set Set, yield func(Element) bool) bool {
	return set.static.ports == nil || set.static.ports(p, yield)
}

// portElements yields the elements that a port owns in a set, as Port.each does.
type portElements func(p *Port, yield func(Element) bool) bool

// frontendElements yields the elements that a port owns in a set for one of its frontends.
type frontendElements func(p *Port, frontend *Frontend, yield func(Element) bool) bool

// frontendSet returns the elements of a set for all frontends but node ports.
func frontendSet(each frontendElements) portElements {
	return func(p *Port, yield func(Element) bool) bool { return p.eachOf(false, each, yield) }
}

// nodePortSet returns the elements of a set for node ports.
func nodePortSet(each frontendElements) portElements {
	return func(p *Port, yield func(Element) bool) bool { return p.eachOf(true, each, yield) }
}

// stickySet returns the elements of a set for ports with session affinity.
func stickySet(each portElements) portElements {
	return func(p *Port, yield func(Element) bool) bool { return p.affinity == nil || each(p, yield) }
}

func (p *Port) eachOf(nodePorts bool, each frontendElements, yield func(Element) bool) bool {
	for i := range p.Frontends {
		if frontend := &p.Frontends[i]; frontend.IsNodePort() == nodePorts && !each(p, frontend, yield) {
			return false
		}
	}
	return true
}

func (p *Port) eachClass(frontend *Frontend, yield func(Element) bool) bool {
	return yield(Element{
		Key: frontendTuple(frontend.Frontend), Value: Tuple{Number: uint32(p.classNumber(frontend))}, Comment: commentOf(p.ID),
	})
}

func (p *Port) eachDispatch(yield func(Element) bool) bool {
	for i := range p.Frontends {
		frontend := &p.Frontends[i]
		element := p.newClientElement(frontend)
		if p.hasAffinity(frontend) {
			element.Key.Number = uint32(p.classNumber(frontend))
			element.Verdict = Verdict{Kind: Jump, Chain: p.affinity.chainName(frontend.IsNodePort())}
		}
		if !yield(element) {
			return false
		}
	}
	return true
}

// newClientElement returns the element for clients for which no endpoint is stored.
func (p *Port) newClientElement(frontend *Frontend) Element {
	element := Element{Key: Tuple{Number: uint32(p.newClientClass(frontend))}, Verdict: dispatchOf(frontend.Class)}
	if kind, balanced := p.kindOf(frontend); balanced && p.needsDedicatedMap() {
		element.Verdict = Verdict{Kind: Jump, Chain: p.dedicatedChainName(kind)}
	}
	return element
}

func (p *Port) eachSlot(frontend *Frontend, yield func(Element) bool) bool {
	key := frontendTuple(frontend.Frontend)
	return !frontend.Class.isBalanced() || p.needsDedicatedMap() || p.affinity != nil ||
		eachSlotOf(key, ClusterSlot, p.insideEndpoints(frontend), yield) && eachSlotOf(key, LocalSlot, p.outsideEndpoints(frontend), yield)
}

func eachSlotOf(key Tuple, first uint32, endpoints []netip.AddrPort, yield func(Element) bool) bool {
	element := Element{Key: key}
	for slot, endpoint := range endpoints {
		element.Key.Number = first + uint32(slot)
		element.Value = Tuple{Addr: endpoint.Addr(), Port: endpoint.Port()}
		if !yield(element) {
			return false
		}
	}
	return true
}

func (p *Port) eachExternalCluster(frontend *Frontend, yield func(Element) bool) bool {
	return !frontend.External || frontend.Local || yield(Element{Key: frontendTuple(frontend.Frontend)})
}

func (p *Port) eachExternalLocal(frontend *Frontend, yield func(Element) bool) bool {
	return !frontend.External || !frontend.Local || yield(Element{Key: frontendTuple(frontend.Frontend)})
}

func (p *Port) eachRestricted(frontend *Frontend, yield func(Element) bool) bool {
	return !frontend.Restricted ||
		yield(Element{Key: frontendTuple(frontend.Frontend), Value: Tuple{Number: uint32(p.list)}})
}

func (p *Port) eachSource(yield func(Element) bool) bool {
	if p.isRestricted() {
		for element := range (listKey{p.ID.Family, p.list}).elements(p.Sources) {
			if !yield(element) {
				return false
			}
		}
	}
	return true
}

func (p *Port) eachClusterIP(yield func(Element) bool) bool {
	return yield(Element{Key: Tuple{Addr: p.ClusterIP}})
}

func (p *Port) eachHairpin(yield func(Element) bool) bool {
	for _, endpoint := range p.OnNode {
		element := Element{Key: Tuple{Addr: endpoint.Addr(), Source: endpoint.Addr(), Proto: p.ID.Protocol, Port: endpoint.Port()}}
		if !yield(element) {
			return false
		}
	}
	return true
}

// frontendTuple returns the key of a frontend. That of a node port has no address: its maps have no such field.
func frontendTuple(frontend model.Frontend) Tuple {
	tuple := Tuple{Proto: frontend.Protocol, Port: frontend.Port}
	if !frontend.IsNodePort() {
		tuple.Addr = frontend.Addr
	}
	return tuple
}

// FrontendOf returns the frontend that is the key of an element of the maps services or nodeports, or of DemandSet or
// DemandNodePortSet.
func FrontendOf(family model.Family, element Element) model.Frontend {
	frontend := model.Frontend{Addr: element.Key.Addr, Protocol: element.Key.Proto, Port: element.Key.Port}
	if !frontend.Addr.IsValid() {
		frontend.Addr = model.AnyAddr(family)
	}
	return frontend
}
