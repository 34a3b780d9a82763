package proxy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/ruleset"
)

// TestNoBatchLeavesAClientWithAnEndpointThatLeft: an endpoint leaves the slots and the clients' memory in one transaction, so
// that there is no moment at which a client is still sent to it.
func TestNoBatchLeavesAClientWithAnEndpointThatLeft(t *testing.T) {
	for name, restart := range map[string]bool{"a change": false, "a proxy that starts": true} {
		t.Run(name, func(t *testing.T) {
			kernel := &scriptedKernel{}
			p := proxy.New(self, bothFamilies, kernel)
			p.Apply(stickyService(1, 2, 3))
			mustSync(t, p)
			kernel.remember(t, ruleset.Add, 1, 1)
			kernel.remember(t, ruleset.Add, 2, 3)
			if restart {
				p = proxy.New(self, bothFamilies, kernel)
			}
			batches := 0
			kernel.committed = func(ruleset.Batch) {
				batches++
				clients := kernel.remembered(t)
				if slices.ContainsFunc(clients, func(client string) bool { return strings.HasSuffix(client, ":3") }) {
					t.Errorf("after batch %d the clients are %v, want none with endpoint 3", batches, clients)
				}
			}
			p.Apply(stickyService(1, 2))
			mustSync(t, p)
			if batches == 0 {
				t.Error("nothing was committed, so nothing was tested")
			}
		})
	}
}
