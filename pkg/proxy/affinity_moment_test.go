package proxy_test

import (
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
			kernel.remember(t, ruleset.Add, 1, 1)
			kernel.remember(t, ruleset.Add, 2, 3)
			if restart {
				p = starting(kernel)
			}
			batches := 0
			kernel.committed = func(batch ruleset.Batch) {
				if batches == 0 && batch.Count(model.IPv4, ruleset.Delete)+batch.Count(model.IPv4, ruleset.Add) < 2 {
					return // it prepares a chain and its dispatch entry; the endpoint is still used
				}
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

// TestClientsThatCannotBeForgottenOneByOneAreForgottenTogether: a busy Service's clients come and go between the look
// into its map and the commit. That costs them their endpoint, and must not fail the sync, which is that of all
// Services.
func TestClientsThatCannotBeForgottenOneByOneAreForgottenTogether(t *testing.T) {
	for name, fail := range map[string]func(*scriptedKernel){
		"the map cannot be read":     func(k *scriptedKernel) { k.unreadable = errInjected },
		"a client cannot be deleted": func(k *scriptedKernel) { k.refuse = refuseClients },
	} {
		t.Run(name, func(t *testing.T) {
			kernel := &scriptedKernel{}
			p := starting(kernel)
			p.Apply(stickyService(1, 2, 3))
			mustSync(t, p)
			kernel.remember(t, ruleset.Add, 1, 1)
			kernel.remember(t, ruleset.Add, 2, 3)
			fail(kernel)
			p.Apply(stickyService(1, 2))
			if report := mustSync(t, p); report.Complete {
				t.Errorf("report %+v, want only the change", report)
			}
			if clients := kernel.remembered(t); len(clients) > 0 {
				t.Errorf("clients %v, want none", clients)
			}
			likeFreshStart(t, &kernel.memoryKernel, stickyService(1, 2))
		})
	}
}

// refuseClients refuses the batches that name single clients.
func refuseClients(batch ruleset.Batch) error {
	for _, op := range batch.Ops {
		if object, ok := op.Object.(ruleset.ElementsObject); ok && object.Set.Dynamic {
			return errInjected
		}
	}
	return nil
}
