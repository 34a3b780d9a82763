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

// Settings are what is counted.
type Settings struct {
	// PerService: count by Service too, with at most MaxServices of them named.
	PerService  bool
	MaxServices int
	// Keys are the topology keys that are named, beside "*". All others are chosen by tenants, and count as OtherTier.
	Keys []string
}

// OtherTier is where keys count that are not named, and all keys of a Service for which there is no more room.
const OtherTier = "other"

// otherZones is where zones beyond mostZones count: anybody who writes EndpointSlices can invent zones. First come,
// first named: a zone that had its name taken away would be a counter that goes back. So after a restart others may be
// named. No decision depends on these names, and all bytes are counted under one of them.
const (
	otherZones    = "other"
	maxNamedZones = 64
)

// Counters adds up connections and bytes. Its methods may be called by several goroutines, each of which holds the ledger for
// as long as it takes to count one connection, or to read all sums.
type Counters struct {
	mutex    sync.Mutex
	tiers    map[string]bool
	node     buckets
	zones    map[zones]*Traffic
	services *services // nil unless counted by Service
	follower flowTracker
}

// Count is what is counted.
type Count struct {
	// Connections were answered, Refused by a reset, and Unanswered not at all.
	Connections, Refused, Unreplied uint64
	Traffic
}

// Traffic is bytes, headers included: Sent by the client, and Received.
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

// zones are this node's zone and an endpoint's.
type zones struct{ source, endpoint string }

// NewCounters returns a ledger of nothing yet.
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

// add adds what was counted of a connection.
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

// OnDestroy counts what is not yet counted of an entry that has ended. The origin is what serviceindex.Reader.OfEnded returns.
func (l *Counters) OnDestroy(e *conntrack.Entry, origin *serviceindex.Attribution, now time.Time) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if of, count := l.follower.onDestroy(e, origin); of != nil {
		l.add(of, count, now)
	}
}

// BeginDump says that a dump begins.
func (l *Counters) BeginDump() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.follower.beginDump()
}

// OnEntry counts what is not yet counted of an entry of the dump that is going on. Origin is what serviceindex.Reader.Of returns,
// and atEnd what OfEnded does.
func (l *Counters) OnEntry(e *conntrack.Entry, origin, atEnd *serviceindex.Attribution, now time.Time) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if of, count := l.follower.onEntry(e, origin, atEnd); of != nil {
		l.add(of, count, now)
	}
}

// EndDump says that a dump is over, and whether it had all entries. Services that are gone for long lose their series.
func (l *Counters) EndDump(isWhole bool, exists func(model.ObjectName) bool, now time.Time) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.follower.endDump(isWhole, now)
	if l.services != nil {
		l.services.expire(exists, now)
	}
}

// Row is what was counted for a Service, or for all Services, at one place.
type Row struct {
	Service  model.ObjectName // zero for all that are not named
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

// Services yields the counts by Service. All Services that are not named share one without a name.
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

// Zones yields the bytes between this node's zone and each endpoint zone. An unknown zone is empty.
func (l *Counters) Zones(yield func(own, endpoint string, traffic Traffic)) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for pair, traffic := range l.zones {
		yield(pair.source, pair.endpoint, *traffic)
	}
}

// State is how full the bounded part is, and what was missed.
type State struct {
	// Tracked is how many flows are followed before they end, of mostFollowed.
	Tracked int
	Missed
}

// State returns the present state.
func (l *Counters) State() State {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return State{Tracked: len(l.follower.flows), Missed: l.follower.missed}
}
