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

// OtherTier counts the keys that are not named, and all keys of a Service beyond its pairs of proximity and tier.
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
	zones    map[zonePair]*Traffic
	services *serviceCounts // nil unless counted by Service
	tracker  flowTracker
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

// buckets are counts by proximity and tier.
type buckets map[bucketKey]*Count

type bucketKey struct {
	proximity serviceindex.Proximity
	tier      string
}

func (b buckets) bucket(key bucketKey) *Count {
	count := b[key]
	if count == nil {
		count = &Count{}
		b[key] = count
	}
	return count
}

// zonePair is this node's zone and the zone of an endpoint.
type zonePair struct{ source, endpoint string }

// NewCounters returns Counters with zero counts.
func NewCounters(settings Settings) *Counters {
	c := &Counters{
		tiers: map[string]bool{"*": true, selection.TierHint: true, selection.TierNone: true},
		node:  buckets{}, zones: map[zonePair]*Traffic{}, tracker: newFlowTracker(),
	}
	for _, key := range settings.Keys {
		c.tiers[key] = true
	}
	if settings.PerService {
		c.services = newServiceCounts(settings.MaxServices)
	}
	return c
}

// add adds the counts of a connection.
func (c *Counters) add(origin *serviceindex.Attribution, count Count, now time.Time) {
	if count == (Count{}) {
		return
	}
	key := bucketKey{origin.Placement.Proximity, origin.Placement.Tier}
	if !c.tiers[key.tier] {
		key.tier = OtherTier
	}
	c.node.bucket(key).add(count)
	c.zoneTraffic(origin.Placement).add(count.Traffic)
	if c.services != nil {
		c.services.counterFor(origin, key, now).add(count)
	}
}

func (c *Counters) zoneTraffic(placement serviceindex.Placement) *Traffic {
	pair := zonePair{placement.OwnZone, placement.Zone}
	traffic := c.zones[pair]
	if traffic == nil && len(c.zones) >= maxNamedZones {
		pair = zonePair{otherZones, otherZones}
		traffic = c.zones[pair]
	}
	if traffic == nil {
		traffic = &Traffic{}
		c.zones[pair] = traffic
	}
	return traffic
}

// OnDestroy counts the not yet counted traffic of a connection whose entry was destroyed. origin is the result of
// serviceindex.Index.AttributeEnded.
func (c *Counters) OnDestroy(e *conntrack.Entry, origin *serviceindex.Attribution, now time.Time) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if attribution, count := c.tracker.onDestroy(e, origin); attribution != nil {
		c.add(attribution, count, now)
	}
}

// BeginDump starts a dump.
func (c *Counters) BeginDump() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.tracker.beginDump()
}

// OnEntry counts the not yet counted traffic of an entry of the current dump. origin is the result of
// serviceindex.Index.Attribute, and atEnd that of AttributeEnded.
func (c *Counters) OnEntry(e *conntrack.Entry, origin, atEnd *serviceindex.Attribution, now time.Time) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if attribution, count := c.tracker.onEntry(e, origin, atEnd); attribution != nil {
		c.add(attribution, count, now)
	}
}

// EndDump ends a dump. isComplete reports whether it had all entries. Services that were deleted at least
// seriesRetention ago lose their series.
func (c *Counters) EndDump(isComplete bool, exists func(model.ObjectName) bool, now time.Time) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.tracker.endDump(isComplete, now)
	if c.services != nil {
		c.services.expire(exists, now)
	}
}

// Row is the count of a Service, or of all Services, for one proximity and tier.
type Row struct {
	Service   model.ObjectName // zero for all unnamed Services together
	Proximity serviceindex.Proximity
	Tier      string
	Count
}

// Node yields the totals of all Services.
func (c *Counters) Node(yield func(Row)) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.node.rows(model.ObjectName{}, yield)
}

// Services yields the counts by Service. All unnamed Services share one row per proximity and tier.
func (c *Counters) Services(yield func(Row)) {
	if c.services == nil {
		return
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.services.unnamedCounts.rows(model.ObjectName{}, yield)
	for name, service := range c.services.named {
		service.counts.rows(name, yield)
	}
}

func (b buckets) rows(service model.ObjectName, yield func(Row)) {
	for key, count := range b {
		yield(Row{service, key.proximity, key.tier, *count})
	}
}

// Zones yields the bytes between this node's zone and each endpoint zone. The name of an unknown zone is empty.
func (c *Counters) Zones(yield func(own, endpoint string, traffic Traffic)) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for pair, traffic := range c.zones {
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
func (c *Counters) State() State {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return State{Tracked: len(c.tracker.flows), Missed: c.tracker.missed}
}
