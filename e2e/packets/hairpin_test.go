package packets_test

import (
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// TestAPodReachesItselfThroughEveryFrontend also checks that the pod sees the connection come from its node, because it
// would drop a packet with its own source address. That holds with and without a local traffic detector, and if
// everything is masqueraded.
func TestAPodReachesItselfThroughEveryFrontend(t *testing.T) {
	bridge := clusterCIDR()
	bridge.LocalTraffic = ruleset.LocalTraffic{Interface: fabric.PodBridge}
	masquerading := clusterCIDR()
	masquerading.MasqueradeAll = true
	for name, setup := range map[string]setup{
		"with a detector":    {nodes: 1, config: clusterCIDR()},
		"without a detector": {nodes: 1, config: withoutDetector()},
		"behind a bridge":    {nodes: 1, config: bridge, bridged: true},
		"with MasqueradeAll": {nodes: 1, config: masquerading},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := setUp(t, setup)
			server := c.addServer(c.nodes[0], "server")
			allPaths := web.paths(c.nodes[0], allKinds...)
			for _, edits := range [][]func(*model.Service){
				{web.withEverything},
				{web.withEverything, internalLocal, externalLocal},
				{web.withEverything, affinity(affinityHour)},
			} {
				c.apply(service(edits...).Merge(endpoints(server)))
				// The second connection uses the affinity entry, if the Service has session affinity.
				for range 2 {
					expect(t, "a pod dials itself", []*fabric.Namespace{server.Namespace}, allPaths, seenAs(c.nodes[0].Namespace))
				}
			}
		})
	}
}
