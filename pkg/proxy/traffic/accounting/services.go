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
	// PairsPerService is the number of pairs of proximity and tier per named Service, on average. Each pair is a series in
	// three metrics. Every Service has one pair of each proximity with OtherTier for itself; the rest form a common pool.
	PairsPerService = 2 * len(serviceindex.Proximities)
	// maxPooledPairs is the maximum number of pairs of the pool that one Service may have.
	maxPooledPairs = 16
	// seriesRetention is how long a Service must have been deleted before its series are deleted.
	seriesRetention = time.Hour
)

// serviceCounts has the counts by Service, for a bounded number of named Services. Slots for named Services and pairs
// of the pool go to the Services that have traffic first. But a namespace with fewer of them takes one from a namespace
// with more, until all namespaces that need some have equally many. The counts of a slot or pair are dropped with it: a
// counter may restart, but must not jump.
type serviceCounts struct {
	named         map[model.ObjectName]*namedService
	unnamedCounts buckets
	quota         *fair.Quota // slots for named Services
	pool          *fair.Quota // pairs of the common pool
}

// namedService is the state of a Service with series of its own.
type namedService struct {
	counts      buckets
	pooledPairs int       // pairs of the common pool
	lastTraffic time.Time // when the Service last had traffic
	deletedAt   time.Time // since when the Service does not exist; zero if it exists
}

func newServiceCounts(limit int) *serviceCounts {
	return &serviceCounts{
		named: map[model.ObjectName]*namedService{}, unnamedCounts: buckets{},
		quota: fair.NewQuota(limit), pool: fair.NewQuota(limit * (PairsPerService - len(serviceindex.Proximities))),
	}
}

// counterFor returns the counter for a connection of a Service.
func (s *serviceCounts) counterFor(origin *serviceindex.Attribution, key bucketKey, now time.Time) *Count {
	service := s.acquireSlot(origin.Service)
	if service == nil {
		return s.unnamedCounts.bucket(key)
	}
	service.lastTraffic = now
	count := service.counts[key]
	if count != nil {
		return count
	}
	if key.tier != OtherTier {
		if service.pooledPairs < maxPooledPairs && s.takePair(origin.Service.Namespace) {
			service.pooledPairs++
		} else {
			key.tier = OtherTier
		}
	}
	return service.counts.bucket(key)
}

// acquireSlot returns the state of a named Service, after giving it a slot if it has none; nil if there is no free
// slot.
func (s *serviceCounts) acquireSlot(name model.ObjectName) *namedService {
	state := s.named[name]
	if state == nil {
		if s.quota.Free() == 0 && s.quota.ShouldRelease(name.Namespace) {
			s.releaseSlot()
		}
		if !s.quota.Acquire(name.Namespace) {
			return nil
		}
		state = &namedService{counts: buckets{}}
		s.named[name] = state
	}
	return state
}

// releaseSlot frees the slot of a Service in a namespace with the most slots: the Service whose last traffic is oldest.
func (s *serviceCounts) releaseSlot() {
	var victim model.ObjectName
	var oldest *namedService
	for name, service := range s.named {
		if s.quota.Used(name.Namespace) == s.quota.MaxUsed() && (oldest == nil || service.isEvictedBefore(oldest, name, victim)) {
			victim, oldest = name, service
		}
	}
	s.remove(victim)
}

// isEvictedBefore reports whether a Service loses its slot before another one.
func (n *namedService) isEvictedBefore(other *namedService, name, otherName model.ObjectName) bool {
	return cmp.Or(n.lastTraffic.Compare(other.lastTraffic), name.Compare(otherName)) < 0
}

func (s *serviceCounts) remove(name model.ObjectName) {
	for range s.named[name].pooledPairs {
		s.pool.Release(name.Namespace)
	}
	s.quota.Release(name.Namespace)
	delete(s.named, name)
}

// takePair takes a pair of the pool for a namespace. If none is free, a namespace that has more loses one: of its
// Service with the most pairs, the pair with the fewest connections. Those connections count under OtherTier from then
// on.
func (s *serviceCounts) takePair(namespace string) bool {
	if s.pool.Free() == 0 && s.pool.ShouldRelease(namespace) {
		var victim model.ObjectName
		var largest *namedService
		for name, service := range s.named {
			if s.pool.Used(name.Namespace) == s.pool.MaxUsed() && (largest == nil || service.pooledPairs > largest.pooledPairs ||
				service.pooledPairs == largest.pooledPairs && service.isEvictedBefore(largest, name, victim)) {
				victim, largest = name, service
			}
		}
		largest.dropSmallestPair()
		s.pool.Release(victim.Namespace)
	}
	return s.pool.Acquire(namespace)
}

// dropSmallestPair drops the pooled pair with the fewest connections.
func (n *namedService) dropSmallestPair() {
	var least *bucketKey
	for key, count := range n.counts {
		if key.tier != OtherTier && (least == nil || cmp.Or(
			cmp.Compare(count.Connections, n.counts[*least].Connections),
			cmp.Compare(key.proximity, least.proximity), cmp.Compare(key.tier, least.tier)) < 0) {
			least = &key
		}
	}
	delete(n.counts, *least)
	n.pooledPairs--
}

// expire drops the Services that were deleted at least seriesRetention ago.
func (s *serviceCounts) expire(exists func(model.ObjectName) bool, now time.Time) {
	for name, service := range s.named {
		switch {
		case exists(name):
			service.deletedAt = time.Time{}
		case service.deletedAt.IsZero():
			service.deletedAt = now
		case now.Sub(service.deletedAt) >= seriesRetention:
			s.remove(name)
		}
	}
}
