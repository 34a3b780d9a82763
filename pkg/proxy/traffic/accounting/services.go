//go:build linux

package accounting

import (
	"cmp"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/fair"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/serviceindex"
)

const (
	// CellsPerService is the number of pairs of locality and tier per named Service, on average. Each pair is a series in
	// three metrics. Every Service has one pair of each locality with OtherTier for itself; the rest form a common pool.
	CellsPerService = 2 * len(serviceindex.Localities)
	// maxPooledSeries is the maximum number of pairs of the pool that one Service may have.
	maxPooledSeries = 16
	// seriesRetention is how long a Service must have been deleted before its series are deleted.
	seriesRetention = time.Hour
)

// services are the counts by Service, for a bounded number of named Services. Slots for named Services and pairs of the
// pool go to the Services that have traffic first. But a namespace with fewer of them takes one from a namespace with
// more, until all namespaces that need some have equally many. The counts of a slot or pair are dropped with it: a
// counter may restart, but must not jump.
type services struct {
	named         map[model.ObjectName]*named
	unnamedCounts buckets
	quota         *fair.Quota // slots for named Services
	pool          *fair.Quota // pairs of the common pool
}

// named is the state of a Service with series of its own.
type named struct {
	cells        buckets
	pooledSeries int       // pairs of the common pool
	last         time.Time // when the Service last had traffic
	deletedAt    time.Time // since when the Service does not exist; zero if it exists
}

func newServices(most int) *services {
	return &services{
		named: map[model.ObjectName]*named{}, unnamedCounts: buckets{},
		quota: fair.NewQuota(most), pool: fair.NewQuota(most * (CellsPerService - len(serviceindex.Localities))),
	}
}

// at returns the counter for a connection of a Service.
func (s *services) at(origin *serviceindex.Attribution, where bucketKey, now time.Time) *Count {
	of := s.name(origin.Service)
	if of == nil {
		return s.unnamedCounts.bucket(where)
	}
	of.last = now
	count := of.cells[where]
	if count != nil {
		return count
	}
	if where.tier != OtherTier {
		if of.pooledSeries < maxPooledSeries && s.takePair(origin.Service.Namespace) {
			of.pooledSeries++
		} else {
			where.tier = OtherTier
		}
	}
	return of.cells.bucket(where)
}

// name returns the series of a Service; nil if there is no free slot.
func (s *services) name(service model.ObjectName) *named {
	of := s.named[service]
	if of == nil {
		if s.quota.Free() == 0 && s.quota.ShouldRelease(service.Namespace) {
			s.releaseSlot()
		}
		if !s.quota.Acquire(service.Namespace) {
			return nil
		}
		of = &named{cells: buckets{}}
		s.named[service] = of
	}
	return of
}

// releaseSlot frees the slot of a Service in a namespace with the most slots: the Service whose last traffic is oldest.
func (s *services) releaseSlot() {
	var victim model.ObjectName
	var least *named
	for name, of := range s.named {
		if s.quota.Used(name.Namespace) == s.quota.MaxUsed() && (least == nil || of.comesBefore(least, name, victim)) {
			victim, least = name, of
		}
	}
	s.remove(victim)
}

// comesBefore reports whether a Service loses its slot before another one.
func (n *named) comesBefore(other *named, name, otherName model.ObjectName) bool {
	return cmp.Or(n.last.Compare(other.last), name.Compare(otherName)) < 0
}

func (s *services) remove(name model.ObjectName) {
	for range s.named[name].pooledSeries {
		s.pool.Release(name.Namespace)
	}
	s.quota.Release(name.Namespace)
	delete(s.named, name)
}

// takePair takes a pair of the pool for a namespace. If none is free, a namespace that has more loses one: of its
// Service with the most pairs, the pair with the fewest connections. Those connections count under OtherTier from then
// on.
func (s *services) takePair(namespace string) bool {
	if s.pool.Free() == 0 && s.pool.ShouldRelease(namespace) {
		var victim model.ObjectName
		var largest *named
		for name, of := range s.named {
			if s.pool.Used(name.Namespace) == s.pool.MaxUsed() && (largest == nil || of.pooledSeries > largest.pooledSeries ||
				of.pooledSeries == largest.pooledSeries && of.comesBefore(largest, name, victim)) {
				victim, largest = name, of
			}
		}
		largest.giveUpPair()
		s.pool.Release(victim.Namespace)
	}
	return s.pool.Acquire(namespace)
}

// giveUpPair drops the pooled pair with the fewest connections.
func (n *named) giveUpPair() {
	var least *bucketKey
	for where, count := range n.cells {
		if where.tier != OtherTier && (least == nil || cmp.Or(
			cmp.Compare(count.Connections, n.cells[*least].Connections),
			cmp.Compare(where.locality, least.locality), cmp.Compare(where.tier, least.tier)) < 0) {
			least = &where
		}
	}
	delete(n.cells, *least)
	n.pooledSeries--
}

// expire drops the Services that were deleted at least seriesRetention ago.
func (s *services) expire(exists func(model.ObjectName) bool, now time.Time) {
	for name, of := range s.named {
		switch {
		case exists(name):
			of.deletedAt = time.Time{}
		case of.deletedAt.IsZero():
			of.deletedAt = now
		case now.Sub(of.deletedAt) >= seriesRetention:
			s.remove(name)
		}
	}
}
