package packets_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
)

// TestNoConnectionIsLostWhileTheNumberOfEndpointsChanges covers packets during a change of the tables. A packet looks
// up its class, its slot and its endpoint in sequence, and the result of an earlier lookup must still exist at the next
// one.
//
// A reset or a timeout is a failure. A SYN that was retransmitted once is not: the rule after the dispatch drops such a
// packet so that the client retransmits it.
func TestNoConnectionIsLostWhileTheNumberOfEndpointsChanges(t *testing.T) {
	c := newCluster(t, 1)
	servers := []*pod{c.addServer(c.nodes[0], "a"), c.addServer(c.nodes[0], "b"), c.addServer(c.nodes[0], "c"), c.addServer(c.nodes[0], "d")}
	client := c.addPod(c.nodes[0], "client")
	c.apply(service())
	c.apply(endpoints(servers...))
	ended := make(chan struct{})
	var changes atomic.Int32
	var changing sync.WaitGroup
	changing.Go(func() {
		for ; ; changes.Add(1) {
			select {
			case <-ended:
				return
			default:
				c.nodes[0].proxy.Apply(endpoints(servers[:3+changes.Load()%2]...))
				if report, err := c.nodes[0].proxy.Sync(t.Context()); err != nil || report.CleanupErr != nil {
					t.Errorf("sync: %v, %v", err, report.CleanupErr)
				}
			}
		}
	})
	const enoughChanges, enoughDials, tooManyDials = 100, 750, 100_000
	for dials := 0; dials < enoughDials || changes.Load() < enoughChanges && dials < tooManyDials; dials++ {
		for _, to := range []path{paths[0], paths[3]} {
			if _, err := client.Request(to.network, to.addr, fabric.Timeout); err != nil {
				t.Errorf("%s: %v", to, err)
			}
		}
	}
	close(ended)
	changing.Wait()
	if changes.Load() < enoughChanges {
		t.Errorf("only %d changes were made, want %d", changes.Load(), enoughChanges)
	}
}
