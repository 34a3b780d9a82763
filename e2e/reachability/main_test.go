package reachability_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// TestMain has more tests run at once than there are processors: each of them waits nearly all the time.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	m.Run()
}
