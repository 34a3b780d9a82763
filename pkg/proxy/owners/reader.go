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
	options Options

	current  atomic.Pointer[Snapshot]
	complete chan struct{} // closed once there is a snapshot
	inForce  sync.Map      // of model.ObjectName to []Frontend
	changes  []change
	// doubtful are ports that the kernel may or may not have taken, after an error.
	doubtful []*Port

	// left are endpoints that some frontend may not use any more; leaving left since the last sync was over.
	left    memory[Endpoint, struct{}]
	leaving map[Endpoint]bool
	changed wake.Signal
	// lost are frontends that their Service lost, departed are the endpoints that a Service no longer has. Both stay empty
	// without places.
	lost     memory[model.Frontend, *Frontend]
	departed memory[departure, *Origin]
}

// Options are what a Reader is asked for.
type Options struct {
	// Places: where endpoints are, and were.
	Places bool
	// Keep is how long Left and EachLeft know that an endpoint left.
	Keep time.Duration
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

// NewReader returns a reader that knows of no frontend yet.
func NewReader(options Options) *Reader {
	return &Reader{
		options: options, leaving: map[Endpoint]bool{}, complete: make(chan struct{}), changed: wake.NewSignal(),
		left:     memory[Endpoint, struct{}]{keep: options.Keep},
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

// EndpointsLeft holds a signal after endpoints left, as soon as the snapshot says so.
func (r *Reader) EndpointsLeft() <-chan struct{} { return r.changed }

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
func (r *Reader) Digest(decisions []selection.Decision) any {
	var frontends []Frontend
	for i := range decisions {
		if d := &decisions[i]; !d.Service.IsHeadless && len(d.Owned) > 0 {
			frontends = append(frontends, r.frontendsOf(d)...)
		}
	}
	if len(frontends) == 0 {
		return nil
	}
	return frontends
}

func (r *Reader) frontendsOf(d *selection.Decision) []Frontend {
	port := &Port{Service: d.Service.Name, Name: d.Port.Name, Protocol: d.Port.Protocol}
	var here []netip.AddrPort
	port.anywhere, here = d.Answering()
	port.anywhere = slices.Clone(port.anywhere) // without room for more
	slices.SortFunc(port.anywhere, netip.AddrPort.Compare)
	frontends := make([]Frontend, 0, len(d.Owned))
	for _, owned := range d.Owned {
		f := Frontend{Port: port, Frontend: owned.Frontend, Kind: owned.Kind}
		if f.insideHere, f.outsideHere = d.AnsweredHere(owned.Kind); f.insideHere || f.outsideHere {
			port.here = here
		}
		frontends = append(frontends, f)
	}
	slices.SortFunc(port.here, netip.AddrPort.Compare)
	if r.options.Places {
		port.origins = originsOf(d)
	}
	return frontends
}

// Accept takes over what is in force of a Service.
func (r *Reader) Accept(service model.ObjectName, digest any) {
	now, _ := digest.([]Frontend)
	before := r.frontends(service)
	r.leave(before, now)
	for i := range before {
		r.changes = append(r.changes, change{&before[i], true})
	}
	for i := range now {
		r.changes = append(r.changes, change{&now[i], false})
	}
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

// MayBeInForce notes endpoints that the kernel may have sent connections to, though the sync that follows does not say so.
func (r *Reader) MayBeInForce(_ model.ObjectName, digest any) {
	frontends, _ := digest.([]Frontend)
	for i := range frontends {
		if i == 0 || frontends[i].Port != frontends[i-1].Port {
			r.doubtful = append(r.doubtful, frontends[i].Port)
		}
	}
}

// Synced makes the next snapshot.
func (r *Reader) Synced(sync selection.Sync) {
	now := time.Now()
	previous := r.current.Load()
	if previous == nil {
		previous = &Snapshot{Since: now}
		defer close(r.complete)
	}
	next := *previous
	next.Scope = sync.Scope
	apply(&next, r.changes)
	for _, port := range r.doubtful { // what is in force says which of them have not left
		r.leaves(port, port.anywhere)
	}
	r.remember(&next, now)
	r.changes, r.doubtful = nil, nil
	for endpoint := range r.leaving {
		r.left.note(endpoint, struct{}{}, now)
	}
	if r.left.forget(now) {
		next.Since = now
	}
	hasLeft := len(r.leaving) > 0 || next.Since.Equal(now)
	r.leaving = map[Endpoint]bool{}
	r.current.Store(&next)
	if hasLeft {
		r.changed.Send()
	}
}

// remember notes frontends that nobody has any more.
func (r *Reader) remember(next *Snapshot, now time.Time) {
	if !r.options.Places {
		return
	}
	for _, change := range r.changes {
		if change.isGone && next.frontend(change.Frontend.Frontend) == nil {
			r.lost.note(change.Frontend.Frontend, change.Frontend, now)
		}
	}
	r.lost.forget(now)
	r.departed.forget(now)
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

// leave notes which endpoints may no longer answer some clients of some frontends.
func (r *Reader) leave(before, now []Frontend) {
	stays := make(map[model.Frontend]*Frontend, len(now))
	for i := range now {
		stays[now[i].Frontend] = &now[i]
	}
	compared := map[[2]*netip.AddrPort]bool{}
	var last [2]*Port
	for i := range before {
		old := &before[i]
		var inside, outside []netip.AddrPort
		if stays := stays[old.Frontend]; stays != nil {
			inside, outside = stays.inside(), stays.outside()
			if ports := [2]*Port{old.Port, stays.Port}; ports != last {
				last = ports
				r.depart(old.Port, stays.Port)
			}
		}
		r.leaveList(old.Port, old.inside(), inside, compared)
		r.leaveList(old.Port, old.outside(), outside, compared)
	}
}

// depart notes the places of the endpoints that a port no longer has.
func (r *Reader) depart(old, now *Port) {
	if old == now || !r.options.Places {
		return
	}
	for _, endpoint := range old.origins.endpoints {
		if now.origins.find(endpoint.addr) == nil {
			r.departed.note(departure{old.Service, Endpoint{old.Protocol, endpoint.addr}}, endpoint.origin, time.Now())
		}
	}
}

// leaveList notes which endpoints of a list are missing in a newer one. The frontends of a port have the same lists.
func (r *Reader) leaveList(port *Port, before, now []netip.AddrPort, compared map[[2]*netip.AddrPort]bool) {
	lists := [2]*netip.AddrPort{first(before), first(now)}
	if compared[lists] {
		return
	}
	compared[lists] = true
	if !slices.Equal(before, now) {
		r.leaves(port, slices.DeleteFunc(slices.Clone(before), func(endpoint netip.AddrPort) bool { return contains(now, endpoint) }))
	}
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
