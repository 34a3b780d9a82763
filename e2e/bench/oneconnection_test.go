package bench_test

import (
	"runtime"
	"slices"
	"testing"
	"time"
)

// siteSizes are the sizes of the clusters.
var siteSizes = []size{{10, 5, true}, {10_000, 5, true}, {50_000, 5, true}}

// Connections are made in short rounds, each over one path in one cluster, so that other load on the machine affects
// all alike.
const (
	roundsPerIteration  = 100
	connectionsPerRound = 50
)

// connections has the measurements of the connections over a path.
type connections struct {
	connects []time.Duration // in order of time
	total    time.Duration
	accepted map[int]int // number of connections by server
}

// BenchmarkOneConnection measures connections from a pod to a pod on another node. Only their first packets pass our
// rules.
func BenchmarkOneConnection(b *testing.B) {
	var sites []*site
	for _, size := range siteSizes {
		sites = append(sites, newSite(b, size))
	}
	alternate(b, sites, 0) // resolves neighbours and warms caches
	for _, site := range sites {
		for _, path := range site.paths {
			path.results = connections{accepted: map[int]int{}}
		}
	}
	runtime.GC()
	rounds := 0
	for b.Loop() {
		for range roundsPerIteration {
			alternate(b, sites, rounds)
			rounds++
		}
	}
	for number := range sites[0].paths {
		for _, site := range sites {
			site.record(b, number, rounds*connectionsPerRound)
		}
	}
	for number, smallest := range sites[0].paths {
		largest := sites[len(sites)-1].paths[number]
		b.ReportMetric(ratio(median(largest.results.connects), median(smallest.results.connects)), "x-smallest:"+smallest.metric)
	}
}

// alternate makes some connections by every path in every site. Each round starts with another site and path, so that
// no site always follows the same one.
func alternate(b *testing.B, sites []*site, round int) {
	b.Helper()
	for i := range sites {
		site := sites[(round+i)%len(sites)]
		for j := range site.paths {
			if err := site.dial(site.paths[(round+j)%len(site.paths)]); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// dial makes some connections over a path, one after the other.
func (s *site) dial(path *path) error {
	return s.dialler.pod.Do(func() error {
		for range connectionsPerRound {
			conn, err := s.dialler.connect(path.next())
			if err != nil {
				return err
			}
			path.results.connects = append(path.results.connects, conn.connect)
			path.results.total += conn.total
			path.results.accepted[conn.server]++
		}
		return nil
	})
}

// record adds a row to the table, and checks the number of connections and that they reached all endpoints.
func (s *site) record(b *testing.B, number, want int) {
	b.Helper()
	path, floor := s.paths[number], s.paths[0]
	accepted := 0
	for _, connections := range path.results.accepted {
		accepted += connections
	}
	if accepted != want || len(path.results.accepted) != s.size.endpoints {
		b.Errorf("%s, %s: %d endpoints accepted %d connections, want %d to accept %d",
			path.name, s.size, len(path.results.accepted), accepted, s.size.endpoints, want)
	}
	row := connectRow{path: path.name, size: s.size, p50: median(path.results.connects), floor: median(floor.results.connects)}
	row.perSecond = float64(accepted) / path.results.total.Seconds()
	row.fastestTenth, row.slowestTenth = row.p50, row.p50
	for tenth := range slices.Chunk(path.results.connects, len(path.results.connects)/10) {
		row.fastestTenth, row.slowestTenth = min(row.fastestTenth, median(tenth)), max(row.slowestTenth, median(tenth))
	}
	row.p99 = percentile(slices.Sorted(slices.Values(path.results.connects)), 99)
	results.connects = append(results.connects, row)
}
