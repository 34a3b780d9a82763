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
	// nextNumber is the number of the sync whose decisions are being applied.
	nextNumber uint64
	// nodePortAddrs are the interface addresses on which node ports are served.
	nodePortAddrs []netip.Addr

	// removed are endpoints that some frontend may no longer use; removing are those since the end of the last sync.
	removed  ttlCache[Endpoint, struct{}]
	removing map[Endpoint]bool
	changed  notify.Signal
	// formerFrontends are frontends that their Service lost; formerEndpoints are endpoints that a Service no longer has.
	formerFrontends ttlCache[model.Frontend, *Frontend]
	formerEndpoints ttlCache[formerKey, *Attribution]
}

// formerTTL is how long the Service of a removed frontend and the placement of a removed endpoint are retained: a TCP
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

// New returns an empty Index. removedTTL is how long Removed and RangeRemoved report a removed endpoint.
func New(removedTTL time.Duration) *Index {
	return &Index{
		removing: map[Endpoint]bool{}, complete: make(chan struct{}), changed: notify.NewSignal(), nextNumber: 1,
		removed:         ttlCache[Endpoint, struct{}]{ttl: removedTTL},
		formerFrontends: ttlCache[model.Frontend, *Frontend]{ttl: formerTTL},
		formerEndpoints: ttlCache[formerKey, *Attribution]{ttl: formerTTL},
	}
}

// Snapshot returns the state that the last sync applied; nil before the end of the first sync.
func (x *Index) Snapshot() *Snapshot { return x.current.Load() }

// Complete returns a channel that is closed after the first sync: from then on all Services are known.
func (x *Index) Complete() <-chan struct{} { return x.complete }

// Has reports whether any frontend of a Service is applied.
func (x *Index) Has(service model.ObjectName) bool {
	_, has := x.applied.Load(service)
	return has
}

// Changed returns a channel that signals that endpoints were removed, or that UDP flows may have become stale for
// another reason. The signal is sent when the snapshot contains the change.
func (x *Index) Changed() <-chan struct{} { return x.changed }

// Removed reports whether some frontend may no longer use an endpoint. Other frontends may still use it, or the same
// one again.
func (x *Index) Removed(endpoint Endpoint) bool {
	_, isRemoved := x.removed.get(endpoint)
	return isRemoved
}

// RangeRemoved calls each for the endpoints removed since a time, until each returns false.
func (x *Index) RangeRemoved(since time.Time, each func(Endpoint) bool) {
	x.removed.values.Range(func(key, value any) bool {
		return value.(cacheEntry[struct{}]).putAt.Before(since) || each(key.(Endpoint))
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
		sources: model.SortPrefixes(d.Sources), attributions: newAttributions(d),
	}
	var localEndpoints []netip.AddrPort
	port.clusterEndpoints, localEndpoints, port.establishedOnly = d.AllowedEndpoints()
	port.clusterEndpoints = slices.Clone(port.clusterEndpoints) // without room for more
	slices.SortFunc(port.clusterEndpoints, netip.AddrPort.Compare)
	slices.SortFunc(port.establishedOnly, netip.AddrPort.Compare)
	frontends := make([]Frontend, 0, len(d.Frontends))
	for _, owned := range d.Frontends {
		f := Frontend{Port: port, Frontend: owned.Frontend, Kind: owned.Kind}
		if f.internalLocal, f.externalLocal = d.IsLocalOnly(owned.Kind); f.internalLocal || f.externalLocal {
			port.localEndpoints = localEndpoints
		}
		frontends = append(frontends, f)
	}
	slices.SortFunc(port.localEndpoints, netip.AddrPort.Compare)
	return frontends
}

// OnApplied replaces the applied frontends of a Service.
func (x *Index) OnApplied(service model.ObjectName, derived any) {
	current, _ := derived.([]Frontend)
	previous := x.frontends(service)
	for i := range previous {
		x.changes = append(x.changes, change{&previous[i], true})
	}
	for i := range current {
		current[i].lastChanged = x.nextNumber
		x.changes = append(x.changes, change{&current[i], false})
	}
	x.recordRemoved(previous, current)
	if len(current) == 0 {
		x.applied.Delete(service)
		return
	}
	x.applied.Store(service, current)
}

func (x *Index) frontends(service model.ObjectName) []Frontend {
	found, _ := x.applied.Load(service)
	frontends, _ := found.([]Frontend)
	return frontends
}

// OnFrontendsLost removes frontends from a Service.
func (x *Index) OnFrontendsLost(service model.ObjectName, frontends []model.Frontend) {
	lost := make(map[model.Frontend]bool, len(frontends))
	for _, frontend := range frontends {
		lost[frontend] = true
	}
	previous := x.frontends(service)
	var kept []Frontend
	for i := range previous {
		if lost[previous[i].Frontend] {
			x.changes = append(x.changes, change{&previous[i], true})
		} else {
			kept = append(kept, previous[i])
		}
	}
	if len(kept) < len(previous) {
		x.recordRemoved(previous, kept)
		x.applied.Store(service, kept)
	}
}

// OnMaybeApplied records frontends to which the kernel may have sent connections, although the following sync does not
// contain them.
func (x *Index) OnMaybeApplied(_ model.ObjectName, derived any) {
	frontends, _ := derived.([]Frontend)
	x.uncertain = append(x.uncertain, frontends...)
}

// OnSynced publishes the next snapshot.
func (x *Index) OnSynced(sync selection.SyncState) {
	now := time.Now()
	previous := x.current.Load()
	if previous == nil {
		previous = &Snapshot{RemovalsRecordedSince: now, lastChanged: map[model.Family]uint64{}}
		defer close(x.complete)
	}
	next := *previous
	next.Scope, next.Number = sync.Scope, x.nextNumber
	apply(&next, x.changes)
	x.recordUncertain(now)
	x.recordChanges(&next, sync, now)
	x.changes, x.uncertain = nil, nil
	x.nextNumber++
	for endpoint := range x.removing {
		x.removed.put(endpoint, struct{}{}, now)
	}
	if x.removed.expire(now) {
		next.RemovalsRecordedSince = now
	}
	hasRemoved := len(x.removing) > 0 || next.RemovalsRecordedSince.Equal(now)
	x.removing = map[Endpoint]bool{}
	x.current.Store(&next)
	if hasRemoved || len(next.ChangedAfter(previous.Number)) > 0 {
		x.changed.Notify()
	}
}

// recordUncertain marks endpoints as removed that may have been applied for a moment. The snapshot shows which of them
// may still be used.
func (x *Index) recordUncertain(now time.Time) {
	var last *Port
	for i := range x.uncertain {
		port := x.uncertain[i].Port
		x.changes = append(x.changes, change{&x.uncertain[i], true})
		if port == last {
			continue
		}
		last = port
		x.markRemoved(port, port.clusterEndpoints)
		for _, endpoint := range port.attributions.endpoints {
			x.formerEndpoints.put(formerKey{port.Service, Endpoint{port.Protocol, endpoint.addr}}, endpoint.attribution, now)
		}
	}
}

// recordChanges retains frontends that no Service has any more, or that another Service has now. It also records which
// UDP flows may be stale.
func (x *Index) recordChanges(next *Snapshot, sync selection.SyncState, now time.Time) {
	for _, c := range x.changes {
		frontend := c.Frontend.Frontend
		owner := next.frontend(frontend)
		if c.isDeleted && (owner == nil || owner.Service != c.Service) {
			formerPort := &Port{Service: c.Service, Name: c.Name, Protocol: c.Port.Protocol, attributions: c.attributions}
			x.formerFrontends.put(frontend, &Frontend{Port: formerPort, Frontend: frontend, Kind: c.Kind, lastChanged: next.Number}, now)
		}
		if owner == nil || owner.lastChanged == next.Number {
			next.recordChange(c.Frontend)
		}
	}
	if sync.Full {
		next.lastFullSync = next.Number
	}
	if addrs := servingAddrs(sync); !slices.Equal(x.nodePortAddrs, addrs) {
		x.nodePortAddrs, next.lastNodePortsChange = addrs, next.Number
	}
	if max(next.lastFullSync, next.lastNodePortsChange) == next.Number {
		for _, shard := range next.shards {
			for _, f := range shard {
				if next.isChanged(f, next.Number-1) {
					next.recordChange(f)
				}
			}
		}
	}
	x.formerFrontends.expire(now)
	x.formerEndpoints.expire(now)
}

// servingAddrs returns the interface addresses on which node ports are served.
func servingAddrs(sync selection.SyncState) []netip.Addr {
	addrs := slices.Clone(sync.Scope.NodePorts)
	for _, addr := range sync.LocalAddrs {
		if slices.Contains(sync.Scope.AllAddrFamilies, model.FamilyOf(addr)) && !addr.IsLoopback() {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// apply applies changes to a snapshot that is not published yet. It copies each shard that changes once, because other
// snapshots share it.
func apply(next *Snapshot, changes []change) {
	var copied [shards]bool
	for _, c := range changes {
		shard := shardOf(c.Frontend.Frontend)
		if !copied[shard] {
			copied[shard] = true
			old := next.shards[shard]
			next.shards[shard] = make(map[model.Frontend]*Frontend, len(old)+1)
			maps.Copy(next.shards[shard], old)
		}
		target := next.shards[shard]
		switch owner := target[c.Frontend.Frontend]; {
		case !c.isDeleted:
			target[c.Frontend.Frontend] = c.Frontend
		case owner != nil && owner.Service == c.Service: // otherwise another Service already has it
			delete(target, c.Frontend.Frontend)
		}
	}
}

// recordRemoved records endpoints that some clients of some frontends may no longer use. A remaining frontend keeps its
// previous lastChanged if none of its connections can have become stale.
func (x *Index) recordRemoved(previous, current []Frontend) {
	remaining := make(map[model.Frontend]*Frontend, len(current))
	for i := range current {
		remaining[current[i].Frontend] = &current[i]
	}
	compared := map[[2]*netip.AddrPort]bool{}
	var last [2]*Port
	hasFormer := false
	for i := range previous {
		old := &previous[i]
		var internal, external []netip.AddrPort
		remaining := remaining[old.Frontend]
		if remaining != nil {
			internal, external = remaining.internalEndpoints(), remaining.externalEndpoints()
			if ports := [2]*Port{old.Port, remaining.Port}; ports != last {
				last = ports
				hasFormer = x.recordFormer(old.Port, remaining.Port)
			}
		}
		establishedRemoved := remaining != nil && slices.ContainsFunc(old.establishedOnly, func(endpoint netip.AddrPort) bool {
			return !contains(remaining.clusterEndpoints, endpoint) && !contains(remaining.establishedOnly, endpoint)
		})
		internalRemoved := x.recordRemovedFrom(old.Port, old.internalEndpoints(), internal, compared)
		externalRemoved := x.recordRemovedFrom(old.Port, old.externalEndpoints(), external, compared)
		if remaining == nil {
			continue
		}
		sourcesChanged := len(remaining.sources) > 0 && !slices.Equal(old.sources, remaining.sources)
		if internalRemoved || externalRemoved || establishedRemoved || sourcesChanged || old.IsNodePort() && hasFormer || !old.IsServed() &&
			remaining.IsServed() {
			continue
		}
		remaining.lastChanged = old.lastChanged
	}
}

// recordFormer retains the placements of the endpoints that a port no longer has, and reports whether there are any.
func (x *Index) recordFormer(old, current *Port) (hasFormer bool) {
	if old == current {
		return false
	}
	for _, endpoint := range old.attributions.endpoints {
		if current.attributions.find(endpoint.addr) == nil {
			x.formerEndpoints.put(formerKey{old.Service, Endpoint{old.Protocol, endpoint.addr}}, endpoint.attribution, time.Now())
			hasFormer = true
		}
	}
	return hasFormer
}

// recordRemovedFrom records the endpoints of a list that are missing in a newer one, and reports whether there are any.
// The frontends of a port share their lists, so compared holds the results of earlier calls.
func (x *Index) recordRemovedFrom(port *Port, old, current []netip.AddrPort, compared map[[2]*netip.AddrPort]bool) bool {
	lists := [2]*netip.AddrPort{first(old), first(current)}
	hasRemoved, isKnown := compared[lists]
	if isKnown || slices.Equal(old, current) {
		return hasRemoved
	}
	removed := slices.DeleteFunc(slices.Clone(old), func(endpoint netip.AddrPort) bool { return contains(current, endpoint) })
	x.markRemoved(port, removed)
	compared[lists] = len(removed) > 0
	return len(removed) > 0
}

func first(list []netip.AddrPort) *netip.AddrPort {
	if len(list) == 0 {
		return nil
	}
	return &list[0]
}

func (x *Index) markRemoved(port *Port, endpoints []netip.AddrPort) {
	for _, endpoint := range endpoints {
		x.removing[Endpoint{port.Protocol, endpoint}] = true
	}
}
