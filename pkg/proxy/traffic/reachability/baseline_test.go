package reachability_test

import (
	"fmt"
	"net/netip"
	"slices"
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

// A baseline that is slow or missing is recorded again with a backoff: a node that was only busy is fast soon, and one
// that is far away is not probed more often than others for long.
func TestSlowBaselinesAreRecordedAgain(t *testing.T) {
	const slow = 300 * time.Millisecond
	for name, test := range map[string]struct {
		result reachability.ProbeResult
		rtt    func(at time.Duration) time.Duration
		want   []time.Duration // after the first one
	}{
		"slow at the start": {
			reachability.Accepted, func(at time.Duration) time.Duration {
				if at < 15*time.Second {
					return slow
				}
				return time.Millisecond
			},
			// When the first of the two ports is fast, the other one is not yet, so there is one more probe.
			[]time.Duration{10 * time.Second, 30 * time.Second, 70 * time.Second},
		},
		"always slow": {
			reachability.Accepted, func(time.Duration) time.Duration { return slow },
			[]time.Duration{10 * time.Second, 30 * time.Second, 70 * time.Second, 150 * time.Second, 310 * time.Second, 630 * time.Second},
		},
		"no reply": {
			reachability.NoReply, func(time.Duration) time.Duration { return 2 * time.Second },
			[]time.Duration{10 * time.Second, 30 * time.Second, 70 * time.Second, 150 * time.Second, 310 * time.Second, 630 * time.Second},
		},
	} {
		t.Run(name, func(t *testing.T) {
			detector := reachability.NewDetector("own", 10256, reachability.NewBudget())
			detector.SetNodes(epoch, map[string]netip.Addr{"n0": netip.MustParseAddr("192.0.2.1")}, nil)
			first := time.Duration(-1)
			var again []time.Duration
			for at := time.Duration(0); at < 20*time.Minute; at += time.Second {
				probes := detector.Step(epoch.Add(at)).Probes
				for _, probe := range probes {
					detector.ReportProbe(epoch.Add(at), probe.ID, test.result, test.rtt(at))
				}
				switch {
				case len(probes) == 0:
				case first < 0:
					first = at
				default:
					again = append(again, at-first)
				}
			}
			if !slices.Equal(again, test.want) {
				t.Errorf("probed again after %v, want %v", again, test.want)
			}
		})
	}
}
