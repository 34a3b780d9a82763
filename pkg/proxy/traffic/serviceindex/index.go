//go:build linux

package serviceindex

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/notify"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Index builds snapshots from decisions. The syncing goroutine calls the methods of selection.Handler; any goroutine
// may call the others.
type Index struct {
	current  atomic.Pointer[Snapshot]
	complete chan struct{} // closed when the first snapshot exists
	applied  sync.Map      // of model.ObjectName to []Frontend
	changes  []change
	// uncertain are frontends that the kernel may or may not have applied, after an error.
	uncertain []Frontend
	// next is the number of the sync whose decisions are being applied.
	next uint64
	// nodePorts are the interface addresses on which node ports are served.
	nodePorts []netip.Addr

	// removed are endpoints that some frontend may no longer use; removing are those since the end of the last sync.
	removed  ttlCache[Endpoint, struct{}]
	removing map[Endpoint]bool
	changed  notify.Signal
	// formerFrontends are frontends that their Service lost; formerEndpoints are endpoints that a Service no longer has.
	formerFrontends ttlCache[model.Frontend, *Frontend]
	formerEndpoints ttlCache[formerKey, *Attribution]
}

// formerTTL is how long the Service of a removed frontend and the location of a removed endpoint are retained: a TCP
// connection ends two minutes after its last packet.
const formerTTL = 10 * time.Minute

// Endpoint is the address of an endpoint with its protocol, independent of Services.
type Endpoint struct {
	Protocol model.Protocol
	Addr     netip.AddrPort
}

// formerKey identifies an endpoint that a Service no longer has.
type formerKey struct {
	service model.ObjectName
	Endpoint
}

// change is a frontend that a Service gained or lost.
type change struct {
	*Frontend
	isDeleted bool
}

// New returns an empty Index. keep is how long Removed and RangeRemoved report a removed endpoint.
func New(keep time.Duration) *Index {
	return &Index{
		removing: map[Endpoint]bool{}, complete: make(chan struct{}), changed: notify.NewSignal(), next: 1,
		removed:         ttlCache[Endpoint, struct{}]{keep: keep},
		formerFrontends: ttlCache[model.Frontend, *Frontend]{keep: formerTTL},
		formerEndpoints: ttlCache[formerKey, *Attribution]{keep: formerTTL},
	}
}

// Snapshot returns the state that the last sync applied; nil before the end of the first sync.
func (r *Index) Snapshot() *Snapshot { return r.current.Load() }

// Complete returns a channel that is closed after the first sync: from then on all Services are known.
func (r *Index) Complete() <-chan struct{} { return r.complete }

// Has reports whether any frontend of a Service is applied.
func (r *Index) Has(service model.ObjectName) bool {
	_, has := r.applied.Load(service)
	return has
}

// Changed returns a channel that signals that endpoints were removed, or that UDP flows may have become stale for
// another reason. The signal is sent when the snapshot contains the change.
func (r *Index) Changed() <-chan struct{} { return r.changed }

// Removed reports whether some frontend may no longer use an endpoint. Other frontends may still use it, or the same
// one again.
func (r *Index) Removed(endpoint Endpoint) bool {
	_, hasLeft := r.removed.get(endpoint)
	return hasLeft
}

// RangeRemoved calls each for the endpoints removed since a time, until each returns false.
func (r *Index) RangeRemoved(since time.Time, each func(Endpoint) bool) {
	r.removed.values.Range(func(key, value any) bool {
		return value.(cacheEntry[struct{}]).at.Before(since) || each(key.(Endpoint))
	})
}

// Derive returns a Service's frontends.
func (*Index) Derive(decisions []selection.Decision) any {
	var frontends []Frontend
	for i := range decisions {
		if d := &decisions[i]; !d.Service.IsHeadless && len(d.Frontends) > 0 {
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
		sources: model.SortPrefixes(d.Sources), origins: newAttributions(d),
	}
	var here []netip.AddrPort
	port.clusterEndpoints, here, port.establishedOnly = d.AllowedEndpoints()
	port.clusterEndpoints = slices.Clone(port.clusterEndpoints) // without room for more
	slices.SortFunc(port.clusterEndpoints, netip.AddrPort.Compare)
	slices.SortFunc(port.establishedOnly, netip.AddrPort.Compare)
	frontends := make([]Frontend, 0, len(d.Frontends))
	for _, owned := range d.Frontends {
		f := Frontend{Port: port, Frontend: owned.Frontend, Kind: owned.Kind}
		if f.internalLocal, f.externalLocal = d.IsLocalOnly(owned.Kind); f.internalLocal || f.externalLocal {
			port.localEndpoints = here
		}
		frontends = append(frontends, f)
	}
	slices.SortFunc(port.localEndpoints, netip.AddrPort.Compare)
	return frontends
}

// OnApplied replaces the applied frontends of a Service.
func (r *Index) OnApplied(service model.ObjectName, digest any) {
	now, _ := digest.([]Frontend)
	before := r.frontends(service)
	for i := range before {
		r.changes = append(r.changes, change{&before[i], true})
	}
	for i := range now {
		now[i].changed = r.next
		r.changes = append(r.changes, change{&now[i], false})
	}
	r.recordRemoved(before, now)
	if len(now) == 0 {
		r.applied.Delete(service)
		return
	}
	r.applied.Store(service, now)
}

func (r *Index) frontends(service model.ObjectName) []Frontend {
	found, _ := r.applied.Load(service)
	frontends, _ := found.([]Frontend)
	return frontends
}

// OnFrontendsLost removes frontends from a Service.
func (r *Index) OnFrontendsLost(service model.ObjectName, frontends []model.Frontend) {
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
		r.recordRemoved(before, kept)
		r.applied.Store(service, kept)
	}
}

// OnMaybeApplied records frontends to which the kernel may have sent connections, although the following sync does not
// contain them.
func (r *Index) OnMaybeApplied(_ model.ObjectName, digest any) {
	frontends, _ := digest.([]Frontend)
	r.uncertain = append(r.uncertain, frontends...)
}

// OnSynced publishes the next snapshot.
func (r *Index) OnSynced(sync selection.SyncState) {
	now := time.Now()
	previous := r.current.Load()
	if previous == nil {
		previous = &Snapshot{RemovedKnownSince: now, changed: map[model.Family]uint64{}}
		defer close(r.complete)
	}
	next := *previous
	next.Scope, next.Number = sync.Scope, r.next
	apply(&next, r.changes)
	r.recordUncertain(now)
	r.recordChanges(&next, sync, now)
	r.changes, r.uncertain = nil, nil
	r.next++
	for endpoint := range r.removing {
		r.removed.put(endpoint, struct{}{}, now)
	}
	if r.removed.expire(now) {
		next.RemovedKnownSince = now
	}
	hasLeft := len(r.removing) > 0 || next.RemovedKnownSince.Equal(now)
	r.removing = map[Endpoint]bool{}
	r.current.Store(&next)
	if hasLeft || len(next.ChangedAfter(previous.Number)) > 0 {
		r.changed.Notify()
	}
}

// recordUncertain marks endpoints as removed that may have been applied for a moment. The snapshot shows which of them
// may still be used.
func (r *Index) recordUncertain(now time.Time) {
	var last *Port
	for i := range r.uncertain {
		port := r.uncertain[i].Port
		r.changes = append(r.changes, change{&r.uncertain[i], true})
		if port == last {
			continue
		}
		last = port
		r.markRemoved(port, port.clusterEndpoints)
		for _, endpoint := range port.origins.endpoints {
			r.formerEndpoints.put(formerKey{port.Service, Endpoint{port.Protocol, endpoint.addr}}, endpoint.origin, now)
		}
	}
}

// recordChanges retains frontends that no Service has any more, or that another Service has now. It also records which
// UDP flows may be stale.
func (r *Index) recordChanges(next *Snapshot, sync selection.SyncState, now time.Time) {
	for _, change := range r.changes {
		frontend := change.Frontend.Frontend
		owner := next.frontend(frontend)
		if change.isDeleted && (owner == nil || owner.Service != change.Service) {
			gone := &Port{Service: change.Service, Name: change.Name, Protocol: change.Port.Protocol, origins: change.origins}
			r.formerFrontends.put(frontend, &Frontend{Port: gone, Frontend: frontend, Kind: change.Kind, changed: next.Number}, now)
		}
		if owner == nil || owner.changed == next.Number {
			next.recordChange(change.Frontend)
		}
	}
	if sync.Full {
		next.rewritten = next.Number
	}
	if addrs := serving(sync); !slices.Equal(r.nodePorts, addrs) {
		r.nodePorts, next.moved = addrs, next.Number
	}
	if max(next.rewritten, next.moved) == next.Number {
		for _, shard := range next.shards {
			for _, f := range shard {
				if next.isChanged(f, next.Number-1) {
					next.recordChange(f)
				}
			}
		}
	}
	r.formerFrontends.expire(now)
	r.formerEndpoints.expire(now)
}

// serving returns the interface addresses on which node ports are served.
func serving(sync selection.SyncState) []netip.Addr {
	addrs := slices.Clone(sync.Scope.NodePorts)
	for _, addr := range sync.LocalAddrs {
		if slices.Contains(sync.Scope.OnAll, model.FamilyOf(addr)) && !addr.IsLoopback() {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// apply applies changes to a snapshot that is not published yet. It copies each shard that changes once, because other
// snapshots share it.
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
		case !change.isDeleted:
			in[change.Frontend.Frontend] = change.Frontend
		case owner != nil && owner.Service == change.Service: // otherwise another Service already has it
			delete(in, change.Frontend.Frontend)
		}
	}
}

// recordRemoved records endpoints that some clients of some frontends may no longer use. A remaining frontend keeps its
// previous changed number if none of its connections can have become stale.
func (r *Index) recordRemoved(before, now []Frontend) {
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
			inside, outside = stays.internalEndpoints(), stays.externalEndpoints()
			if ports := [2]*Port{old.Port, stays.Port}; ports != last {
				last = ports
				departed = r.recordFormer(old.Port, stays.Port)
			}
		}
		openLeft := stays != nil && slices.ContainsFunc(old.establishedOnly, func(endpoint netip.AddrPort) bool {
			return !contains(stays.clusterEndpoints, endpoint) && !contains(stays.establishedOnly, endpoint)
		})
		insideLeft := r.recordRemovedFrom(old.Port, old.internalEndpoints(), inside, compared)
		outsideLeft := r.recordRemovedFrom(old.Port, old.externalEndpoints(), outside, compared)
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

// recordFormer retains the locations of the endpoints that a port no longer has, and reports whether there are any.
func (r *Index) recordFormer(old, now *Port) (departed bool) {
	if old == now {
		return false
	}
	for _, endpoint := range old.origins.endpoints {
		if now.origins.find(endpoint.addr) == nil {
			r.formerEndpoints.put(formerKey{old.Service, Endpoint{old.Protocol, endpoint.addr}}, endpoint.origin, time.Now())
			departed = true
		}
	}
	return departed
}

// recordRemovedFrom records the endpoints of a list that are missing in a newer one, and reports whether there are any.
// The frontends of a port share their lists, so compared holds the results of earlier calls.
func (r *Index) recordRemovedFrom(port *Port, before, now []netip.AddrPort, compared map[[2]*netip.AddrPort]bool) bool {
	lists := [2]*netip.AddrPort{first(before), first(now)}
	left, isKnown := compared[lists]
	if isKnown || slices.Equal(before, now) {
		return left
	}
	gone := slices.DeleteFunc(slices.Clone(before), func(endpoint netip.AddrPort) bool { return contains(now, endpoint) })
	r.markRemoved(port, gone)
	compared[lists] = len(gone) > 0
	return len(gone) > 0
}

func first(list []netip.AddrPort) *netip.AddrPort {
	if len(list) == 0 {
		return nil
	}
	return &list[0]
}

func (r *Index) markRemoved(port *Port, endpoints []netip.AddrPort) {
	for _, endpoint := range endpoints {
		r.removing[Endpoint{port.Protocol, endpoint}] = true
	}
}
