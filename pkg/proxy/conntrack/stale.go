//go:build linux

package conntrack

import (
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// flow is what of a conntrack entry decides whether it stays.
type flow struct {
	client   netip.Addr     // the sender of the first packet
	dialled  netip.AddrPort // where to, before any translation
	answerer netip.AddrPort // whose answers belong to the flow: the endpoint, or the dialled itself if nothing was translated
	inZone   bool           // it is in a conntrack zone other than the default one
}

// verdicts says which UDP flows are stale.
type verdicts struct {
	scope     selection.Scope
	frontends map[netip.AddrPort]*permission // node ports by the unspecified address of their family
	families  map[model.Family]bool          // that have a frontend
}

// newVerdicts returns the verdicts that follow from the UDP frontends among flows. A frontend that is there twice has
// moved from one Service to another: then the endpoints that either of them permits may answer, in whichever order
// they come.
func newVerdicts(flows []selection.Flows, scope selection.Scope) verdicts {
	v := verdicts{scope: scope, frontends: map[netip.AddrPort]*permission{}, families: map[model.Family]bool{}}
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
		v.frontends[key].sources.add(ranges, one)
		v.families[model.FamilyOf(one.Frontend.Addr)] = true
	}
	return v
}

// isStale reports whether a UDP flow has to end.
func (v verdicts) isStale(f flow) bool {
	permission := v.permissionFor(f.dialled)
	switch {
	case permission == nil || permission.permits(f.answerer, v.scope.PlaceOf(f.client)) && permission.sources.contain(f.client):
		return false
	case f.answerer == f.dialled:
		// Nothing translated it. If endpoints serve the frontend, it began before they did, and its packets vanish. If none
		// do, it is not ours: the Service is gone, and perhaps a process of this machine answers. A zone belongs to another
		// program: OVS keeps entries in its own that are never translated there.
		return !f.inZone && (!permission.inside.isEmpty() || !permission.outside.isEmpty())
	}
	return true
}

// permissionFor returns the permission of the frontend that was dialled; nil if none was. A frontend with an address
// of its own comes before a node port, as in the tables.
func (v verdicts) permissionFor(dialled netip.AddrPort) *permission {
	if found := v.frontends[dialled]; found != nil {
		return found
	}
	found := v.frontends[netip.AddrPortFrom(model.AnyAddr(model.FamilyOf(dialled.Addr())), dialled.Port())]
	if found == nil || !v.scope.ServesNodePorts(dialled.Addr()) {
		return nil
	}
	return found
}

// permission says which endpoints may answer the flows of one frontend, and whose.
type permission struct {
	inside, outside endpoints
	sources         sources
}

func (p *permission) permits(answerer netip.AddrPort, client selection.Place) bool {
	switch client {
	case selection.Inside:
		return p.inside.contains(answerer)
	case selection.Outside:
		return p.outside.contains(answerer)
	default:
		return p.inside.contains(answerer) || p.outside.contains(answerer)
	}
}

// endpoints are those of one list or several: a frontend that moved from one Service to another has those of both.
type endpoints []*endpointSet

// endpointSet is a set that is built when it is first asked. Most frontends have no flow on a node, while those that
// have may have a hundred thousand, to a thousand endpoints.
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
