package bench_test

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

// results are what the benchmarks found, for the table.
var results struct {
	first   []firstSync
	changes []oneChange
}

type firstSync struct {
	size        size
	elements    int
	sync, floor time.Duration
	peak        int64
}

type oneChange struct {
	event    string
	size     size
	written  int
	p50, p99 time.Duration
}

// TestMain prints the table after the benchmarks.
func TestMain(m *testing.M) {
	status := m.Run()
	if len(results.first)+len(results.changes) > 0 {
		printTable()
	}
	os.Exit(status)
}

func printTable() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\nFirst sync, from the objects to the accepted commit (medians; floor: the kernel alone, with the same bytes)\n\n")
	fmt.Fprintln(w, "Services x endpoints\telements\tsync\tfloor\tsync/floor\telements/s\tfloor's\tpeak memory\t")
	for _, row := range results.first {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%.2f\t%.0f\t%.0f\t%d MiB\t\n", row.size, row.elements,
			row.sync.Round(time.Millisecond), row.floor.Round(time.Millisecond), float64(row.sync)/float64(row.floor),
			float64(row.elements)/row.sync.Seconds(), float64(row.elements)/row.floor.Seconds(), row.peak>>20)
	}
	fmt.Fprint(w, "\nOne event, from the object to the accepted commit and the sweep behind it\n\n")
	fmt.Fprintln(w, "event\tServices x endpoints\telements written, at most\tp50\tp99\t")
	for _, row := range results.changes {
		p50, p99 := row.p50.Round(time.Microsecond), row.p99.Round(time.Microsecond)
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t\n", row.event, row.size, row.written, p50, p99)
	}
	fmt.Fprintln(w)
	if err := w.Flush(); err != nil {
		panic(err)
	}
}

// memory returns a line of /proc/self/status, in bytes.
func memory(b *testing.B, name string) int64 {
	b.Helper()
	file, err := os.Open("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 3 && fields[0] == name+":" {
			kibibytes, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			return kibibytes << 10
		}
	}
	b.Fatalf("/proc/self/status has no %s", name)
	return 0
}

func writeFile(path, text string) error { return os.WriteFile(path, []byte(text), 0) }
