package bench_test

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// manyClients is slightly below the maximum number of clients in a map of the default size.
const manyClients = 60_000

// affinityRow has the times of one step for Services with session affinity, and for the same Services without it.
type affinityRow struct {
	step          string
	without, with time.Duration
}

// BenchmarkAffinity measures the cost of session affinity for a sync: of a cluster in which every Service has it,
// compared with the same cluster without it; and of the removal of one endpoint with many clients.
func BenchmarkAffinity(b *testing.B) {
	const plain, affinity, full = 0, 1, 2
	var took [3]map[string][]time.Duration
	for b.Loop() {
		for kind := range took {
			if took[kind] == nil {
				took[kind] = map[string][]time.Duration{}
			}
			for step, times := range affinitySteps(b, kind != plain, kind == full) {
				took[kind][step] = append(took[kind][step], times...)
			}
		}
	}
	medianOf := func(kind int, step string) time.Duration { return median(took[kind][step]) }
	for _, step := range []string{"first sync", "restart", "an endpoint is replaced"} {
		results.affinity = append(results.affinity, affinityRow{step, medianOf(plain, step), medianOf(affinity, step)})
	}
	const replaced = "an endpoint is replaced"
	results.affinity = append(results.affinity, affinityRow{"the same, 60,000 clients", medianOf(plain, replaced), medianOf(full, replaced)})
}

func affinitySteps(b *testing.B, affinity, full bool) map[string][]time.Duration {
	b.Helper()
	size := size{10_000, 10, false}
	cluster := size.cluster()
	for _, service := range cluster.Services {
		if affinity {
			service.AffinityTimeout = 3 * time.Hour
		}
	}
	m := newMachine(b)
	took := map[string][]time.Duration{}
	timed := func(step string, work func()) {
		started := time.Now()
		work()
		took[step] = append(took[step], time.Since(started))
	}
	p := m.proxyOf(cluster)
	timed("first sync", func() { sync(b, p) })
	p = m.proxyOf(cluster)
	timed("restart", func() { sync(b, p) })
	if full {
		for shard := range uint32(16) {
			m.fillAffinityShard(b, shard)
		}
	}
	for round := range 200 {
		number := round * 49
		change := model.Change{Slices: map[model.ObjectName]*model.EndpointSlice{serviceName(number): size.slice(number, 10)}}
		for _, slice := range change.Slices {
			slice.Endpoints[0].Addr = netip.AddrFrom4([4]byte{172, 16, byte(round >> 8), byte(round)})
		}
		timed("an endpoint is replaced", func() {
			p.Apply(change)
			sync(b, p)
		})
	}
	return took
}

// fillAffinityShard fills the map of a shard with clients, as packets do.
func (m *machine) fillAffinityShard(b *testing.B, shard uint32) {
	b.Helper()
	clients := make([]ruleset.Element, manyClients/16)
	for i := range clients {
		var client [4]byte
		binary.BigEndian.PutUint32(client[:], 0x64400000+uint32(i))
		clients[i] = ruleset.Element{
			Key:   ruleset.Tuple{Number: 0xf0000000 + shard<<8, Addr: netip.AddrFrom4(client)},
			Value: ruleset.Tuple{Number: 0xf2000000 + shard<<8},
		}
	}
	add := ruleset.Op{Verb: ruleset.Add, Object: ruleset.ElementsObject{
		Set: ruleset.Affinity(shard), Elements: slices.Values(clients)}}
	if err := m.tables.Commit(b.Context(), ruleset.Batch{Ops: []ruleset.Op{add}}); err != nil {
		b.Fatal(err)
	}
}
