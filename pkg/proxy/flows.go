package proxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Flows is conntrack's memory of who talks to whom. A flow keeps its endpoint whatever the tables say later. TCP and
// SCTP notice by themselves that an endpoint is gone; a UDP client would send to an endpoint that is gone for as long
// as it goes on.
type Flows interface {
	// Note has the flows to UDP frontends looked at: soon those end that no endpoint may go on answering. It returns at
	// once, for to look takes longer than a sync. What it gets for a frontend takes the place of what it got before, but
	// for who was an endpoint then (see selection.Flows.After).
	Note(flows []selection.Flows, scope selection.Scope)
}

// udpFrontends says which endpoints may answer the flows to each UDP frontend.
type udpFrontends struct {
	inForce map[model.ObjectName][]selection.Flows
	// changed are the frontends whose flows have to be looked at.
	changed map[model.Frontend]selection.Flows
	// known: all endpoints of node ports since the last look are. At the start an earlier proxy may have had others.
	known bool
	// nodePorts are the addresses on which the node ports were served when their flows were looked at last.
	nodePorts []netip.Addr
}

func newUDPFrontends() udpFrontends {
	return udpFrontends{inForce: map[model.ObjectName][]selection.Flows{}, changed: map[model.Frontend]selection.Flows{}}
}

// accept takes over what the kernel accepted for some Services. Those without UDP frontends are among them, with none.
func (u *udpFrontends) accept(decided map[model.ObjectName][]selection.Flows) {
	gone := map[model.Frontend]selection.Flows{}
	compared := comparisons{map[[2]*netip.AddrPort]bool{}, map[[2]*netip.Prefix]bool{}}
	for service := range decided {
		for _, flows := range u.inForce[service] {
			gone[flows.Frontend] = flows
		}
	}
	for service, now := range decided {
		delete(u.inForce, service)
		if len(now) > 0 {
			u.inForce[service] = now
		}
		for _, flows := range now {
			old, had := gone[flows.Frontend]
			delete(gone, flows.Frontend) // it may have gone from one Service to another
			_, pending := u.changed[flows.Frontend]
			if pending || !had || !compared.includes(flows, old) || !isServed(old) && isServed(flows) {
				u.look(flows.After(old))
			}
		}
	}
	for frontend, old := range gone {
		u.look(selection.Flows{Frontend: frontend}.After(old))
	}
}

// look has the flows to a frontend looked at. Who was an endpoint when that was asked for before is not forgotten.
func (u *udpFrontends) look(flows selection.Flows) {
	u.changed[flows.Frontend] = flows.After(u.changed[flows.Frontend])
}

// isServed reports whether an endpoint may answer flows. When that begins, a flow may be there without translation:
// its client has been sending since before there was a frontend.
func isServed(flows selection.Flows) bool { return len(flows.Inside)+len(flows.Outside) > 0 }

// comparisons are the lists that were compared already, by where they are in memory: the frontends of a port share
// their lists, and those may be long.
type comparisons struct {
	endpoints map[[2]*netip.AddrPort]bool
	sources   map[[2]*netip.Prefix]bool
}

// includes reports whether every endpoint that could answer flows still can, whether all endpoints are still there, and
// whether the clients are the same.
func (c comparisons) includes(now, old selection.Flows) bool {
	return c.includesAll(now.Inside, old.Inside) && c.includesAll(now.Outside, old.Outside) &&
		c.includesAll(now.Endpoints, old.Endpoints) && c.sameSources(now.Sources, old.Sources)
}

// sameSources reports whether as many clients as before may dial. To look at the flows when more of them may does no
// harm.
func (c comparisons) sameSources(now, old []netip.Prefix) bool {
	if len(now) == 0 || len(now) != len(old) {
		return len(now) == 0
	}
	lists := [2]*netip.Prefix{&now[0], &old[0]}
	result, known := c.sources[lists]
	if !known {
		result = slices.Equal(now, old)
		c.sources[lists] = result
	}
	return result
}

func (c comparisons) includesAll(now, old []netip.AddrPort) bool {
	if len(now) == 0 || len(old) == 0 {
		return len(old) == 0
	}
	lists := [2]*netip.AddrPort{&now[0], &old[0]}
	result, known := c.endpoints[lists]
	if !known {
		result = containsAll(now, old)
		c.endpoints[lists] = result
	}
	return result
}

func containsAll(now, old []netip.AddrPort) bool {
	if slices.Equal(now, old) {
		return true
	}
	there := make(map[netip.AddrPort]bool, len(now))
	for _, endpoint := range now {
		there[endpoint] = true
	}
	return !slices.ContainsFunc(old, func(endpoint netip.AddrPort) bool { return !there[endpoint] })
}

// noteAll has all flows looked at: nothing is known of what happened to them. Who the endpoints of a node port were is
// known all the same, but at the start: a flow that another program led elsewhere must not end because tables are repaired.
func (u *udpFrontends) noteAll() {
	u.note(func(model.Frontend) bool { return true })
	if u.known {
		return
	}
	for frontend, flows := range u.changed {
		flows.Incomplete = frontend.IsNodePort()
		u.changed[frontend] = flows
	}
	u.known = true
}

// mayHaveBeenServed notes the endpoints of node ports that were decided, and of which an error leaves open whether the
// kernel took them. The complete sync that follows says who may answer.
func (u *udpFrontends) mayHaveBeenServed(decided map[model.ObjectName][]selection.Flows) {
	for _, list := range decided {
		for _, flows := range list {
			if len(flows.Endpoints) > 0 {
				u.look(selection.Flows{Frontend: flows.Frontend, Endpoints: flows.Endpoints})
			}
		}
	}
}

// serveNodePorts has the flows to node ports looked at if they are served on other addresses than before.
func (u *udpFrontends) serveNodePorts(addrs []netip.Addr) {
	if !slices.Equal(u.nodePorts, addrs) {
		u.nodePorts = addrs
		u.note(model.Frontend.IsNodePort)
	}
}

// noteNamesakes adds the frontends with the number of a node port that changed. One of them may have an address on
// which node ports are served, and its flows must not be taken for the node port's.
func (u *udpFrontends) noteNamesakes() {
	ports := map[uint16]bool{}
	for frontend := range u.changed {
		if frontend.IsNodePort() {
			ports[frontend.Port] = true
		}
	}
	if len(ports) > 0 {
		u.note(func(frontend model.Frontend) bool { return !frontend.IsNodePort() && ports[frontend.Port] })
	}
}

func (u *udpFrontends) note(concerned func(model.Frontend) bool) {
	for _, list := range u.inForce {
		for _, flows := range list {
			if concerned(flows.Frontend) {
				u.look(flows)
			}
		}
	}
}

// noteFlows has the flows looked at that changes concern which the kernel has accepted.
func (p *Proxy) noteFlows() {
	if len(p.udp.inForce)+len(p.udp.changed) == 0 {
		return
	}
	scope := selection.ScopeOf(p.cluster, p.config.NodePorts, p.inForce.LocalTraffic.Prefixes)
	p.udp.serveNodePorts(p.servingNodePorts(scope))
	if len(p.udp.changed) == 0 {
		return
	}
	p.udp.noteNamesakes()
	changed := slices.SortedFunc(maps.Values(p.udp.changed), func(a, b selection.Flows) int { return a.Frontend.Compare(b.Frontend) })
	p.udp.changed = map[model.Frontend]selection.Flows{}
	p.flows.Note(changed, scope)
}

// servingNodePorts returns the addresses of interfaces on which node ports are served.
func (p *Proxy) servingNodePorts(scope selection.Scope) []netip.Addr {
	addrs := slices.Clone(scope.NodePorts)
	for _, addr := range p.cluster.LocalAddrs() {
		if slices.Contains(scope.OnAll, model.FamilyOf(addr)) && !addr.IsLoopback() {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// recall notes, before the first sync, the UDP frontends that an earlier proxy left in the kernel, and who answered its
// node ports: their Services may have been deleted meanwhile. A sync does not depend on it.
func (p *Proxy) recall(ctx context.Context, found map[model.Family]ruleset.Objects) error {
	if p.synced {
		return nil
	}
	var failures []error
	for _, family := range p.config.Families {
		failures = append(failures, p.recallFamily(ctx, family, found[family]))
	}
	return errors.Join(failures...)
}

func (p *Proxy) recallFamily(ctx context.Context, family model.Family, found ruleset.Objects) error {
	if _, err := p.recallFrontends(ctx, family, found, ruleset.Services); err != nil {
		return err
	}
	nodePorts, err := p.recallFrontends(ctx, family, found, ruleset.NodePorts)
	if err != nil {
		return err
	}
	if err := p.recallEndpoints(ctx, family, nodePorts); err != nil {
		return fmt.Errorf("read who answered %s node ports before: %w", family, err)
	}
	return nil
}

// recallFrontends returns the elements of a set whose keys are frontends, and notes those of UDP.
func (p *Proxy) recallFrontends(
	ctx context.Context, family model.Family, found ruleset.Objects, set ruleset.Set,
) ([]ruleset.Element, error) {
	if !slices.Contains(found.Sets, set.Name) {
		return nil, nil
	}
	elements, err := p.kernel.Elements(ctx, family, set)
	if err != nil {
		return nil, fmt.Errorf("read the frontends that were served before: %w", err)
	}
	for _, element := range elements {
		if frontend := ruleset.FrontendOf(family, element); frontend.Protocol == model.UDP {
			p.udp.look(selection.Flows{Frontend: frontend})
		}
	}
	return elements, nil
}

// recallAtMost bounds how many slots of node ports are read back. The kernel's time for that grows with the square of
// the number, and the first sync waits for it: some 30 ms for so many.
const recallAtMost = 20_000

var errManySlots = fmt.Errorf("they have more than %d slots", recallAtMost)

// recallEndpoints notes who answered those node ports that are of UDP. It reads the map that most node ports are in: not
// the maps of wide ones, nor those of session affinity.
func (p *Proxy) recallEndpoints(ctx context.Context, family model.Family, nodePorts []ruleset.Element) error {
	slots, isConcerned := 0, false
	for _, element := range nodePorts {
		slots += ruleset.SlotsOf(element)
		isConcerned = isConcerned || element.Key.Proto == model.UDP && ruleset.SlotsOf(element) > 0
	}
	switch {
	case !isConcerned:
		return nil
	case slots > recallAtMost:
		return errManySlots
	}
	elements, err := p.kernel.Elements(ctx, family, ruleset.NodePortEndpoints)
	if err != nil {
		return err
	}
	answered := map[model.Frontend][]netip.AddrPort{}
	for _, element := range elements {
		if frontend := ruleset.FrontendOf(family, element); frontend.Protocol == model.UDP {
			answered[frontend] = append(answered[frontend], netip.AddrPortFrom(element.Value.Addr, element.Value.Port))
		}
	}
	for frontend, endpoints := range answered {
		slices.SortFunc(endpoints, netip.AddrPort.Compare)
		endpoints = slices.Compact(endpoints) // an endpoint may have several slots
		p.udp.look(selection.Flows{Frontend: frontend, Endpoints: endpoints})
	}
	return nil
}
