package reachability_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// TestMain runs more tests in parallel than there are CPUs, because each of them waits nearly all the time.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	m.Run()
}
