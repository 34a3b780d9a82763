package webhook_test

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// resultSet has the results of the benchmark, for the tables.
type resultSet struct {
	loadBefore, loadAfter string
	costs                 []costRow
	steady                []steadyRow
	memory                []memorySample
}

var results resultSet

// costRow has the costs of reviews of one kind.
type costRow struct {
	kind           kind
	floor, webhook cost
}

// steadyRow has the measurements of a server's reviews at the steady rate, of all rounds.
type steadyRow struct {
	server      *measuredServer
	times, late []time.Duration
	p99s        []time.Duration // of each round
	cost        cost
}

func (r *steadyRow) add(round steady) {
	r.times, r.late = append(r.times, round.times...), append(r.late, round.late...)
	r.p99s = append(r.p99s, percentile(slices.Sorted(slices.Values(round.times)), 990))
	r.cost.reviews += round.reviews
	r.cost.elapsed += round.elapsed
	r.cost.cpu += round.cpu
}

const costHeading = `
The webhook as a separate process, over TLS on loopback with %d persistent connections; floor: a net/http server that reads each body
and sends a constant response, alternating with the webhook. The load average of the machine was %s before, and %s after

At full speed. reviews/s/core: reviews per second of the server's CPU time (target for the mix: %d)

`

const steadyHeading = `
%d reviews per second of the mix, whether or not earlier ones have a response. Times start when a review is due (target: p99 below %s);
late: the time from then until it is sent, added by the machine and the clients; p99 of rounds: minimum, median and maximum, which is the
noise. A CPU that halted because it was idle responds late, above all in a virtual machine, whose host has to wake it

`

const memoryHeading = `
Memory of the webhook; live: the live heap at the last garbage collection

`

func (r *resultSet) print(to io.Writer) {
	w := tabwriter.NewWriter(to, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, costHeading, connections, r.loadBefore, r.loadAfter, wantPerCore)
	r.printCosts(w)
	fmt.Fprintf(w, steadyHeading, ratePerSecond, wantP99)
	r.printSteady(w)
	fmt.Fprint(w, memoryHeading)
	r.printMemory(w)
	if err := w.Flush(); err != nil {
		panic(err)
	}
}

func (r *resultSet) printCosts(w io.Writer) {
	fmt.Fprintln(w, "review\tbody\treviews/s\tfloor\treviews/s/core\tfloor\tCPU time/review\tratio to floor\t")
	for _, row := range r.costs {
		perReview := row.webhook.cpu / time.Duration(row.webhook.reviews)
		fmt.Fprintf(w, "%s\t%.1f kB\t%.0f\t%.0f\t%.0f\t%.0f\t%s\t%.1f\t\n", row.kind.name, float64(row.kind.size())/1000,
			row.webhook.perSecond(), row.floor.perSecond(), row.webhook.perCore(), row.floor.perCore(),
			perReview.Round(time.Microsecond), row.floor.perCore()/row.webhook.perCore())
	}
}

func (r *resultSet) printSteady(w io.Writer) {
	fmt.Fprintln(w, "server\treviews\tp50\tp99\tp99.9\tp99 of rounds\tlate p50\tp99\tCPU use\t")
	for _, row := range r.steady {
		p99s := slices.Sorted(slices.Values(row.p99s))
		times, late := slices.Sorted(slices.Values(row.times)), slices.Sorted(slices.Values(row.late))
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s, %s, %s\t%s\t%s\t%.0f %%\t\n", row.server.name, len(times),
			millis(percentile(times, 500)), millis(percentile(times, 990)), millis(percentile(times, 999)),
			millis(p99s[0]), millis(percentile(p99s, 500)), millis(p99s[len(p99s)-1]),
			millis(percentile(late, 500)), millis(percentile(late, 990)), 100*row.cost.cpu.Seconds()/row.cost.elapsed.Seconds())
	}
}

func (r *resultSet) printMemory(w io.Writer) {
	fmt.Fprintln(w, "after reviews\tresident\theap in use\tlive\t")
	for _, row := range r.memory {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t\n", row.reviews, mebibytes(row.resident), mebibytes(row.inUse), mebibytes(row.live))
	}
}

func millis(t time.Duration) string { return fmt.Sprintf("%.2f ms", t.Seconds()*1000) }

func mebibytes(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

// percentile returns the given permille of sorted times.
func percentile(sorted []time.Duration, permille int) time.Duration {
	return sorted[min(len(sorted)*permille/1000, len(sorted)-1)]
}
