//go:build linux

package accounting

import (
	"sync"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/serviceindex"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// Settings configure what is counted.
type Settings struct {
	// PerService enables counts by Service, with at most MaxServices of them named.
	PerService  bool
	MaxServices int
	// Keys are the topology keys that are named, in addition to "*". Tenants choose all other keys; those count as
	// OtherTier.
	Keys []string
}

// OtherTier counts the keys that are not named, and all keys of a Service beyond its pairs of locality and tier.
const OtherTier = "other"

// otherZones counts the zones beyond maxNamedZones, because anyone who can write EndpointSlices can invent zones. Zones
// are named in the order of their first traffic: if a zone lost its name, its counter would decrease. So after a
// restart other zones may be named. No decision depends on these names, and all bytes are counted under one of them.
const (
	otherZones    = "other"
	maxNamedZones = 64
)

// Counters adds up connections and bytes. It is safe for concurrent use. Its mutex is held for as long as it takes to
// count one connection, or to read all sums.
type Counters struct {
	mutex    sync.Mutex
	tiers    map[string]bool
	node     buckets
	zones    map[zones]*Traffic
	services *services // nil unless counted by Service
	follower flowTracker
}

// Count is a number of connections with their bytes.
type Count struct {
	// Connections have a reply, Refused ones were reset, and Unreplied ones have no reply.
	Connections, Refused, Unreplied uint64
	Traffic
}

// Traffic is a number of bytes, including headers, Sent and Received by the client.
type Traffic struct{ Sent, Received uint64 }

func (c *Count) add(more Count) {
	c.Connections += more.Connections
	c.Refused += more.Refused
	c.Unreplied += more.Unreplied
	c.Traffic.add(more.Traffic)
}

func (t *Traffic) add(more Traffic) {
	t.Sent += more.Sent
	t.Received += more.Received
}

// buckets are counts by locality and tier.
type buckets map[bucketKey]*Count

type bucketKey struct {
	locality serviceindex.Locality
	tier     string
}

func (c buckets) bucket(where bucketKey) *Count {
	count := c[where]
	if count == nil {
		count = &Count{}
		c[where] = count
	}
	return count
}

// zones are this node's zone and the zone of an endpoint.
type zones struct{ source, endpoint string }

// NewCounters returns Counters with zero counts.
func NewCounters(settings Settings) *Counters {
	l := &Counters{
		tiers: map[string]bool{"*": true, selection.TierHint: true, selection.TierNone: true},
		node:  buckets{}, zones: map[zones]*Traffic{}, follower: newFollower(),
	}
	for _, key := range settings.Keys {
		l.tiers[key] = true
	}
	if settings.PerService {
		l.services = newServices(settings.MaxServices)
	}
	return l
}

// add adds the counts of a connection.
func (l *Counters) add(origin *serviceindex.Attribution, count Count, now time.Time) {
	if count == (Count{}) {
		return
	}
	where := bucketKey{origin.Location.Locality, origin.Location.Tier}
	if !l.tiers[where.tier] {
		where.tier = OtherTier
	}
	l.node.bucket(where).add(count)
	l.zoneTraffic(origin.Location).add(count.Traffic)
	if l.services != nil {
		l.services.at(origin, where, now).add(count)
	}
}

func (l *Counters) zoneTraffic(location serviceindex.Location) *Traffic {
	pair := zones{location.OwnZone, location.Zone}
	traffic := l.zones[pair]
	if traffic == nil && len(l.zones) >= maxNamedZones {
		pair = zones{otherZones, otherZones}
		traffic = l.zones[pair]
	}
	if traffic == nil {
		traffic = &Traffic{}
		l.zones[pair] = traffic
	}
	return traffic
}

// OnDestroy counts the not yet counted traffic of a connection whose entry was destroyed. origin is the result of
// serviceindex.Index.OfEnded.
func (l *Counters) OnDestroy(e *conntrack.Entry, origin *serviceindex.Attribution, now time.Time) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if of, count := l.follower.onDestroy(e, origin); of != nil {
		l.add(of, count, now)
	}
}

// BeginDump starts a dump.
func (l *Counters) BeginDump() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.follower.beginDump()
}

// OnEntry counts the not yet counted traffic of an entry of the current dump. origin is the result of
// serviceindex.Index.Attribute, and atEnd that of OfEnded.
func (l *Counters) OnEntry(e *conntrack.Entry, origin, atEnd *serviceindex.Attribution, now time.Time) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if of, count := l.follower.onEntry(e, origin, atEnd); of != nil {
		l.add(of, count, now)
	}
}

// EndDump ends a dump. isWhole reports whether it had all entries. Services that were deleted long ago lose their
// series.
func (l *Counters) EndDump(isWhole bool, exists func(model.ObjectName) bool, now time.Time) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.follower.endDump(isWhole, now)
	if l.services != nil {
		l.services.expire(exists, now)
	}
}

// Row is the count of a Service, or of all Services, for one locality and tier.
type Row struct {
	Service  model.ObjectName // zero for all unnamed Services together
	Locality serviceindex.Locality
	Tier     string
	Count
}

// Node yields the totals of all Services.
func (l *Counters) Node(yield func(Row)) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.node.rows(model.ObjectName{}, yield)
}

// Services yields the counts by Service. All unnamed Services share one row per locality and tier.
func (l *Counters) Services(yield func(Row)) {
	if l.services == nil {
		return
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.services.unnamedCounts.rows(model.ObjectName{}, yield)
	for name, of := range l.services.named {
		of.cells.rows(name, yield)
	}
}

func (c buckets) rows(service model.ObjectName, yield func(Row)) {
	for where, count := range c {
		yield(Row{service, where.locality, where.tier, *count})
	}
}

// Zones yields the bytes between this node's zone and each endpoint zone. The name of an unknown zone is empty.
func (l *Counters) Zones(yield func(own, endpoint string, traffic Traffic)) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for pair, traffic := range l.zones {
		yield(pair.source, pair.endpoint, *traffic)
	}
}

// State is the number of tracked flows and of missed connections.
type State struct {
	// Tracked is the number of flows that are tracked before they end, at most maxTracked.
	Tracked int
	Missed
}

// State returns the current state.
func (l *Counters) State() State {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return State{Tracked: len(l.follower.flows), Missed: l.follower.missed}
}
