package bench_test

import (
	"fmt"
	"io"
	"os"
	"slices"
	"testing"
	"text/tabwriter"
	"time"
)

// results are the results of the benchmarks, for the tables.
var results struct {
	first    []firstSyncRow
	changes  []changeRow
	beside   []othersRow
	connects []connectRow
	steep    []tenantRow
	affinity []affinityRow
	fair     []fairRow
	bounded  []boundedRow
	// boundedStates are the states without and with a load bound.
	boundedStates [2]boundedState
	busy          []busyRow

	evacuation []evacuationRow
	looks      []dumpRow
}

type firstSyncRow struct {
	size     size
	elements int
	sync     time.Duration
	// floor is the time of one transaction with everything, inBatches the time of the first sync's transactions.
	floor, inBatches time.Duration
	// fastestRatio is the ratio of the fastest sync to the fastest floor, which other load on the machine affects least.
	fastestRatio float64
	peak         int64
}

type changeRow struct {
	event, cluster string
	samples
}

// connectRow has the times of connections over one path in one cluster. The tenths are tenths of the run in order of
// time; the spread of their medians is the noise.
type connectRow struct {
	path                       string
	size                       size
	perSecond                  float64
	p50, p99, floor            time.Duration
	fastestTenth, slowestTenth time.Duration
}

// TestMain prints the tables after the benchmarks.
func TestMain(m *testing.M) {
	status := m.Run()
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	if len(results.first) > 0 {
		printFirst(w)
	}
	if len(results.changes) > 0 {
		printChanges(w)
	}
	if len(results.beside) > 0 {
		printWithOthers(w)
	}
	if len(results.connects) > 0 {
		printConnects(w)
	}
	if len(results.steep) > 0 {
		printTenants(w)
	}
	if len(results.affinity) > 0 {
		printAffinity(w)
	}
	if len(results.fair) > 0 {
		printFair(w)
	}
	if len(results.busy) > 0 {
		printBusy(w)
	}
	if len(results.bounded) > 0 {
		printBounded(w)
	}
	if len(results.evacuation) > 0 {
		printEvacuation(w)
	}
	if len(results.looks) > 0 {
		printDumps(w)
	}
	if err := w.Flush(); err != nil {
		panic(err)
	}
	os.Exit(status)
}

func printFirst(w io.Writer) {
	fmt.Fprint(w, "\nFirst sync, from the objects to the accepted commit (medians)\n")
	fmt.Fprint(w, "floor: the kernel alone, with the same bytes in one transaction; in batches: in the transactions of a first sync\n")
	fmt.Fprint(w, "A mix: 80 % ClusterIP, 15 % NodePort, 5 % LoadBalancer with three source ranges, a quarter of these Local\n\n")
	fmt.Fprintln(w, "Services x endpoints\telements\tsync\tfloor\tsync/floor\tfastest sync/floor\tin batches\telements/s\t"+
		"floor's elements/s\tpeak memory\t")
	for _, row := range results.first {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%.2f\t%.2f\t%s\t%.0f\t%.0f\t%d MiB\t\n", row.size, row.elements,
			row.sync.Round(time.Millisecond), row.floor.Round(time.Millisecond), ratio(row.sync, row.floor), row.fastestRatio,
			row.inBatches.Round(time.Millisecond),
			float64(row.elements)/row.sync.Seconds(), float64(row.elements)/row.floor.Seconds(), row.peak>>20)
	}
	fmt.Fprintln(w)
}

func printChanges(w io.Writer) {
	fmt.Fprint(w, "\nOne event, from the object to the accepted commit and the cleanup after it\n\n")
	fmt.Fprintln(w, "event\tServices x endpoints\tevents\tmax elements written\tp50\tp99\t")
	for _, row := range results.changes {
		p50, p99 := percentile(row.times, 50).Round(time.Microsecond), percentile(row.times, 99).Round(time.Microsecond)
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\t\n", row.event, row.cluster, len(row.times), row.written, p50, p99)
	}
	fmt.Fprintln(w)
}

func printWithOthers(w io.Writer) {
	fmt.Fprintf(w, "\nOne event in a small cluster, %s, alone and with other users' Services (medians)\n\n", changedSize)
	fmt.Fprintln(w, "event\tothers\tsamples\talone\twith others\twith/alone\t")
	for _, row := range results.beside {
		alone, withOthers := median(row.alone), median(row.withOthers)
		fmt.Fprintf(w, "%s\t%d %s\t%d\t%s\t%s\t%.1f\t\n", row.event, row.count, row.others, len(row.alone),
			alone.Round(time.Microsecond), withOthers.Round(time.Microsecond), ratio(withOthers, alone))
	}
	fmt.Fprintln(w)
}

func printTenants(w io.Writer) {
	fmt.Fprintf(w, "\nOne tenant's worst load, next to %s Services: a ratio of 2 is linear, 4 quadratic\n\n", sharedCluster)
	fmt.Fprintln(w, "objects\tstep\tonce\ttwice\ttwice/once\t")
	for _, row := range results.steep {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.1f\t\n", row.name, row.step,
			row.single.Round(10*time.Microsecond), row.double.Round(10*time.Microsecond), ratio(row.double, row.single))
	}
	fmt.Fprintln(w)
}

func printAffinity(w io.Writer) {
	fmt.Fprint(w, "\nSession affinity: 10,000 x 10, all Services with it, and the same Services without\n\n")
	fmt.Fprintln(w, "step\twithout\twith\twith/without\t")
	for _, row := range results.affinity {
		fmt.Fprintf(w, "%s\t%s\t%s\t%.1f\t\n", row.step,
			row.without.Round(time.Microsecond), row.with.Round(time.Microsecond), ratio(row.with, row.without))
	}
	fmt.Fprintln(w)
}

func printBusy(w io.Writer) {
	fmt.Fprint(w, "\nA restart with 10,000 x 10, next to foreign nftables rulesets\n\n")
	fmt.Fprintln(w, "foreign ruleset\tsamples\tfirst sync p50\tmax\tratio to none\t")
	for _, row := range results.busy {
		p50 := median(row.restarts)
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%.1f\t\n", row.foreign, len(row.restarts), p50.Round(time.Millisecond),
			slices.Max(row.restarts).Round(time.Millisecond), ratio(p50, median(results.busy[0].restarts)))
	}
	fmt.Fprintln(w)
}

func printBounded(w io.Writer) {
	fmt.Fprintf(w, "\nLoad bound: 10,000 x 10 on %d nodes in %d zones, topology keys without and with a bound\n\n",
		boundedNodes, boundedZones)
	fmt.Fprintln(w, "step\tsamples\tkeys p50\tp99\twith a bound p50\tp99\tbound/keys\tmax elements written\t")
	for _, row := range results.bounded {
		plain, bounded := slices.Sorted(slices.Values(row.plain)), slices.Sorted(slices.Values(row.bounded))
		roundedPercentile := func(times []time.Duration, percent int) time.Duration {
			return percentile(times, percent).Round(time.Microsecond)
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%.1f\t%d\t\n", row.step, len(bounded), roundedPercentile(plain, 50), roundedPercentile(plain, 99),
			roundedPercentile(bounded, 50), roundedPercentile(bounded, 99), ratio(percentile(bounded, 50), percentile(plain, 50)), row.written)
	}
	fmt.Fprintln(w, "\nafter the first sync\telements\tslot counts\theap\t")
	for i, name := range []string{"keys", "with a bound"} {
		state := results.boundedStates[i]
		fmt.Fprintf(w, "%s\t%d\t%d\t%d MiB\t\n", name, state.elements, state.slotChains, state.heap>>20)
	}
	fmt.Fprintln(w)
}

func printFair(w io.Writer) {
	fmt.Fprintf(w, "\nLatency of changes of %s other Services while one tenant writes its worst load as fast as it can\n\n", sharedCluster)
	fmt.Fprintln(w, "objects\ttenant's changes\tothers' changes\tp50\tp99\tmax\t")
	for _, row := range results.fair {
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\t\n", row.name, row.tenants, row.changes,
			row.p50.Round(100*time.Microsecond), row.p99.Round(100*time.Microsecond), row.max.Round(100*time.Microsecond))
	}
	fmt.Fprintln(w)
}

// connectHeading describes the measurement.
const connectHeading = `
Sequential TCP connections over IPv4 from a pod to a pod on another node; both nodes have the tables
p50, p99: connect(2) alone. connections/s: also creating and binding the socket, and the final reset
floor: the same, directly to the endpoint. tenths: the medians of each tenth of the run, fastest to slowest, which is the noise
The first rows of each kind dial the same number of frontends in every cluster, spread over its table. Rows with "each of all" cannot be
compared like this: between two connections to a frontend, a large table is evicted from the CPU caches, and the smallest is not

`

func printConnects(w io.Writer) {
	fmt.Fprint(w, connectHeading)
	fmt.Fprintln(w, "path\tServices\tconnections/s\tp50\ttenths\tp99\tp50/floor\tp50/smallest\tp99/smallest\t")
	var smallest connectRow
	for _, row := range results.connects {
		if smallest.path != row.path { // the sizes of a path are consecutive
			smallest = row
		}
		fmt.Fprintf(w, "%s\t%d\t%.0f\t%s\t%s to %s\t%s\t%.2f\t%.2f\t%.2f\t\n", row.path, row.size.services, row.perSecond,
			micros(row.p50), micros(row.fastestTenth), micros(row.slowestTenth), micros(row.p99),
			ratio(row.p50, row.floor), ratio(row.p50, smallest.p50), ratio(row.p99, smallest.p99))
	}
	fmt.Fprintln(w)
}

// micros prints a short time to a tenth of a microsecond.
func micros(t time.Duration) string { return fmt.Sprintf("%.1fµs", t.Seconds()*1e6) }

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }
