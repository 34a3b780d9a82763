//go:build linux

package owners

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
	"github.com/vicinity-proxy/vicinity/pkg/wake"
)

// Reader makes snapshots of decisions. The methods of selection.Reader are the syncing goroutine's; anybody may call the
// others.
type Reader struct {
	current  atomic.Pointer[Snapshot]
	complete chan struct{} // closed once there is a snapshot
	inForce  sync.Map      // of model.ObjectName to []Frontend
	changes  []change
	// doubtful are frontends that the kernel may or may not have taken, after an error.
	doubtful []Frontend
	// next is the number of the sync that is handed over.
	next uint64
	// nodePorts are the addresses of interfaces on which node ports are served.
	nodePorts []netip.Addr

	// left are endpoints that some frontend may not use any more; leaving left since the last sync was over.
	left    memory[Endpoint, struct{}]
	leaving map[Endpoint]bool
	changed wake.Signal
	// lost are frontends that their Service lost, departed are the endpoints that a Service no longer has.
	lost     memory[model.Frontend, *Frontend]
	departed memory[departure, *Origin]
}

// rememberOrigins is how long the owner of a frontend that left, and the place of an endpoint that left, are
// remembered: a TCP connection ends two minutes after its last packet.
const rememberOrigins = 10 * time.Minute

// Endpoint is an endpoint of a protocol, whichever Service it belongs to.
type Endpoint struct {
	Protocol model.Protocol
	Addr     netip.AddrPort
}

// departure is an endpoint that left a Service.
type departure struct {
	service model.ObjectName
	Endpoint
}

// change is a frontend that a Service gained or lost.
type change struct {
	*Frontend
	isGone bool
}

// NewReader returns a reader that knows of no frontend yet. Left and EachLeft know for some time that an endpoint left.
func NewReader(keep time.Duration) *Reader {
	return &Reader{
		leaving: map[Endpoint]bool{}, complete: make(chan struct{}), changed: wake.NewSignal(), next: 1,
		left:     memory[Endpoint, struct{}]{keep: keep},
		lost:     memory[model.Frontend, *Frontend]{keep: rememberOrigins},
		departed: memory[departure, *Origin]{keep: rememberOrigins},
	}
}

// Snapshot returns what is in force; nil before the first sync is over.
func (r *Reader) Snapshot() *Snapshot { return r.current.Load() }

// Complete is closed after the first sync: from then on all Services are known.
func (r *Reader) Complete() <-chan struct{} { return r.complete }

// Has reports whether anything of a Service is in force.
func (r *Reader) Has(service model.ObjectName) bool {
	_, has := r.inForce.Load(service)
	return has
}

// Changed holds a signal after endpoints left, or flows of UDP may have become stale otherwise, as soon as the snapshot
// says so.
func (r *Reader) Changed() <-chan struct{} { return r.changed }

// Left reports whether an endpoint left, so that some frontend may no longer use it. Other frontends may still use it,
// or the same one again.
func (r *Reader) Left(endpoint Endpoint) bool {
	_, hasLeft := r.left.get(endpoint)
	return hasLeft
}

// EachLeft passes the endpoints that left since a time to each, until each returns false.
func (r *Reader) EachLeft(since time.Time, each func(Endpoint) bool) {
	r.left.values.Range(func(key, value any) bool {
		return value.(noted[struct{}]).at.Before(since) || each(key.(Endpoint))
	})
}

// Digest returns a Service's frontends.
func (*Reader) Digest(decisions []selection.Decision) any {
	var frontends []Frontend
	for i := range decisions {
		if d := &decisions[i]; !d.Service.IsHeadless && len(d.Owned) > 0 {
			frontends = append(frontends, frontendsOf(d)...)
		}
	}
	if len(frontends) == 0 {
		return nil
	}
	return frontends
}

func frontendsOf(d *selection.Decision) []Frontend {
	port := &Port{
		Service: d.Service.Name, Name: d.Port.Name, Protocol: d.Port.Protocol,
		sources: model.SortPrefixes(d.Sources), origins: originsOf(d),
	}
	var here []netip.AddrPort
	port.anywhere, here, port.open = d.Answering()
	port.anywhere = slices.Clone(port.anywhere) // without room for more
	slices.SortFunc(port.anywhere, netip.AddrPort.Compare)
	slices.SortFunc(port.open, netip.AddrPort.Compare)
	frontends := make([]Frontend, 0, len(d.Owned))
	for _, owned := range d.Owned {
		f := Frontend{Port: port, Frontend: owned.Frontend, Kind: owned.Kind}
		if f.insideHere, f.outsideHere = d.AnsweredHere(owned.Kind); f.insideHere || f.outsideHere {
			port.here = here
		}
		frontends = append(frontends, f)
	}
	slices.SortFunc(port.here, netip.AddrPort.Compare)
	return frontends
}

// Accept takes over what is in force of a Service.
func (r *Reader) Accept(service model.ObjectName, digest any) {
	now, _ := digest.([]Frontend)
	before := r.frontends(service)
	for i := range before {
		r.changes = append(r.changes, change{&before[i], true})
	}
	for i := range now {
		now[i].changed = r.next
		r.changes = append(r.changes, change{&now[i], false})
	}
	r.leave(before, now)
	if len(now) == 0 {
		r.inForce.Delete(service)
		return
	}
	r.inForce.Store(service, now)
}

func (r *Reader) frontends(service model.ObjectName) []Frontend {
	found, _ := r.inForce.Load(service)
	frontends, _ := found.([]Frontend)
	return frontends
}

// Lose takes over that a Service has lost frontends.
func (r *Reader) Lose(service model.ObjectName, frontends []model.Frontend) {
	lost := make(map[model.Frontend]bool, len(frontends))
	for _, frontend := range frontends {
		lost[frontend] = true
	}
	before := r.frontends(service)
	var kept []Frontend
	for i := range before {
		if lost[before[i].Frontend] {
			r.changes = append(r.changes, change{&before[i], true})
		} else {
			kept = append(kept, before[i])
		}
	}
	if len(kept) < len(before) {
		r.leave(before, kept)
		r.inForce.Store(service, kept)
	}
}

// MayBeInForce notes what the kernel may have sent connections to, though the sync that follows does not say so.
func (r *Reader) MayBeInForce(_ model.ObjectName, digest any) {
	frontends, _ := digest.([]Frontend)
	r.doubtful = append(r.doubtful, frontends...)
}

// Synced makes the next snapshot.
func (r *Reader) Synced(sync selection.Sync) {
	now := time.Now()
	previous := r.current.Load()
	if previous == nil {
		previous = &Snapshot{Since: now, changed: map[model.Family]uint64{}}
		defer close(r.complete)
	}
	next := *previous
	next.Scope, next.Number = sync.Scope, r.next
	apply(&next, r.changes)
	r.noteDoubts(now)
	r.noteChanges(&next, sync, now)
	r.changes, r.doubtful = nil, nil
	r.next++
	for endpoint := range r.leaving {
		r.left.note(endpoint, struct{}{}, now)
	}
	if r.left.forget(now) {
		next.Since = now
	}
	hasLeft := len(r.leaving) > 0 || next.Since.Equal(now)
	r.leaving = map[Endpoint]bool{}
	r.current.Store(&next)
	if hasLeft || len(next.ChangedAfter(previous.Number)) > 0 {
		r.changed.Send()
	}
}

// noteDoubts notes that endpoints left which may have been in force for a moment. What is in force says which of them
// have not left.
func (r *Reader) noteDoubts(now time.Time) {
	var last *Port
	for i := range r.doubtful {
		port := r.doubtful[i].Port
		r.changes = append(r.changes, change{&r.doubtful[i], true})
		if port == last {
			continue
		}
		last = port
		r.leaves(port, port.anywhere)
		for _, endpoint := range port.origins.endpoints {
			r.departed.note(departure{port.Service, Endpoint{port.Protocol, endpoint.addr}}, endpoint.origin, now)
		}
	}
}

// noteChanges remembers frontends that nobody has any more, or somebody else, and notes which flows of UDP may be stale.
func (r *Reader) noteChanges(next *Snapshot, sync selection.Sync, now time.Time) {
	for _, change := range r.changes {
		frontend := change.Frontend.Frontend
		owner := next.frontend(frontend)
		if change.isGone && (owner == nil || owner.Service != change.Service) {
			gone := &Port{Service: change.Service, Name: change.Name, Protocol: change.Port.Protocol, origins: change.origins}
			r.lost.note(frontend, &Frontend{Port: gone, Frontend: frontend, Kind: change.Kind, changed: next.Number}, now)
		}
		if owner == nil || owner.changed == next.Number {
			next.noteChange(change.Frontend)
		}
	}
	if sync.Complete {
		next.rewritten = next.Number
	}
	if addrs := serving(sync); !slices.Equal(r.nodePorts, addrs) {
		r.nodePorts, next.moved = addrs, next.Number
	}
	if max(next.rewritten, next.moved) == next.Number {
		for _, shard := range next.shards {
			for _, f := range shard {
				if next.isChanged(f, next.Number-1) {
					next.noteChange(f)
				}
			}
		}
	}
	r.lost.forget(now)
	r.departed.forget(now)
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

// apply makes changes to a snapshot that is not published yet. A part that it shares with another one is copied once.
func apply(next *Snapshot, changes []change) {
	var copied [shards]bool
	for _, change := range changes {
		shard := shardOf(change.Frontend.Frontend)
		if !copied[shard] {
			copied[shard] = true
			old := next.shards[shard]
			next.shards[shard] = make(map[model.Frontend]*Frontend, len(old)+1)
			maps.Copy(next.shards[shard], old)
		}
		in := next.shards[shard]
		switch owner := in[change.Frontend.Frontend]; {
		case !change.isGone:
			in[change.Frontend.Frontend] = change.Frontend
		case owner != nil && owner.Service == change.Service: // else it has gone to another Service already
			delete(in, change.Frontend.Frontend)
		}
	}
}

// leave notes which endpoints may no longer answer some clients of some frontends, and since when nothing has changed
// about the frontends that stay.
func (r *Reader) leave(before, now []Frontend) {
	stays := make(map[model.Frontend]*Frontend, len(now))
	for i := range now {
		stays[now[i].Frontend] = &now[i]
	}
	compared := map[[2]*netip.AddrPort]bool{}
	var last [2]*Port
	departed := false
	for i := range before {
		old := &before[i]
		var inside, outside []netip.AddrPort
		stays := stays[old.Frontend]
		if stays != nil {
			inside, outside = stays.inside(), stays.outside()
			if ports := [2]*Port{old.Port, stays.Port}; ports != last {
				last = ports
				departed = r.depart(old.Port, stays.Port)
			}
		}
		openLeft := stays != nil && slices.ContainsFunc(old.open, func(endpoint netip.AddrPort) bool {
			return !contains(stays.anywhere, endpoint) && !contains(stays.open, endpoint)
		})
		insideLeft := r.leaveList(old.Port, old.inside(), inside, compared)
		outsideLeft := r.leaveList(old.Port, old.outside(), outside, compared)
		if stays == nil {
			continue
		}
		isTighter := len(stays.sources) > 0 && !slices.Equal(old.sources, stays.sources)
		if insideLeft || outsideLeft || openLeft || isTighter || old.IsNodePort() && departed || !old.IsServed() && stays.IsServed() {
			continue
		}
		stays.changed = old.changed
	}
}

// depart notes the places of the endpoints that a port no longer has, and reports whether there are any.
func (r *Reader) depart(old, now *Port) (departed bool) {
	if old == now {
		return false
	}
	for _, endpoint := range old.origins.endpoints {
		if now.origins.find(endpoint.addr) == nil {
			r.departed.note(departure{old.Service, Endpoint{old.Protocol, endpoint.addr}}, endpoint.origin, time.Now())
			departed = true
		}
	}
	return departed
}

// leaveList notes which endpoints of a list are missing in a newer one, and reports whether any is. The frontends of a
// port have the same lists.
func (r *Reader) leaveList(port *Port, before, now []netip.AddrPort, compared map[[2]*netip.AddrPort]bool) bool {
	lists := [2]*netip.AddrPort{first(before), first(now)}
	left, isKnown := compared[lists]
	if isKnown || slices.Equal(before, now) {
		return left
	}
	gone := slices.DeleteFunc(slices.Clone(before), func(endpoint netip.AddrPort) bool { return contains(now, endpoint) })
	r.leaves(port, gone)
	compared[lists] = len(gone) > 0
	return len(gone) > 0
}

func first(list []netip.AddrPort) *netip.AddrPort {
	if len(list) == 0 {
		return nil
	}
	return &list[0]
}

func (r *Reader) leaves(port *Port, endpoints []netip.AddrPort) {
	for _, endpoint := range endpoints {
		r.leaving[Endpoint{port.Protocol, endpoint}] = true
	}
}
