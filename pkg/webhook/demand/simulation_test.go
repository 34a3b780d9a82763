package demand_test

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand"
)

const (
	interval = 30 * time.Second
	bound    = 1.2
)

// simulation is a Service whose clients connect at random.
type simulation struct {
	rng       *rand.Rand
	estimator demand.Estimator
	endpoints map[string]float64 // each zone's share of the endpoints
	assumed   map[string]float64
	// published and publishedOpen are the shares of new and open connections for which nodes plan.
	published, publishedOpen map[string]float64
	nodes                    int                         // how many nodes of each zone connect; 0 means that nodes are not counted
	allNodes                 int                         // of the cluster
	open                     map[string]*openConnections // by zone; nil means that none are counted
	hideOpen                 bool                        // set if proxies do not report them
	now                      time.Duration
	publishedAt              []time.Duration
	reasons                  map[demand.Reason]int
}

func newSimulation(seed uint64, endpoints, assumed map[string]float64) *simulation {
	return &simulation{
		rng: rand.New(rand.NewPCG(seed, 37)), endpoints: endpoints, assumed: assumed, published: assumed, allNodes: 10_000,
		reasons: map[demand.Reason]int{},
	}
}

// step simulates an interval of connections, for a rate per second and each zone's share of it.
func (s *simulation) step(rate float64, byZone map[string]float64) demand.Decision {
	s.now += interval
	sample := demand.Sample{Took: interval, Nodes: s.allNodes, Zones: map[string]float64{}, Open: map[string]float64{}}
	for _, zone := range slices.Sorted(maps.Keys(byZone)) {
		for range max(s.nodes, 1) {
			count := poisson(s.rng, rate*interval.Seconds()*byZone[zone]/float64(max(s.nodes, 1)))
			sample.Zones[zone] += count
			if s.nodes > 0 {
				sample.Pairs += count * (count - 1)
			}
		}
		if s.open != nil {
			if open := s.open[zone].add(s.rng, s.now, sample.Zones[zone]); !s.hideOpen {
				sample.Open[zone] = open
			}
		}
	}
	d := s.estimator.Add(sample, s.assumed)
	s.reasons[d.Reason]++
	switch d.Reason {
	case demand.First, demand.Changed:
		s.publishedAt = append(s.publishedAt, s.now)
		s.published, s.publishedOpen = d.Shares, d.Open
		s.estimator.SetPublished(d.Shares, d.Open, d.EffectiveNodes)
	case demand.BelowThreshold:
		s.published, s.publishedOpen = s.assumed, nil
		s.estimator.SetPublished(nil, nil, 0)
	case demand.InsufficientData, demand.Unchanged:
	}
	return d
}

// publishedSince returns how often shares were published after a time.
func (s *simulation) publishedSince(since time.Duration) int {
	count := 0
	for _, at := range s.publishedAt {
		if at > since {
			count++
		}
	}
	return count
}

// plan returns what fraction of its connections each zone keeps, and what fraction of the rest each zone gets, if nodes
// plan with the published shares. The plan is for the keys "zone, *": each zone keeps what its endpoints can take, and
// the rest goes where there is capacity left.
func (s *simulation) plan() (kept, spilled map[string]float64) {
	kept, spilled = map[string]float64{}, map[string]float64{}
	free := 0.0
	for _, zone := range slices.Sorted(maps.Keys(s.endpoints)) {
		limit, planned := bound*s.endpoints[zone], s.published[zone]
		kept[zone] = min(1, limit/planned)
		spilled[zone] = limit - planned*kept[zone]
		free += spilled[zone]
	}
	for zone := range spilled {
		spilled[zone] /= free
	}
	return kept, spilled
}

// loads returns the connections of each zone's endpoints, given those of its clients.
func (s *simulation) loads(demand map[string]float64) map[string]float64 {
	kept, spilled := s.plan()
	spill, loads := 0.0, map[string]float64{}
	for _, zone := range slices.Sorted(maps.Keys(demand)) {
		spill += demand[zone] * (1 - kept[zone])
	}
	for zone := range s.endpoints {
		loads[zone] = demand[zone]*kept[zone] + spill*spilled[zone]
	}
	return loads
}

// maxLoad returns the load of the endpoints in the most loaded zone, relative to the mean, for the actual demand.
func (s *simulation) maxLoad(demand map[string]float64) float64 {
	highest := 0.0
	for zone, load := range s.loads(demand) {
		highest = max(highest, load/s.endpoints[zone])
	}
	return highest
}

func poisson(rng *rand.Rand, mean float64) float64 {
	if mean > 50 {
		return max(0, math.Round(mean+math.Sqrt(mean)*rng.NormFloat64()))
	}
	count, product := 0.0, rng.Float64()
	for limit := math.Exp(-mean); product > limit; product *= rng.Float64() {
		count++
	}
	return count
}

func threeZones() map[string]float64 {
	return map[string]float64{"a": 4. / 11, "b": 4. / 11, "c": 3. / 11}
}

// clusterShapes are clusters: each zone's share of the endpoints, and of the nodes.
func clusterShapes() map[string]map[string]float64 {
	return map[string]map[string]float64{
		"4-4-3":    threeZones(),
		"6-1-1":    {"a": 6. / 8, "b": 1. / 8, "c": 1. / 8},
		"40-1-1-1": {"a": 40. / 43, "b": 1. / 43, "c": 1. / 43, "d": 1. / 43},
	}
}

// blendShares returns a weighted mean of two distributions.
func blendShares(one, other map[string]float64, weight float64) map[string]float64 {
	byZone := map[string]float64{}
	for zone := range one {
		byZone[zone] = one[zone]*(1-weight) + other[zone]*weight
	}
	return byZone
}
