//go:build linux

package flows

import (
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// flow is the part of a conntrack entry that decides whether it stays.
type flow struct {
	client   netip.Addr     // the sender of the first packet
	dialled  netip.AddrPort // where to, before any translation
	answerer netip.AddrPort // whose answers belong to the flow: the endpoint, or the dialled address if nothing was translated
	inZone   bool           // it is in a conntrack zone other than the default one
}

// flowIn returns the flow of an entry.
func flowIn(e *conntrack.Entry) flow {
	return flow{client: e.Client().Addr(), dialled: e.Dialled(), answerer: e.Answerer(), inZone: e.Zone != 0}
}

// verdicts says which UDP flows are stale.
type verdicts struct {
	scope     selection.Scope
	isLocal   selection.IsLocal
	frontends map[netip.AddrPort]*permission // node ports by the unspecified address of their family
	families  map[model.Family]bool          // that have a frontend
}

// newVerdicts returns the verdicts that follow from the UDP frontends among flows. A frontend that is there twice has
// moved from one Service to another: then the endpoints that either of them permits may answer, in whichever order
// they come.
func newVerdicts(flows []selection.Flows, scope selection.Scope, isLocal selection.IsLocal) verdicts {
	v := verdicts{scope: scope, isLocal: isLocal, frontends: map[netip.AddrPort]*permission{}, families: map[model.Family]bool{}}
	shared, ranges := sharedEndpoints{}, sharedSources{}
	for _, one := range flows {
		if one.Frontend.Protocol != model.UDP {
			continue
		}
		key := netip.AddrPortFrom(one.Frontend.Addr, one.Frontend.Port)
		if v.frontends[key] == nil {
			v.frontends[key] = &permission{}
		}
		v.frontends[key].inside.add(shared, one.Inside)
		v.frontends[key].outside.add(shared, one.Outside)
		v.frontends[key].known.add(shared, one.Endpoints)
		v.frontends[key].isIncomplete = v.frontends[key].isIncomplete || one.Incomplete
		v.frontends[key].sources.add(ranges, one)
		v.families[model.FamilyOf(one.Frontend.Addr)] = true
	}
	return v
}

// isStale reports whether a UDP flow has to end. After an error that is unknown, and the flow stays. A frontend with an
// address of its own comes before a node port, as in the tables.
func (v verdicts) isStale(f flow) (bool, error) {
	if found := v.frontends[f.dialled]; found != nil {
		return v.contradicts(found, f)
	}
	nodePort := v.frontends[netip.AddrPortFrom(model.AnyAddr(model.FamilyOf(f.dialled.Addr())), f.dialled.Port())]
	if nodePort == nil {
		return false, nil
	}
	return v.contradictsNodePort(nodePort, f)
}

// contradictsNodePort is contradicts for a flow to the number of a node port. Only at an address that serves node ports
// must it belong to the Service. Anywhere else a flow belongs to the Service if it was translated and one of the
// Service's endpoints answers: then the address served node ports earlier, or another proxy served them there. At any
// address another program may have translated the flow, if its answerer never was an endpoint.
func (v verdicts) contradictsNodePort(nodePort *permission, f flow) (bool, error) {
	isOfEndpoint := nodePort.known.contains(f.answerer)
	if f.isTranslated() && !isOfEndpoint && !nodePort.isIncomplete {
		return false, nil
	}
	isServed, err := v.scope.ServesNodePorts(f.dialled.Addr(), v.isLocal)
	switch {
	case err != nil:
		return false, err
	case isServed:
		return v.contradicts(nodePort, f)
	}
	return f.isTranslated() && isOfEndpoint, nil
}

// contradicts reports whether a flow contradicts the permission of the frontend that it was dialled at.
func (v verdicts) contradicts(permission *permission, f flow) (bool, error) {
	permitted, err := v.permits(permission, f)
	if err != nil || permitted {
		return false, err
	}
	// What if nothing translated it? If endpoints serve the frontend, the flow began before they did, and its packets
	// vanish. If none do, it is not ours: the Service is gone, and perhaps a process of this machine answers. A zone
	// belongs to another program: OVS keeps entries in its own that are never translated there.
	return f.isTranslated() || !f.inZone && (!permission.inside.isEmpty() || !permission.outside.isEmpty()), nil
}

// permits reports whether a flow's client may dial, and its endpoint may answer. It looks up where the client is only
// if that makes a difference.
func (v verdicts) permits(permission *permission, f flow) (bool, error) {
	if !permission.sources.contain(f.client) {
		return false, nil
	}
	inside, outside := permission.inside.contains(f.answerer), permission.outside.contains(f.answerer)
	if inside == outside {
		return inside, nil
	}
	switch place, err := v.scope.PlaceOf(f.client, v.isLocal); place {
	case selection.Inside:
		return inside, err
	case selection.Outside:
		return outside, err
	default:
		return true, err
	}
}

func (f flow) isTranslated() bool { return f.answerer != f.dialled }

// permission says which endpoints may answer the flows of one frontend, and whose.
type permission struct {
	inside, outside endpoints
	sources         sources
	// known are the endpoints of a node port, and those that it had; isIncomplete: it may have had others.
	known        endpoints
	isIncomplete bool
}

// endpoints are those of one list or several: a frontend that moved from one Service to another has those of both.
type endpoints []*endpointSet

// endpointSet is a set that is built when it is first asked. Most frontends have no flow on a node, but some may have a
// hundred thousand flows to a thousand endpoints.
type endpointSet struct {
	list []netip.AddrPort
	set  map[netip.AddrPort]bool
}

// sharedEndpoints are the sets by where their lists are in memory: the frontends of a port have the same list.
type sharedEndpoints map[*netip.AddrPort]*endpointSet

func (e *endpoints) add(shared sharedEndpoints, list []netip.AddrPort) {
	if len(list) == 0 {
		return
	}
	if shared[&list[0]] == nil {
		shared[&list[0]] = &endpointSet{list: list}
	}
	*e = append(*e, shared[&list[0]])
}

func (e endpoints) isEmpty() bool { return len(e) == 0 }

func (e endpoints) contains(endpoint netip.AddrPort) bool {
	return slices.ContainsFunc(e, func(set *endpointSet) bool { return set.contains(endpoint) })
}

func (s *endpointSet) contains(endpoint netip.AddrPort) bool {
	if s.set == nil {
		s.set = make(map[netip.AddrPort]bool, len(s.list))
		for _, addr := range s.list {
			s.set[addr] = true
		}
	}
	return s.set[endpoint]
}

// sources are the clients that may dial a frontend: those of one list or several, as with endpoints.
type sources struct {
	everybody bool
	lists     []*sourceList
}

// sourceList is sorted when it is first asked, like an endpointSet.
type sourceList struct {
	list   []netip.Prefix
	sorted model.Prefixes
}

// sharedSources are the lists by where they are in memory, like sharedEndpoints.
type sharedSources map[*netip.Prefix]*sourceList

func (s *sources) add(shared sharedSources, flows selection.Flows) {
	if len(flows.Sources) == 0 {
		// A frontend that is gone has no endpoints: it allows no client.
		s.everybody = s.everybody || len(flows.Inside)+len(flows.Outside) > 0
		return
	}
	first := &flows.Sources[0]
	if shared[first] == nil {
		shared[first] = &sourceList{list: flows.Sources}
	}
	s.lists = append(s.lists, shared[first])
}

func (s *sources) contain(client netip.Addr) bool {
	return s.everybody || slices.ContainsFunc(s.lists, func(list *sourceList) bool { return list.contains(client) })
}

func (l *sourceList) contains(client netip.Addr) bool {
	if l.sorted == nil {
		l.sorted = model.SortPrefixes(l.list)
	}
	return l.sorted.Contains(client)
}
