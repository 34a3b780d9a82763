package ruleset

import (
	"net/netip"
	"slices"
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
	Frontends []Frontend
	// Cluster and Local are the endpoints by slot: those of all nodes, and those that a Local policy allows. An endpoint
	// may have several slots. The mirror determines their order: see StableSlots.
	Cluster, Local []netip.AddrPort
	// StickyOnly are endpoints of all nodes that clients with affinity keep, even if they have no slot. Each is listed
	// once.
	StickyOnly []netip.AddrPort
	// OnNode are the endpoints on this node, which may dial themselves: sorted, each listed once, however many slots it
	// has.
	OnNode []netip.AddrPort
	// Sources are the clients that may dial the Restricted frontends. No two of them overlap. Empty means all.
	Sources []netip.Prefix
	// Affinity is how long a client keeps its endpoint after its latest connection; zero means no affinity.
	Affinity time.Duration

	// Set by the mirror, like the order of slots: the number of the list of Sources, the classes of a port with a
	// dedicated map, and the session affinity, which is nil if there is none.
	list      Class
	dedicated [numDedicatedKinds]Class
	affinity  *affinityState
}

// Frontend is an address that leads to a port, and the class of connections to it.
type Frontend struct {
	model.Frontend
	Class Class
	// External is set if externalTrafficPolicy governs the frontend, Local if the policy that governs it is Local.
	External, Local bool
	// Restricted is set if only the port's Sources may dial the frontend.
	Restricted bool
}

// NewPort returns the port of a decision, for the tables of the node for which it was made.
func NewPort(decision selection.Decision) Port {
	service := decision.Service
	clusterIP, _ := service.ClusterIP(decision.Family)
	port := Port{
		ID:         service.PortID(decision.Port, decision.Family),
		ClusterIP:  clusterIP,
		Cluster:    slotsOf(decision.Selection.Cluster, MaxSlots),
		StickyOnly: addrsOf(decision.Selection.Cluster.StickyOnly),
		Sources:    decision.Sources,
		Affinity:   service.AffinityTimeout,
	}
	port.addOnNode(decision.Selection.Cluster.Endpoints, decision.Viewpoint.Node.Name)
	port.addOnNode(decision.Selection.Cluster.StickyOnly, decision.Viewpoint.Node.Name)
	if local := decision.Selection.Local; local != nil {
		port.Local = slotsOf(*local, MaxLocalSlots)
		port.addOnNode(local.Endpoints, decision.Viewpoint.Node.Name)
	}
	slices.SortFunc(port.OnNode, netip.AddrPort.Compare)
	port.OnNode = slices.Compact(port.OnNode)
	port.Frontends = make([]Frontend, len(decision.Frontends))
	for i, owned := range decision.Frontends {
		port.Frontends[i] = port.newFrontend(owned, decision)
	}
	return port
}

// slotsOf returns the endpoints of a choice, each once for every slot that it gets.
func slotsOf(choice selection.Choice, limit int) []netip.AddrPort {
	if choice.Slots == nil {
		return addrsOf(choice.Endpoints[:min(len(choice.Endpoints), limit)])
	}
	sum := 0
	for _, count := range choice.Slots {
		sum += count
	}
	slots := make([]netip.AddrPort, 0, min(sum, limit))
	for i, count := range choice.Slots {
		for range min(count, limit-len(slots)) {
			slots = append(slots, choice.Endpoints[i].Addr)
		}
	}
	return slots
}

func addrsOf(endpoints []model.PortEndpoint) []netip.AddrPort {
	if endpoints == nil {
		return nil
	}
	addrs := make([]netip.AddrPort, len(endpoints))
	for i := range endpoints {
		addrs[i] = endpoints[i].Addr
	}
	return addrs
}

func (p *Port) addOnNode(endpoints []model.PortEndpoint, node string) {
	for i := range endpoints {
		if endpoints[i].Node == node {
			p.OnNode = append(p.OnNode, endpoints[i].Addr)
		}
	}
}

func (p *Port) newFrontend(owned model.PortFrontend, decision selection.Decision) Frontend {
	service := decision.Service
	frontend := Frontend{Frontend: owned.Frontend, External: owned.Kind.IsExternal(), Local: service.InternalTrafficLocal}
	if frontend.External {
		frontend.Local = service.ExternalTrafficLocal
	}
	frontend.Restricted = owned.Kind == model.LoadBalancerIP && len(p.Sources) > 0
	frontend.Class = p.classOf(&frontend, decision.Selection)
	return frontend
}

// classOf returns the class of connections to a frontend.
func (p *Port) classOf(frontend *Frontend, selected selection.Selection) Class {
	_, outcome := selected.ClusterIP()
	if frontend.External {
		_, outcome = selected.ShortCircuit()
	}
	if frontend.External && frontend.Local {
		// Clients outside are refused only if there is no endpoint anywhere. Then all clients are refused.
		if _, outside := selected.External(); outside != selection.Refuse {
			return SplitClass(len(p.Local), len(p.Cluster))
		}
	}
	switch outcome {
	case selection.Refuse:
		return RefuseClass
	case selection.Drop:
		return DropClass
	case selection.Balance:
	}
	return BalanceClass(len(p.insideEndpoints(frontend)))
}

// viewKind selects which of a port's endpoints a frontend uses: those of all nodes, or those that a Local policy
// allows.
type viewKind int

const (
	clusterView viewKind = iota
	localView
)

// views returns which endpoints a frontend uses for the pods and the node itself, and for all other clients.
func (f *Frontend) views() (inside, outside viewKind) {
	switch {
	case f.Class.isSplit():
		return clusterView, localView
	case f.Local && !f.External:
		return localView, localView
	}
	return clusterView, clusterView
}

// insideEndpoints returns the endpoints of a frontend for the pods and the node itself.
func (p *Port) insideEndpoints(frontend *Frontend) []netip.AddrPort {
	if view, _ := frontend.views(); view == localView {
		return p.Local
	}
	return p.Cluster
}

// outsideEndpoints returns the endpoints of a frontend for all other clients, if they differ.
func (p *Port) outsideEndpoints(frontend *Frontend) []netip.AddrPort {
	if frontend.Class.isSplit() {
		return p.Local
	}
	return nil
}

// Chains returns the chains that the port needs. Frontends of the same class share their chain.
func (p *Port) Chains(config Config) []Chain {
	return append(p.balanceChains(config), p.affinityChains()...)
}

func (p *Port) balanceChains(config Config) []Chain {
	if p.needsDedicatedMap() {
		return p.dedicatedChains(config)
	}
	var chains []Chain
	seen := map[Class]bool{}
	for i := range p.Frontends {
		if class := p.Frontends[i].Class; class.isBalanced() && !seen[class] {
			seen[class] = true
			chains = append(chains, randomSlotChain(p.ID.Family, config, class))
		}
	}
	return chains
}

// isRestricted reports whether a frontend of the port checks the client's address.
func (p *Port) isRestricted() bool {
	return slices.ContainsFunc(p.Frontends, func(frontend Frontend) bool { return frontend.Restricted })
}

// sets returns the sets that the port needs in addition to the static ones.
func (p *Port) sets() []Set {
	var sets []Set
	if p.needsDedicatedMap() {
		sets = append(sets, p.dedicatedMap())
	}
	if p.affinity != nil {
		sets = append(sets, p.affinity.affinityMap())
	}
	return sets
}

// objectName returns the name of a kernel object of this port alone: prefix, namespace/name/protocol/port name. Package
// convert accepts only DNS labels as names, so it stays below the kernel's 255 bytes and within nft's alphabet.
func (p *Port) objectName(prefix string) string {
	return prefix + p.ID.Service.String() + "/" + strings.ToLower(p.ID.Protocol.String()) + "/" + p.ID.Port
}
