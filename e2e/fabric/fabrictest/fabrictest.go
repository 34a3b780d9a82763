// Package fabrictest creates networks for tests.
package fabrictest

import (
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
)

// New returns an empty network that is removed at the end of the test. It needs root.
func New(t testing.TB) *fabric.Fabric {
	t.Helper()
	network, err := fabric.New()
	if err != nil {
		t.Fatalf("create network (needs root): %v", err)
	}
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Errorf("close network: %v", err)
		}
	})
	return network
}
