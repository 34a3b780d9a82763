package ruleset

import (
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// isShared reports whether several owners may want the same element of a set. It is there while anybody wants it.
func isShared(set Set) bool {
	return set.Name == Dispatch.Name || set.Name == ClusterIPs.Name || set.Name == Hairpin.Name
}

// each yields the elements that the port owns in one of the static sets, until yield returns false, which it passes on. It is
// a function and not a sequence because a first sync walks hundreds of thousands of elements through it, and each level of
// sequences copies each of them.
func (p *Port) each(set Set, yield func(Element) bool) bool {
	switch set.Name {
	case Endpoints.Name, NodePortEndpoints.Name:
		return p.eachSlot(isForNodePorts(set), yield)
	case StickyEndpoints.Name, NodePortStickyEndpoints.Name:
		return p.eachStickyEndpoint(isForNodePorts(set), yield)
	case AllowedSources.Name:
		return p.eachSource(yield)
	case Dispatch.Name:
		return p.eachClass(yield)
	case ClusterIPs.Name:
		return yield(Element{Key: Tuple{Addr: p.ClusterIP}})
	case Hairpin.Name:
		return p.eachHairpin(yield)
	}
	for i := range p.Frontends {
		frontend := &p.Frontends[i]
		if frontend.IsNodePort() != isForNodePorts(set) {
			continue
		}
		if element, wanted := p.ofFrontend(frontend, set); wanted && !yield(element) {
			return false
		}
	}
	return true
}

// isForNodePorts reports whether a set is the one that holds node ports, of the two that hold frontends for one purpose.
func isForNodePorts(set Set) bool { return set.Key[0] == TypeProto }

// ofFrontend returns a frontend's element of a set that has at most one for each frontend.
func (p *Port) ofFrontend(frontend *Frontend, set Set) (element Element, wanted bool) {
	element.Key = frontendTuple(frontend.Frontend)
	switch set.Name {
	case Services.Name, NodePorts.Name:
		element.Value.Number = uint32(frontend.Class)
		return element, true
	case Sticky.Name, NodePortSticky.Name:
		element.Verdict, wanted = p.affinityVerdict(frontend, Jump, stickyPrefix)
	case Learn.Name, NodePortLearn.Name:
		element.Verdict, wanted = p.affinityVerdict(frontend, Goto, learnPrefix)
	case ExternalCluster.Name, NodePortCluster.Name:
		wanted = frontend.External && !frontend.Local
	case ExternalLocal.Name, NodePortLocal.Name:
		wanted = frontend.External && frontend.Local
	case Restricted.Name:
		wanted = len(frontend.Sources) > 0
	}
	return element, wanted
}

func (p *Port) eachSlot(ofNodePorts bool, yield func(Element) bool) bool {
	for i := range p.Frontends {
		frontend := &p.Frontends[i]
		if frontend.IsNodePort() != ofNodePorts || !frontend.Class.isBalanced() {
			continue
		}
		if !frontend.eachSlot(ClusterSlot, p.inside(frontend), yield) || !frontend.eachSlot(LocalSlot, p.outside(frontend), yield) {
			return false
		}
	}
	return true
}

func (f *Frontend) eachSlot(first uint32, endpoints []netip.AddrPort, yield func(Element) bool) bool {
	element := Element{Key: frontendTuple(f.Frontend)}
	for slot, endpoint := range endpoints {
		element.Key.Number = first + uint32(slot)
		element.Value = Tuple{Addr: endpoint.Addr(), Port: endpoint.Port()}
		if !yield(element) {
			return false
		}
	}
	return true
}

// eachStickyEndpoint yields the addresses that a client of a frontend may be remembered with, each once.
func (p *Port) eachStickyEndpoint(ofNodePorts bool, yield func(Element) bool) bool {
	for i := range p.Frontends {
		frontend := &p.Frontends[i]
		if _, sticky := p.affinityVerdict(frontend, Goto, learnPrefix); !sticky || frontend.IsNodePort() != ofNodePorts {
			continue
		}
		for _, addr := range addrsOf(p.inside(frontend), p.outside(frontend)) {
			element := Element{Key: frontendTuple(frontend.Frontend)}
			if ofNodePorts {
				element.Key.Addr = addr
			} else {
				element.Key.Source = addr
			}
			if !yield(element) {
				return false
			}
		}
	}
	return true
}

// addrsOf returns the addresses of some endpoints, sorted, each once: several may differ in their port alone.
func addrsOf(tables ...[]netip.AddrPort) []netip.Addr {
	var addrs []netip.Addr
	for _, endpoints := range tables {
		for _, endpoint := range endpoints {
			addrs = append(addrs, endpoint.Addr())
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}

func (p *Port) eachSource(yield func(Element) bool) bool {
	for i := range p.Frontends {
		element := Element{Key: frontendTuple(p.Frontends[i].Frontend)}
		for _, source := range p.Frontends[i].Sources {
			element.Key.Source, element.Key.Bits = source.Addr(), uint8(source.Bits())
			if !yield(element) {
				return false
			}
		}
	}
	return true
}

func (p *Port) eachClass(yield func(Element) bool) bool {
	for i := range p.Frontends {
		class := p.Frontends[i].Class
		if !yield(Element{Key: Tuple{Number: uint32(class)}, Verdict: dispatchOf(class)}) {
			return false
		}
	}
	return true
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

// frontendTuple leaves the address of a node port out: its maps have no such field.
func frontendTuple(frontend model.Frontend) Tuple {
	tuple := Tuple{Proto: frontend.Protocol, Port: frontend.Port}
	if !frontend.IsNodePort() {
		tuple.Addr = frontend.Addr
	}
	return tuple
}

// FrontendOf returns the frontend that is the key of an element of the maps services or nodeports.
func FrontendOf(family model.Family, element Element) model.Frontend {
	frontend := model.Frontend{Addr: element.Key.Addr, Protocol: element.Key.Proto, Port: element.Key.Port}
	if !frontend.Addr.IsValid() {
		frontend.Addr = model.AnyAddr(family)
	}
	return frontend
}
