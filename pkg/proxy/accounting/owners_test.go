//go:build linux

package accounting

import (
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/owners"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// ownersOfWeb know of web: one frontend, that leads to one endpoint, on another node.
func ownersOfWeb(frontend, endpoint string) *owners.Reader {
	o := owners.NewReader(0)
	o.Accept(web, o.Digest([]selection.Decision{{
		Service: &model.Service{Name: web},
		Owned: []model.PortFrontend{{
			Frontend: model.Frontend{Addr: at(frontend).Addr(), Protocol: model.TCP, Port: at(frontend).Port()},
		}},
		Endpoints: []model.PortEndpoint{{Addr: at(endpoint), Endpoint: model.Endpoint{Node: "node-3", Zone: "b", Ready: true}}},
	}}))
	return o
}

// TestAskingAllocatesNothing: the kernel reports thousands of ends a second.
func TestAskingAllocatesNothing(t *testing.T) {
	o := ownersOfWeb("10.96.0.1:80", "10.0.1.1:8080")
	o.Synced(selection.Sync{})
	l := NewLedger(Settings{PerService: true, MaxServices: 1})
	e := moved(entry("10.0.1.9:1", "10.96.0.1:80", "10.0.1.1:8080"), 1, 2)
	if got := testing.AllocsPerRun(1000, func() { l.Ended(&e, o.Of(&e), start) }); got > 1 {
		t.Errorf("%v allocations for each end", got)
	}
}

func BenchmarkEnd(b *testing.B) {
	o := ownersOfWeb("10.96.0.1:80", "10.0.1.1:8080")
	o.Synced(selection.Sync{})
	l := NewLedger(Settings{PerService: true, MaxServices: 1})
	e := moved(entry("10.0.1.9:1", "10.96.0.1:80", "10.0.1.1:8080"), 1, 2)
	b.ReportAllocs()
	for b.Loop() {
		l.Ended(&e, o.Of(&e), start)
	}
}
