package packets_test

import (
	"sync"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// TestTrafficIsNotAffectedByFullSyncs runs full syncs one after the other while a pod dials all the time. Each of them
// empties and fills every map in one transaction. Clients with session affinity keep their endpoint.
func TestTrafficIsNotAffectedByFullSyncs(t *testing.T) {
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
			replies := map[path]map[string]int{}
			for range 60 {
				for _, to := range paths {
					if replies[to] == nil {
						replies[to] = map[string]int{}
					}
					replies[to][mustRequest(t, client.Namespace, to).Pod]++
				}
			}
			close(ended)
			syncs.Wait()
			for to, pods := range replies {
				if hasAffinity := name == "with session affinity"; hasAffinity == (len(pods) > 1) {
					t.Errorf("%s: replies from %v, want one pod only with session affinity", to, pods)
				}
			}
		})
	}
}
