package neighbours_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
)

// programs are the neighbours that are Go modules, and their dependencies.
var programs binaries.Programs

// TestMain builds them if the cache lacks them, even if no test runs.
func TestMain(m *testing.M) {
	var err error
	ctx := context.Background()
	programs, err = binaries.Build(ctx, os.Stderr, binaries.CNI, binaries.Etcd, binaries.Flannel, binaries.KubeRouter, binaries.MetalLB)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
