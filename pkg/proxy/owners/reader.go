package owners

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Reader makes snapshots of decisions. The methods of selection.Reader are the syncing goroutine's; anybody may call the
// others.
type Reader struct {
	options Options

	current atomic.Pointer[Snapshot]
	inForce map[model.ObjectName][]Frontend
	changes []change
	// doubtful are ports of which an error left open whether the kernel took them.
	doubtful []*Port

	left sync.Map // of Endpoint to Left
	// leaving left since the last sync was over; known are those in left, the oldest first, each as often as it left.
	leaving map[Endpoint]Place
	known   []known
	changed chan struct{}
}

// Options are what a Reader is asked for.
type Options struct {
	// Places: where endpoints are.
	Places bool
	// Keep is for how long it is known that an endpoint left.
	Keep time.Duration
}

// keepAtMost bounds how many endpoints that left are known, however often they come and go. If there are more, then for a
// time any may have left.
const keepAtMost = 1 << 16

type known struct {
	Endpoint
	at time.Time
}

// Endpoint is an endpoint of a protocol, whosever it is.
type Endpoint struct {
	Protocol model.Protocol
	Addr     netip.AddrPort
}

// Left is what is known of an endpoint that may not answer some frontend any more. It may answer others, or again.
type Left struct {
	At    time.Time
	Place Place
}

// change is a frontend that a Service has, or has no more.
type change struct {
	*Frontend
	isGone bool
}

// NewReader returns a reader that knows of no frontend yet.
func NewReader(options Options) *Reader {
	return &Reader{
		options: options, inForce: map[model.ObjectName][]Frontend{}, leaving: map[Endpoint]Place{}, changed: make(chan struct{}, 1),
	}
}

// Snapshot returns what is in force; nil before the first sync is over.
func (r *Reader) Snapshot() *Snapshot { return r.current.Load() }

// EndpointsLeft holds a signal after endpoints left, from the moment on at which the snapshot says so.
func (r *Reader) EndpointsLeft() <-chan struct{} { return r.changed }

// Left reports whether an endpoint left, and what is known of it.
func (r *Reader) Left(endpoint Endpoint) (Left, bool) {
	found, isKnown := r.left.Load(endpoint)
	if !isKnown {
		return Left{}, false
	}
	return found.(Left), true
}

// EachLeft gives the endpoints that left since a time, until each returns false.
func (r *Reader) EachLeft(since time.Time, each func(Endpoint, Left) bool) {
	r.left.Range(func(key, value any) bool {
		left := value.(Left)
		return left.At.Before(since) || each(key.(Endpoint), left)
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
		port.places = placesOf(d, port.anywhere)
	}
	return frontends
}

// placesOf returns where the endpoints are, in their order.
func placesOf(d *selection.Decision, endpoints []netip.AddrPort) []Place {
	places := make([]Place, len(endpoints))
	for i := range d.Endpoints {
		endpoint := &d.Endpoints[i]
		if at, found := slices.BinarySearchFunc(endpoints, endpoint.Addr, netip.AddrPort.Compare); found {
			zone, _ := d.Viewpoint.ValueOf(endpoint, policy.Zone)
			places[at] = Place{Node: endpoint.Node, Zone: zone, Tier: d.TierOf(endpoint)}
		}
	}
	return places
}

// Accept takes over what is in force of a Service.
func (r *Reader) Accept(service model.ObjectName, digest any) {
	now, _ := digest.([]Frontend)
	before := r.inForce[service]
	r.leave(before, now)
	for i := range before {
		r.changes = append(r.changes, change{&before[i], true})
	}
	for i := range now {
		r.changes = append(r.changes, change{&now[i], false})
	}
	if len(now) == 0 {
		delete(r.inForce, service)
		return
	}
	r.inForce[service] = now
}

// Lose takes over that a Service has lost frontends.
func (r *Reader) Lose(service model.ObjectName, frontends []model.Frontend) {
	lost := make(map[model.Frontend]bool, len(frontends))
	for _, frontend := range frontends {
		lost[frontend] = true
	}
	before := r.inForce[service]
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
		r.inForce[service] = kept
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
	r.forget(now)
	previous := r.current.Load()
	if previous == nil {
		previous = &Snapshot{Since: now}
	}
	next := *previous
	next.Scope = sync.Scope
	apply(&next, r.changes)
	for _, port := range r.doubtful { // what is in force says which of them have not left
		r.leaves(port, port.anywhere)
	}
	r.changes, r.doubtful = nil, nil
	if len(r.known)+len(r.leaving) > keepAtMost {
		next.Since = now
	}
	hasLeft := len(r.leaving) > 0 || next.Since.Equal(now)
	r.keep(now)
	r.current.Store(&next)
	if hasLeft {
		select {
		case r.changed <- struct{}{}:
		default:
		}
	}
}

// apply makes changes of a snapshot that nobody knows yet. A part that it shares with another one is copied once.
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

// leave notes which endpoints may answer some clients of some frontends no more.
func (r *Reader) leave(before, now []Frontend) {
	stays := make(map[model.Frontend]*Frontend, len(now))
	for i := range now {
		stays[now[i].Frontend] = &now[i]
	}
	compared := map[[2]*netip.AddrPort]bool{}
	for i := range before {
		old := &before[i]
		var inside, outside []netip.AddrPort
		if stays := stays[old.Frontend]; stays != nil {
			inside, outside = stays.inside(), stays.outside()
		}
		r.leaveList(old.Port, old.inside(), inside, compared)
		r.leaveList(old.Port, old.outside(), outside, compared)
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
		place, _ := port.PlaceOf(endpoint)
		r.leaving[Endpoint{port.Protocol, endpoint}] = place
	}
}

// keep makes known who has left.
func (r *Reader) keep(now time.Time) {
	for endpoint, place := range r.leaving {
		r.left.Store(endpoint, Left{now, place})
		r.known = append(r.known, known{endpoint, now})
	}
	r.leaving = map[Endpoint]Place{}
}

// forget forgets who left long ago, and the first of too many.
func (r *Reader) forget(now time.Time) {
	n := 0
	for n < len(r.known) && (now.Sub(r.known[n].at) > r.options.Keep || len(r.known)-n > keepAtMost) {
		endpoint := r.known[n]
		if left, isKnown := r.Left(endpoint.Endpoint); isKnown && !left.At.After(endpoint.at) {
			r.left.Delete(endpoint.Endpoint)
		}
		n++
	}
	r.known = r.known[n:]
}
