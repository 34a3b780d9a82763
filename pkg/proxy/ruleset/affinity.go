package ruleset

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Session affinity of a Service port. Its frontends share what is remembered of a client, as far as the same endpoints
// serve them: there is a view of all nodes, and one of what a Local policy allows. Each view that a frontend uses has
// its maps and its two chains. A frontend whose view depends on the client has two more chains, which choose.
const (
	stickyPrefix = "sticky-"
	learnPrefix  = "learn-"
	// What follows the port's name in the name of a chain or map of the local view, and of a chain that chooses the view.
	localSuffix  = "/local"
	choiceSuffix = "/external"
)

// AffinityMap is a map of clients, and what it may lead to.
type AffinityMap struct {
	Family    model.Family
	Set       Set
	Port      uint16       // of all its endpoints
	Endpoints []netip.Addr // sorted, each once however many slots it owns
}

// leadsTo reports whether the map may lead to an endpoint.
func (m *AffinityMap) leadsTo(endpoint netip.Addr) bool {
	_, found := slices.BinarySearchFunc(m.Endpoints, endpoint, netip.Addr.Compare)
	return found
}

// affinityView is what a Service port remembers for some of its frontends.
type affinityView struct {
	suffix string
	maps   []AffinityMap
}

// affinityViews returns the views that the port's frontends use, if it remembers its clients: only views with
// endpoints.
func (p *Port) affinityViews() []affinityView {
	if p.Affinity == 0 {
		return nil
	}
	var usesCluster, usesLocal bool
	for i := range p.Frontends {
		frontend := &p.Frontends[i]
		usesLocal = usesLocal || frontend.Local
		usesCluster = usesCluster || !frontend.Local || frontend.External
	}
	var views []affinityView
	if usesCluster && len(p.Cluster) > 0 {
		views = append(views, affinityView{maps: p.affinityMaps("", p.Cluster)})
	}
	if usesLocal && len(p.Local) > 0 {
		views = append(views, affinityView{suffix: localSuffix, maps: p.affinityMaps(localSuffix, p.Local)})
	}
	return views
}

// AffinityMaps returns the maps in which the port remembers its clients, if it does.
func (p *Port) AffinityMaps() []AffinityMap {
	var maps []AffinityMap
	for _, view := range p.affinityViews() {
		maps = append(maps, view.maps...)
	}
	return maps
}

// affinityMaps returns the maps of a view, by the endpoints' port.
func (p *Port) affinityMaps(suffix string, slots []netip.AddrPort) []AffinityMap {
	endpoints := slices.SortedFunc(slices.Values(slots), func(a, b netip.AddrPort) int {
		return cmp.Or(cmp.Compare(a.Port(), b.Port()), a.Addr().Compare(b.Addr()))
	})
	var maps []AffinityMap
	for _, endpoint := range slices.Compact(endpoints) {
		if last := len(maps) - 1; last < 0 || maps[last].Port != endpoint.Port() {
			name := p.objectName("affinity-") + "/" + strconv.Itoa(int(endpoint.Port())) + suffix
			maps = append(maps, AffinityMap{Family: p.ID.Family, Set: Affinity(name), Port: endpoint.Port()})
		}
		last := &maps[len(maps)-1]
		last.Endpoints = append(last.Endpoints, endpoint.Addr())
	}
	return maps
}

// affinityVerdict leads a frontend to its chain; false if it has none, because clients are not remembered or no
// endpoint serves them.
func (p *Port) affinityVerdict(frontend *Frontend, kind VerdictKind, prefix string) (Verdict, bool) {
	if p.Affinity == 0 || !frontend.Class.isBalanced() || len(p.Cluster)+len(p.Local) == 0 {
		return Verdict{}, false
	}
	name := p.objectName(prefix)
	switch {
	case frontend.Class.isSplit():
		name += choiceSuffix
	case frontend.Local:
		name += localSuffix
	}
	return Verdict{Kind: kind, Chain: name}, true
}

// affinityChains returns the chains that look clients up and that remember them.
func (p *Port) affinityChains(config Config) []Chain {
	views := p.affinityViews()
	if len(views) == 0 {
		return nil
	}
	var chains []Chain
	for _, view := range views {
		chains = append(chains, p.stickyChain(view), p.learnChain(view))
	}
	if slices.ContainsFunc(p.Frontends, func(frontend Frontend) bool { return frontend.Class.isSplit() }) {
		outside := config.outside(p.ID.Family)
		chains = append(chains, p.choiceChain(stickyPrefix, views, outside), p.choiceChain(learnPrefix, views, outside))
	}
	return chains
}

// stickyChain sends a client to the endpoint it is remembered with. It returns if there is none.
func (p *Port) stickyChain(view affinityView) Chain {
	chain := Chain{Name: p.objectName(stickyPrefix) + view.suffix, Hook: NoHook}
	for _, affinity := range view.maps {
		chain.Rules = append(chain.Rules, Rule{
			ProtocolIs{p.ID.Protocol},
			DNAT{Key: []Field{SourceAddr}, Map: affinity.Set, Port: affinity.Port},
		})
	}
	return chain
}

// learnChain remembers the endpoint that a client got. It runs after the DNAT, and reads what conntrack says of it:
// the packet's own source may be rewritten by then. It cannot be the sticky chain, for the kernel allows DNAT only in
// chains that nothing but prerouting and output can reach.
//
// The timeout stands in the rule and not in the map, because kernels differ in whether a map's timeout can be changed.
func (p *Port) learnChain(view affinityView) Chain {
	chain := Chain{Name: p.objectName(learnPrefix) + view.suffix, Hook: NoHook}
	for _, affinity := range view.maps {
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

// choiceChain leads clients from outside to the local view and all others to the view of all nodes. A view without
// endpoints has no chain.
func (p *Port) choiceChain(prefix string, views []affinityView, outside Rule) Chain {
	verdict := func(suffix string) Do {
		if !slices.ContainsFunc(views, func(view affinityView) bool { return view.suffix == suffix }) {
			return Do{Verdict{Kind: Return}}
		}
		return Do{Verdict{Kind: Goto, Chain: p.objectName(prefix) + suffix}}
	}
	return Chain{Name: p.objectName(prefix) + choiceSuffix, Hook: NoHook, Rules: []Rule{
		append(slices.Clone(outside), verdict(localSuffix)),
		{verdict("")},
	}}
}
