package flows

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Noter takes flows to be checked against conntrack, where a flow keeps its endpoint whatever the tables say later. TCP
// and SCTP notice by themselves that an endpoint is gone; a UDP client would go on sending to it forever.
type Noter interface {
	// Note has the flows to UDP frontends looked at: those whose endpoint may no longer answer end soon. It returns at
	// once, because looking takes longer than a sync. What it gets for a frontend replaces what it got before, except for
	// the former endpoints (see selection.Flows.After).
	Note(flows []selection.Flows, scope selection.Scope)
}

// Reader says which endpoints may answer the flows to each UDP frontend, and has flows looked at when some may not any
// more. It is a reader of the proxy's decisions.
type Reader struct {
	// Unrecalled is called after the first sync if there may still be flows to frontends that an earlier proxy served and
	// this one does not. It may be nil.
	Unrecalled func(error)

	noter   Noter
	inForce map[model.ObjectName][]selection.Flows
	// left are the frontends that Services have lost, or that changed, since the last Synced; came are those in force now.
	left map[model.Frontend]selection.Flows
	came map[model.Frontend]owned
	// changed are the frontends whose flows have to be looked at.
	changed map[model.Frontend]selection.Flows
	// known: all endpoints that node ports had since the last look are known. At the start an earlier proxy may have had
	// others.
	known bool
	// nodePorts are the addresses on which the node ports were served when their flows were looked at last.
	nodePorts []netip.Addr
	// unrecalled is why we know nothing, or not everything, about what an earlier proxy served.
	unrecalled error
}

// owned are the flows to a frontend, and whose it is.
type owned struct {
	flows   selection.Flows
	service model.ObjectName
}

// NewReader returns a reader that knows of no frontend yet.
func NewReader(noter Noter) *Reader {
	return &Reader{
		noter: noter, inForce: map[model.ObjectName][]selection.Flows{}, left: map[model.Frontend]selection.Flows{},
		came: map[model.Frontend]owned{}, changed: map[model.Frontend]selection.Flows{},
	}
}

// Digest returns who may answer the flows to the Service's UDP frontends.
func (*Reader) Digest(decisions []selection.Decision) any {
	var flows []selection.Flows
	for _, decision := range decisions {
		if decision.Port.Protocol == model.UDP && !decision.Service.IsHeadless {
			flows = append(flows, decision.Flows()...)
		}
	}
	if len(flows) == 0 {
		return nil
	}
	return flows
}

// Accept takes over what is in force of a Service.
func (r *Reader) Accept(service model.ObjectName, digest any) {
	now, _ := digest.([]selection.Flows)
	for _, flows := range r.inForce[service] {
		r.leave(service, flows)
	}
	r.set(service, now)
	for _, flows := range now {
		r.came[flows.Frontend] = owned{flows, service}
	}
}

// Lose takes over that a Service has lost frontends.
func (r *Reader) Lose(service model.ObjectName, frontends []model.Frontend) {
	if len(r.inForce[service]) == 0 {
		return
	}
	lost := make(map[model.Frontend]bool, len(frontends))
	for _, frontend := range frontends {
		lost[frontend] = true
	}
	var kept []selection.Flows
	for _, flows := range r.inForce[service] {
		if lost[flows.Frontend] {
			r.leave(service, flows)
		} else {
			kept = append(kept, flows)
		}
	}
	r.set(service, kept)
}

func (r *Reader) set(service model.ObjectName, now []selection.Flows) {
	if len(now) == 0 {
		delete(r.inForce, service)
		return
	}
	r.inForce[service] = now
}

// leave notes what was in force of a frontend. It may come back at once, or go to another Service.
func (r *Reader) leave(service model.ObjectName, flows selection.Flows) {
	if now, isNew := r.came[flows.Frontend]; isNew && now.service == service {
		r.settle() // it changes for the second time in one sync
	}
	r.left[flows.Frontend] = flows
}

// settle finds out which flows have to be looked at because of what came and left.
func (r *Reader) settle() {
	compared := comparisons{map[[2]*netip.AddrPort]bool{}, map[[2]*netip.Prefix]bool{}}
	for frontend, now := range r.came {
		old, had := r.left[frontend]
		delete(r.left, frontend)
		_, pending := r.changed[frontend]
		if pending || !had || !compared.includes(now.flows, old) || !isServed(old) && isServed(now.flows) {
			r.look(now.flows.After(old))
		}
	}
	for frontend, old := range r.left {
		r.look(selection.Flows{Frontend: frontend}.After(old))
	}
	r.came, r.left = map[model.Frontend]owned{}, map[model.Frontend]selection.Flows{}
}

// look has the flows to a frontend looked at. Former endpoints from an earlier request for the same frontend are kept.
func (r *Reader) look(flows selection.Flows) {
	r.changed[flows.Frontend] = flows.After(r.changed[flows.Frontend])
}

// MayBeInForce notes the endpoints of node ports that were decided, where an error leaves open whether the
// kernel took them. The complete sync that follows says who may answer.
func (r *Reader) MayBeInForce(_ model.ObjectName, digest any) {
	decided, _ := digest.([]selection.Flows)
	for _, flows := range decided {
		if len(flows.Endpoints) > 0 {
			r.look(selection.Flows{Frontend: flows.Frontend, Endpoints: flows.Endpoints})
		}
	}
}

// Synced has the flows looked at that the sync concerns.
func (r *Reader) Synced(sync selection.Sync) {
	r.settle()
	if sync.Complete {
		r.noteAll()
	}
	if err := r.unrecalled; err != nil && r.Unrecalled != nil {
		r.Unrecalled(err)
	}
	r.unrecalled = nil
	if len(r.inForce)+len(r.changed) == 0 {
		return
	}
	r.serveNodePorts(serving(sync))
	if len(r.changed) == 0 {
		return
	}
	r.noteNamesakes()
	changed := slices.SortedFunc(maps.Values(r.changed), func(a, b selection.Flows) int { return a.Frontend.Compare(b.Frontend) })
	r.changed = map[model.Frontend]selection.Flows{}
	r.noter.Note(changed, sync.Scope)
}

// noteAll has all flows looked at, because anything may have happened to them. The former endpoints of a node port are
// known nevertheless, except at the start: a flow that another program led elsewhere must not end because tables are
// repaired.
func (r *Reader) noteAll() {
	r.note(func(model.Frontend) bool { return true })
	if r.known {
		return
	}
	for frontend, flows := range r.changed {
		flows.Incomplete = frontend.IsNodePort()
		r.changed[frontend] = flows
	}
	r.known = true
}

// serveNodePorts has the flows to node ports looked at if they are served on other addresses than before.
func (r *Reader) serveNodePorts(addrs []netip.Addr) {
	if !slices.Equal(r.nodePorts, addrs) {
		r.nodePorts = addrs
		r.note(model.Frontend.IsNodePort)
	}
}

// serving returns the addresses of interfaces on which node ports are served.
func serving(sync selection.Sync) []netip.Addr {
	addrs := slices.Clone(sync.Scope.NodePorts)
	for _, addr := range sync.LocalAddrs {
		if slices.Contains(sync.Scope.OnAll, model.FamilyOf(addr)) && !addr.IsLoopback() {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// noteNamesakes adds the frontends with the number of a node port that changed. One of them may have an address on
// which node ports are served, and its flows must not be taken for the node port's.
func (r *Reader) noteNamesakes() {
	ports := map[uint16]bool{}
	for frontend := range r.changed {
		if frontend.IsNodePort() {
			ports[frontend.Port] = true
		}
	}
	if len(ports) > 0 {
		r.note(func(frontend model.Frontend) bool { return !frontend.IsNodePort() && ports[frontend.Port] })
	}
}

func (r *Reader) note(concerned func(model.Frontend) bool) {
	for _, list := range r.inForce {
		for _, flows := range list {
			if concerned(flows.Frontend) {
				r.look(flows)
			}
		}
	}
}
