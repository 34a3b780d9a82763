package bench_test

import (
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
)

// evacuationRow has the times of one step, from the change to the last commit.
type evacuationRow struct {
	step    string
	took    []time.Duration
	written int // maximum number of elements
}

// BenchmarkEvacuation measures the time to evacuate a node with a third of the endpoints of 10,000 Services of ten
// each, and to restore it.
func BenchmarkEvacuation(b *testing.B) {
	rows := []evacuationRow{{step: "one of three nodes is evacuated"}, {step: "it is restored"}}
	for b.Loop() {
		measureEvacuation(b, rows)
	}
	results.evacuation = rows
}

func measureEvacuation(b *testing.B, rows []evacuationRow) {
	b.Helper()
	size := size{10_000, 10, false}
	cluster := size.cluster()
	for name, slice := range cluster.Slices {
		cluster.Services[name].Topology.Keys = []policy.Key{policy.AnyNode}
		for i := range slice.Endpoints {
			slice.Endpoints[i].Node = fmt.Sprintf("worker-%d", i%3)
		}
	}
	m := newMachine(b)
	p := syncer.New(m.Name, config, m.tables)
	p.Apply(cluster)
	p.Apply(m.nodeChange())
	sync(b, p)
	for step, evacuation := range []*model.Demotion{{}, nil} {
		row := &rows[step]
		started := time.Now()
		p.Apply(model.Change{Demotions: map[model.DemotionKey]*model.Demotion{{Node: "worker-1"}: evacuation}})
		wrote := 0
		for {
			report := sync(b, p)
			wrote += written(report)
			if report.Waiting == 0 {
				break
			}
		}
		row.took, row.written = append(row.took, time.Since(started)), max(row.written, wrote)
	}
}

func printEvacuation(w io.Writer) {
	fmt.Fprint(w, "\nAn evacuation, 10,000 x 10 on three nodes\n\n")
	fmt.Fprintln(w, "step\tsamples\tmedian\tmax\tmax elements written\t")
	for _, row := range results.evacuation {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%d\t\n", row.step, len(row.took), median(row.took).Round(time.Microsecond),
			slices.Max(row.took).Round(time.Microsecond), row.written)
	}
	fmt.Fprintln(w)
}
