package ruleset

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Port is what one Service port owns in its family's table.
type Port struct {
	ID        model.PortID
	ClusterIP netip.Addr
	// Frontends are the addresses that lead to the port. Empty if other Services own them all.
	Frontends []model.Frontend
	Class     Class
	// Slots are the endpoints by slot. Their order is the mirror's business: see Reslot.
	Slots []netip.AddrPort
	// Local are the endpoints on this node, which may dial themselves.
	Local []netip.AddrPort
	// Affinity is how long a client is remembered after its newest connection; zero if it is not.
	Affinity time.Duration
}

// NewPort returns what a decision means for the tables of the node it was made for.
func NewPort(decision selection.Decision, node string) Port {
	clusterIP, _ := decision.Service.ClusterIP(decision.Family)
	port := Port{
		ID:        decision.Service.PortID(decision.Port, decision.Family),
		ClusterIP: clusterIP,
		Frontends: decision.Owned,
	}
	choice, outcome := decision.Selection.ClusterIP()
	switch outcome {
	case selection.Refuse:
		port.Class = RefuseClass
	case selection.Drop:
		port.Class = DropClass
	case selection.Balance:
		port.Class = BalanceClass(len(choice.Endpoints))
		port.Affinity = decision.Service.AffinityTimeout
		port.balance(choice.Endpoints, node)
	}
	return port
}

func (p *Port) balance(endpoints []model.PortEndpoint, node string) {
	p.Slots = make([]netip.AddrPort, len(endpoints))
	for i := range endpoints {
		p.Slots[i] = endpoints[i].Addr
		if endpoints[i].Node == node {
			p.Local = append(p.Local, endpoints[i].Addr)
		}
	}
}

// isShared reports whether several owners may want the same element of a set. It is there while anybody wants it.
func isShared(set Set) bool {
	return set.Name == Dispatch.Name || set.Name == ClusterIPs.Name || set.Name == Hairpin.Name
}

// each yields the elements that the port owns in one of the static sets, until yield returns false, which it passes on. It is
// a function and not a sequence because a first sync walks hundreds of thousands of elements through it, and each level of
// sequences copies each of them.
func (p *Port) each(set Set, yield func(Element) bool) bool {
	switch set.Name {
	case Services.Name:
		return p.eachFrontend(Element{Value: Tuple{Number: uint32(p.Class)}}, yield)
	case Endpoints.Name:
		return p.eachSlot(yield)
	case Dispatch.Name:
		return len(p.Frontends) == 0 || yield(Element{Key: Tuple{Number: uint32(p.Class)}, Verdict: dispatchOf(p.Class)})
	case Sticky.Name:
		return !p.IsSticky() || p.eachFrontend(Element{Verdict: Verdict{Kind: Jump, Chain: p.stickyChainName()}}, yield)
	case Learn.Name:
		return !p.IsSticky() || p.eachFrontend(Element{Verdict: Verdict{Kind: Jump, Chain: p.learnChainName()}}, yield)
	case ClusterIPs.Name:
		return yield(Element{Key: Tuple{Addr: p.ClusterIP}})
	case Hairpin.Name:
		return p.eachHairpin(yield)
	}
	return true
}

// eachFrontend yields the template once for each frontend.
func (p *Port) eachFrontend(template Element, yield func(Element) bool) bool {
	for _, frontend := range p.Frontends {
		template.Key = frontendTuple(frontend)
		if !yield(template) {
			return false
		}
	}
	return true
}

func (p *Port) eachSlot(yield func(Element) bool) bool {
	for _, frontend := range p.Frontends {
		element := Element{Key: frontendTuple(frontend)}
		for slot, endpoint := range p.Slots {
			element.Key.Number = SlotNumber(slot)
			element.Value = endpointTuple(endpoint)
			if !yield(element) {
				return false
			}
		}
	}
	return true
}

func (p *Port) eachHairpin(yield func(Element) bool) bool {
	for _, endpoint := range p.Local {
		element := Element{Key: Tuple{Addr: endpoint.Addr(), Source: endpoint.Addr(), Proto: p.ID.Protocol, Port: endpoint.Port()}}
		if !yield(element) {
			return false
		}
	}
	return true
}

func frontendTuple(frontend model.Frontend) Tuple {
	return Tuple{Addr: frontend.Addr, Proto: frontend.Protocol, Port: frontend.Port}
}

func endpointTuple(endpoint netip.AddrPort) Tuple {
	return Tuple{Addr: endpoint.Addr(), Port: endpoint.Port()}
}

// IsSticky reports whether the port remembers its clients.
func (p *Port) IsSticky() bool { return p.Affinity > 0 && len(p.Frontends) > 0 }

// AffinityMaps returns the maps in which the port remembers its clients, if it does, by the endpoints' port.
func (p *Port) AffinityMaps() []AffinityMap {
	if !p.IsSticky() {
		return nil
	}
	var maps []AffinityMap
	for _, endpoint := range p.Slots {
		at := slices.IndexFunc(maps, func(m AffinityMap) bool { return m.Port == endpoint.Port() })
		if at < 0 {
			at = len(maps)
			name := p.objectName("affinity-") + "/" + strconv.Itoa(int(endpoint.Port()))
			maps = append(maps, AffinityMap{Family: p.ID.Family, Set: Affinity(name), Port: endpoint.Port()})
		}
		maps[at].Endpoints = append(maps[at].Endpoints, endpoint.Addr())
	}
	slices.SortFunc(maps, func(a, b AffinityMap) int { return cmp.Compare(a.Port, b.Port) })
	return maps
}

// AffinityMap is a map of clients, and what it may lead to.
type AffinityMap struct {
	Family    model.Family
	Set       Set
	Port      uint16 // of all its endpoints
	Endpoints []netip.Addr
}

// Chains returns the chains that the port needs. Ports with the same number of slots share their chain.
func (p *Port) Chains() []Chain {
	var chains []Chain
	if slots := p.Class.Slots(); slots > 0 && len(p.Frontends) > 0 {
		chains = append(chains, drawChain(slots))
	}
	if p.IsSticky() {
		chains = append(chains, p.stickyChain(), p.learnChain())
	}
	return chains
}

// stickyChain sends a client to the endpoint it is remembered with. It returns if there is none.
func (p *Port) stickyChain() Chain {
	chain := Chain{Name: p.stickyChainName(), Hook: NoHook}
	for _, affinity := range p.AffinityMaps() {
		chain.Rules = append(chain.Rules, Rule{
			ProtocolIs{p.ID.Protocol},
			DNAT{Key: []Field{SourceAddr}, Map: affinity.Set, Port: affinity.Port},
		})
	}
	return chain
}

// learnChain remembers the endpoint that a client got. It runs after the DNAT, and reads what conntrack says of it: the
// packet's own source may be rewritten by then. It cannot be the sticky chain, for the kernel allows DNAT only in chains
// that nothing but prerouting and output can reach.
//
// The timeout stands in the rule and not in the map, because kernels differ in whether a map's timeout can be changed.
func (p *Port) learnChain() Chain {
	chain := Chain{Name: p.learnChainName(), Hook: NoHook}
	for _, affinity := range p.AffinityMaps() {
		chain.Rules = append(chain.Rules, Rule{
			ProtocolIs{p.ID.Protocol},
			ReplyPortIs{affinity.Port},
			Update{
				Map:     affinity.Set,
				Key:     []Field{OriginalSourceAddr},
				Value:   []Field{ReplySourceAddr},
				Timeout: p.Affinity,
			},
		})
	}
	return chain
}

func (p *Port) stickyChainName() string { return p.objectName("sticky-") }

func (p *Port) learnChainName() string { return p.objectName("learn-") }

// objectName is the name of a kernel object of this port alone: prefix, namespace/name/protocol/port name. Package source
// lets no name through that is not a DNS label, so it stays below the kernel's 255 bytes and inside nft's alphabet.
func (p *Port) objectName(prefix string) string {
	return prefix + p.ID.Service.String() + "/" + strings.ToLower(p.ID.Protocol.String()) + "/" + p.ID.Port
}
