package daemons_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"text/tabwriter"
	"time"
)

// row is what was found of one proxy at one size of the cluster.
type row struct {
	daemon   string
	services int
	// ready is from the start of the program to the first connection through a Service, quiet how long it worked on after that.
	ready, quiet time.Duration
	idleMemory   int64
	idle, loaded cost
	paths        []time.Duration
	behind       time.Duration
	rate         float64 // of changes under load, a second
	memory, peak int64
}

// results are what the benchmark found, for the table.
var results []row

const heading = `
Whole daemons against a real API server, with %d endpoints a Service; kube-proxy in nftables mode, in the same run
first connection: from the start of the program. new path: from the write of an EndpointSlice, the request included, to the first packet
idle, loaded: processor time in %s without changes, and with %d endpoint changes a second (changes/s: as many as the API server took), the
programs that it ran included
behind: the new path while the changes go on. memory: resident, of the daemon alone, after idling, after the load, and at most

`

// TestMain prints the table after the benchmark.
func TestMain(m *testing.M) {
	status := m.Run()
	if len(results) > 0 {
		printTable(results)
	}
	os.Exit(status)
}

func printTable(rows []row) {
	fmt.Printf(heading, endpointsPerService, watched, changesPerSecond)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "Services\tproxy\tfirst connection\tnew path p50\tp99\tof\tidle\tloaded\tchanges/s\tbehind\tmemory idle\tloaded\tmost\t")
	for _, row := range rows {
		slices.Sort(row.paths)
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%.0f\t%s\t%d MiB\t%d MiB\t%d MiB\t\n", row.services, row.daemon, millis(row.ready),
			millis(percentile(row.paths, 50)), millis(percentile(row.paths, 99)), len(row.paths), row.idle.processor, row.loaded.processor,
			row.rate, millis(row.behind), row.idleMemory>>20, row.memory>>20, row.peak>>20)
	}
	if err := w.Flush(); err != nil {
		panic(err)
	}
}

func millis(t time.Duration) time.Duration { return t.Round(100 * time.Microsecond) }

func percentile(sorted []time.Duration, percent int) time.Duration {
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)]
}
