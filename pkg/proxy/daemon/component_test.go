package daemon

import (
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// TestDisabledComponentsCostNothing: disabled components have no handler, goroutine or callback, and they allocate and
// open nothing. With --service-proxy-name two proxies are intended, and there is no check for others.
func TestDisabledComponentsCostNothing(t *testing.T) {
	c := &common{options: &Options{View: convert.View{ServiceProxyName: "vicinity"}}}
	src, none := &source{}, eventReporter{}
	for name, created := range map[string]func() component{
		"reachability": func() component {
			_, created := newReachabilityMonitor(c, nil, nil, nil, nil, nil)
			return created
		},
		"partitions": func() component { return newPartitionReporter(c, none, nil) },
		"DNS":        func() component { return newDNS(c) },
		"xDS": func() component {
			created, err := newXDSServer(c)
			if err != nil {
				t.Error(err)
			}
			return created
		},
		"the demand page": func() component { return newSecureMetrics(c, nil, nil, nil) },
		"accounting":      func() component { return newAccounting(c, nil, nil, nil) },
		"the condition": func() component {
			created, err := newCondition(t.Context(), c, nil)
			if err != nil {
				t.Error(err)
			}
			return created
		},
		"Events":        func() component { return newEvents(c, none) },
		"an API server": func() component { return newAPIServers(src, nil, nil) },
		"other proxies": func() component { return newOtherProxies(c, none) },
	} {
		allocated := testing.AllocsPerRun(10, func() {
			if one := created(); one.handler != nil || one.run != nil || one.summary != nil {
				t.Errorf("%s: the component is not empty", name)
			}
		})
		if allocated != 0 {
			t.Errorf("%s: %v allocations", name, allocated)
		}
	}
}
