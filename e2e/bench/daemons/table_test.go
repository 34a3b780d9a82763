package daemons_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"text/tabwriter"
	"time"
)

// row has the results of one proxy at one size of the cluster.
type row struct {
	daemon   string
	services int
	// ready is the time from the start of the program to the first connection through a Service, settling the time until
	// it was idle after that.
	ready, settling time.Duration
	idleMemory      int64
	idle, loaded    cost
	// paths are the times of changes without other changes, loadedPaths those under load.
	paths, loadedPaths []time.Duration
	rate               float64 // changes per second under load
	memory, peak       int64
}

// results are the benchmark's results, for the table.
var results []row

const heading = `
Whole daemons against a real API server, with %d endpoints a Service; kube-proxy in nftables mode, in the same run
first connection: from the start of the program. new path: from the write of an EndpointSlice, including the request, to the first packet,
without and with other changes
idle, loaded: CPU time in %s without changes, and with %d endpoint changes per second (changes/s: the rate that the API server accepted),
including the programs that it ran. memory: resident, of the daemon alone: idle, after the load, and the peak

`

// TestMain prints the tables after the benchmarks. With listKubeconfig set, the program is a client that lists objects.
func TestMain(m *testing.M) {
	if kubeconfig := os.Getenv(listKubeconfig); kubeconfig != "" {
		if err := listAll(kubeconfig); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	status := m.Run()
	if len(starts) > 0 {
		printStarts(starts)
	}
	if len(annotations) > 0 {
		printAnnotations(annotations)
	}
	if len(results) > 0 {
		printTable(results)
	}
	os.Exit(status)
}

func printTable(rows []row) {
	fmt.Printf(heading, endpointsPerService, measureDuration, changesPerSecond)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "Services\tproxy\tfirst connection\tnew path p50\tp99\tsamples\tidle\tloaded\tchanges/s\t"+
		"new path p50\tp99\tsamples\tmemory idle\tloaded\tpeak\t")
	for _, row := range rows {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%.0f\t%s\t%d MiB\t%d MiB\t%d MiB\t\n", row.services, row.daemon, millis(row.ready),
			formatTimes(row.paths), row.idle.cpu, row.loaded.cpu, row.rate, formatTimes(row.loadedPaths),
			row.idleMemory>>20, row.memory>>20, row.peak>>20)
	}
	if err := w.Flush(); err != nil {
		panic(err)
	}
}

func printStarts(rows []startRow) {
	fmt.Print("\nStarts, from the start of the program (medians; listing: bare client-go that lists Services and EndpointSlices\n" +
		"from the same API server, concurrently, and exits; connection: the first one through a Service, of the proxy)\n\n")
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "Services x endpoints\tlisting\tconnection\tsamples\tconnection/listing\tidle memory\tpeak\t")
	for _, row := range rows {
		listed, connected := percentile(slices.Sorted(slices.Values(row.listed)), 50), percentile(slices.Sorted(slices.Values(row.connected)), 50)
		fmt.Fprintf(w, "%dx%d\t%s\t%s\t%d\t%.2f\t%d MiB\t%d MiB\t\n", row.services, row.endpoints, millis(listed), millis(connected),
			len(row.connected), connected.Seconds()/listed.Seconds(), row.memory>>20, row.peak>>20)
	}
	if err := w.Flush(); err != nil {
		panic(err)
	}
}

// formatTimes formats the p50 and the p99 of some times, and their number.
func formatTimes(times []time.Duration) string {
	sorted := slices.Sorted(slices.Values(times))
	return fmt.Sprintf("%s\t%s\t%d", millis(percentile(sorted, 50)), millis(percentile(sorted, 99)), len(sorted))
}

func millis(t time.Duration) time.Duration { return t.Round(100 * time.Microsecond) }

func percentile(sorted []time.Duration, percent int) time.Duration {
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)]
}
