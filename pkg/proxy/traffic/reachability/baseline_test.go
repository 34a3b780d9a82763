package reachability_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/reachability"
)

// In a small cluster, a proxy has the baselines of all nodes about a second after it starts. In a large one it takes a
// minute. It never probes more than 128 nodes in a second.
func TestFewNodesGetTheirBaselinesSoon(t *testing.T) {
	for count, within := range map[int]time.Duration{5: 2 * time.Second, 500: 8 * time.Second, 5000: time.Minute + 2*time.Second} {
		detector, targets := reachability.NewDetector("own", 10256, reachability.NewBudget()), map[string]netip.Addr{}
		for i := range count {
			addr := netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})
			targets[fmt.Sprintf("n%d", i)] = addr
		}
		detector.SetNodes(epoch, targets, nil)
		maxNodes, took := 0, time.Duration(0)
		for ; detector.Status().WithoutBaseline > 0 && took < 2*time.Minute; took += time.Second {
			probes := detector.Step(epoch.Add(took)).Probes
			for _, probe := range probes {
				detector.ReportProbe(epoch.Add(took), probe.ID, reachability.Accepted, time.Millisecond)
			}
			maxNodes = max(maxNodes, len(probes)/2)
		}
		if took > within+time.Second || maxNodes > 128 {
			t.Errorf("%d nodes: known after %v, %d nodes probed in a second; want %v, and 128 at most", count, took, maxNodes, within)
		}
	}
}
