package proxy_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// TestNoBatchLeavesAClientWithAnEndpointThatLeft: an endpoint leaves the slots and the clients' memory in one
// transaction, so that there is no moment at which a client is still sent to it.
func TestNoBatchLeavesAClientWithAnEndpointThatLeft(t *testing.T) {
	for name, restart := range map[string]bool{"a change": false, "a proxy that starts": true} {
		t.Run(name, func(t *testing.T) {
			kernel := &scriptedKernel{}
			p := starting(kernel)
			p.Apply(stickyService(1, 2, 3))
			mustSync(t, p)
			kernel.remember(t, 1, 1)
			kernel.remember(t, 2, 3)
			if restart {
				p = starting(kernel)
			}
			left := netip.AddrPortFrom(podAddr(3), 8080)
			before, after := 0, 0
			kernel.committed = func(ruleset.Batch) {
				clients := kernel.remembered(t)
				remembered := slices.ContainsFunc(clients, func(client string) bool { return strings.HasSuffix(client, ":3") })
				drawn := slices.ContainsFunc(balancingIn(t, &kernel.memoryKernel, model.IPv4)[0].slots, func(slot ruleset.Element) bool {
					return netip.AddrPortFrom(slot.Value.Addr, slot.Value.Port) == left
				})
				if remembered != drawn {
					t.Errorf("a client is sent to endpoint 3: %v, and it is drawn: %v", remembered, drawn)
				}
				if drawn {
					before++
				} else {
					after++
				}
				if !slices.Contains(clients, "1:1") {
					t.Errorf("the clients are %v, want 1 with its endpoint", clients)
				}
			}
			p.Apply(stickyService(1, 2))
			mustSync(t, p)
			// A chain is prepared before a change, and swept after it.
			if want := map[bool]int{false: 1, true: 0}[restart]; before != want || after == 0 {
				t.Errorf("endpoint 3 was there after %d batches and gone after %d, want %d and some", before, after, want)
			}
		})
	}
}
