//go:build e2e

package suites

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
)

// expectEachInItsZone waits until the pods in every zone that has servers get replies from all of those servers, and
// from no others.
func expectEachInItsZone(ctx context.Context, why string, targets []target, servers probes) {
	GinkgoHelper()
	for _, zone := range kube.zones() {
		if there := servers.inZone(zone); len(there) > 0 {
			expectServers(ctx, why+": "+zone, podClients.inZone(zone), targets, there)
		}
	}
}
