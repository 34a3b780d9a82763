package webhook_test

import (
	"fmt"
	"os"
	"testing"
)

// TestMain prints the tables after the benchmark. With floorAddressEnv in the environment, the program is the floor server
// instead.
func TestMain(m *testing.M) {
	if address := os.Getenv(floorAddressEnv); address != "" {
		fmt.Fprintln(os.Stderr, serveFloor(address, os.Getenv(floorCertificateEnv), os.Getenv(floorKeyEnv)))
		os.Exit(1)
	}
	status := m.Run()
	if len(results.steady) > 0 {
		results.print(os.Stdout)
	}
	os.Exit(status)
}
