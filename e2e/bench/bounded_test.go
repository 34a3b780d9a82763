package bench_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
)

// These are the numbers of the cluster with load bounds.
const (
	boundedNodes, boundedZones = 5000, 10
	// replanInterval is the interval at which added or removed nodes lead to new plans for all Services.
	replanInterval = 10 * time.Second
)

// boundedRow has the times of one step with topology keys, and with the same keys and a load bound.
type boundedRow struct {
	step           string
	plain, bounded []time.Duration
	written        int // maximum number of elements with a bound
}

// boundedState is the state after the first sync.
type boundedState struct {
	elements   int
	slotChains int    // chains that select a slot, one for each slot count
	heap       uint64 // in use by the process, with all objects
}

// BenchmarkBounded measures the cost of load bounds: 10,000 Services of ten endpoints each on 5,000 nodes, compared
// with the same Services with only the same topology keys.
func BenchmarkBounded(b *testing.B) {
	rows := map[string]*boundedRow{}
	steps := []string{"first sync", "an endpoint is replaced", "a node is added: CPU time of all syncs"}
	for _, step := range steps {
		rows[step] = &boundedRow{step: step}
	}
	for b.Loop() {
		for i, limit := range []uint64{0, 120} {
			record := func(step string, took time.Duration, written int) {
				row := rows[step]
				if limit == 0 {
					row.plain = append(row.plain, took)
					return
				}
				row.bounded, row.written = append(row.bounded, took), max(row.written, written)
			}
			results.boundedStates[i] = measureBounded(b, limit, record)
		}
	}
	for _, step := range steps {
		results.bounded = append(results.bounded, *rows[step])
	}
}

func measureBounded(b *testing.B, limit uint64, record func(step string, took time.Duration, written int)) boundedState {
	b.Helper()
	size := size{10_000, 10, false}
	cluster := boundedCluster(size, limit)
	m := newMachine(b)
	local := m.nodeChange()
	local.Nodes[m.Name].Labels = boundedNode(m.Name, 0).Labels
	p := syncer.New(m.Name, config, m.tables)
	p.Apply(cluster)
	p.Apply(local)
	started := time.Now()
	report := sync(b, p)
	record("first sync", time.Since(started), written(report))
	state := boundedState{elements: written(report), slotChains: countSlotChains(b, m), heap: heap()}
	for round := range 2000 {
		number := size.scattered(round)
		slice := cluster.Slices[serviceName(number)]
		changed := *slice
		changed.Endpoints = slices.Clone(slice.Endpoints)
		changed.Endpoints[round%10].Addr = size.replace(number, round).Slices[slice.Name].Endpoints[round%size.endpoints].Addr
		change := model.Change{Slices: map[model.ObjectName]*model.EndpointSlice{slice.Name: &changed}}
		started := time.Now()
		p.Apply(change)
		report := sync(b, p)
		record("an endpoint is replaced", time.Since(started), written(report))
	}
	for round := range 3 {
		if limit > 0 {
			time.Sleep(replanInterval)
		}
		name := fmt.Sprintf("new-%d", round)
		took, wrote := syncUntilIdle(b, p, model.Change{Nodes: map[string]*model.Node{name: boundedNode(name, round%boundedZones)}})
		record("a node is added: CPU time of all syncs", took, wrote)
	}
	return state
}

// countSlotChains counts the chains that select a slot.
func countSlotChains(b *testing.B, m *machine) (count int) {
	b.Helper()
	objects, err := m.tables.Objects(b.Context(), model.IPv4)
	if err != nil {
		b.Fatal(err)
	}
	for _, chain := range objects.Chains {
		if strings.HasPrefix(chain, "lb-") {
			count++
		}
	}
	return count
}

// heap returns the bytes of the heap in use, without garbage.
func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// syncUntilIdle applies a change, and syncs until no change is queued. It returns the CPU time and the number of written
// elements.
func syncUntilIdle(b *testing.B, p *syncer.Proxy, change model.Change) (took time.Duration, wrote int) {
	b.Helper()
	before := cpuTime(b)
	p.Apply(change)
	for {
		report := sync(b, p)
		wrote += written(report)
		if report.Waiting == 0 {
			return cpuTime(b) - before, wrote
		}
	}
}

// cpuTime returns the CPU time that this process has used, including the kernel's work for it.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func boundedNode(name string, zone int) *model.Node {
	return &model.Node{Name: name, Labels: map[string]string{string(policy.Zone): fmt.Sprintf("zone-%d", zone)}}
}

// boundedCluster returns a cluster with a load bound of limit percent, or none if limit is 0. It distributes the
// endpoints over the nodes at random.
func boundedCluster(s size, limit uint64) model.Change {
	random := rand.New(rand.NewPCG(1, 1))
	cluster := s.cluster()
	cluster.Nodes, cluster.AllNodes = map[string]*model.Node{}, new(true)
	for number := range boundedNodes {
		name := fmt.Sprintf("worker-%d", number)
		cluster.Nodes[name] = boundedNode(name, number%boundedZones)
	}
	for number := range s.services {
		service := cluster.Services[serviceName(number)]
		service.Topology = policy.Topology{Keys: []policy.Key{policy.Zone, policy.AnyNode}, MaxLoad: limit}
		endpoints := cluster.Slices[service.Name].Endpoints
		for i := range endpoints {
			node := random.IntN(boundedNodes)
			endpoints[i].Node, endpoints[i].Zone = fmt.Sprintf("worker-%d", node), fmt.Sprintf("zone-%d", node%boundedZones)
		}
	}
	return cluster
}
