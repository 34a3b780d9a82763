//go:build e2e

package suites

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
)

// expectEachInItsZone waits until the pods in every zone that has servers get replies from all of those servers, and
// from no others.
func expectEachInItsZone(ctx context.Context, desc string, targets []target, servers testPods) {
	GinkgoHelper()
	for _, zone := range kube.zones() {
		if local := servers.inZone(zone); len(local) > 0 {
			expectServers(ctx, desc+": "+zone, podClients.inZone(zone), targets, local)
		}
	}
}
