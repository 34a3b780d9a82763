package packets_test

import (
	"sync"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// TestTrafficNeverNoticesACompleteSync runs full syncs one after the other while a pod dials all the time. Each of them
// empties and fills every map in one transaction. Clients with session affinity keep their endpoint.
func TestTrafficNeverNoticesACompleteSync(t *testing.T) {
	for name, edit := range map[string]func(*model.Service){
		"without session affinity": func(*model.Service) {},
		"with session affinity":    affinity(time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1)
			client := c.addPod(c.nodes[0], "client")
			c.apply(service(edit))
			c.apply(endpoints(c.addServer(c.nodes[0], "a"), c.addServer(c.nodes[0], "b")))
			ended := make(chan struct{})
			var syncs sync.WaitGroup
			syncs.Go(func() {
				for {
					select {
					case <-ended:
						return
					default:
						c.nodes[0].proxy.ForceFullSync()
						if _, err := c.nodes[0].proxy.Sync(t.Context()); err != nil {
							t.Errorf("sync: %v", err)
						}
					}
				}
			})
			answered := map[path]map[string]int{}
			for range 60 {
				for _, to := range paths {
					if answered[to] == nil {
						answered[to] = map[string]int{}
					}
					answered[to][mustRequest(t, client.Namespace, to).Pod]++
				}
			}
			close(ended)
			syncs.Wait()
			for to, pods := range answered {
				if sticky := name == "with session affinity"; sticky == (len(pods) > 1) {
					t.Errorf("%s: replies from %v", to, pods)
				}
			}
		})
	}
}
