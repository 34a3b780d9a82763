//go:build linux

package accounting

import (
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/serviceindex"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// indexOfWeb returns an index with the Service web: one frontend with one endpoint, on another node.
func indexOfWeb(frontend, endpoint string) *serviceindex.Index {
	index := serviceindex.New(0)
	index.OnApplied(web, index.Derive([]selection.Decision{{
		Service: &model.Service{Name: web},
		Frontends: []model.PortFrontend{{
			Frontend: model.Frontend{Addr: addrPort(frontend).Addr(), Protocol: model.TCP, Port: addrPort(frontend).Port()},
		}},
		Endpoints: []model.PortEndpoint{{Addr: addrPort(endpoint), Endpoint: model.Endpoint{Node: "node-3", Zone: "b", Ready: true}}},
	}}))
	return index
}

// The kernel reports thousands of DESTROY events a second.
func TestAttributionAllocatesNothing(t *testing.T) {
	index := indexOfWeb("10.96.0.1:80", "10.0.1.1:8080")
	index.OnSynced(selection.SyncState{})
	c := NewCounters(Settings{PerService: true, MaxServices: 1})
	e := withTraffic(entry("10.0.1.9:1", "10.96.0.1:80", "10.0.1.1:8080"), 1, 2)
	if got := testing.AllocsPerRun(1000, func() { c.OnDestroy(&e, index.Attribute(&e), start) }); got > 1 {
		t.Errorf("%v allocations for each event", got)
	}
}

func BenchmarkEnd(b *testing.B) {
	index := indexOfWeb("10.96.0.1:80", "10.0.1.1:8080")
	index.OnSynced(selection.SyncState{})
	c := NewCounters(Settings{PerService: true, MaxServices: 1})
	e := withTraffic(entry("10.0.1.9:1", "10.96.0.1:80", "10.0.1.1:8080"), 1, 2)
	b.ReportAllocs()
	for b.Loop() {
		c.OnDestroy(&e, index.Attribute(&e), start)
	}
}
