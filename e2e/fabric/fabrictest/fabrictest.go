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
		t.Fatalf("build a network (this needs root): %v", err)
	}
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Errorf("take the network down: %v", err)
		}
	})
	return network
}
