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
	for name, made := range map[string]func() component{
		"reachability": func() component {
			_, made := newReachabilityMonitor(c, nil, nil, nil, nil, nil)
			return made
		},
		"partitions": func() component { return newPartitionReporter(c, none, nil) },
		"DNS":        func() component { return newDNS(c) },
		"xDS": func() component {
			made, err := newXDSServer(c)
			if err != nil {
				t.Error(err)
			}
			return made
		},
		"the demand page": func() component { return newSecureMetrics(c, nil, nil, nil) },
		"accounting":      func() component { return newAccounting(c, nil, nil, nil) },
		"the condition": func() component {
			made, err := newCondition(t.Context(), c, nil)
			if err != nil {
				t.Error(err)
			}
			return made
		},
		"Events":        func() component { return newEvents(c, none) },
		"an API server": func() component { return newAPIServers(src, nil, nil) },
		"other proxies": func() component { return newOtherProxies(c, none) },
	} {
		allocated := testing.AllocsPerRun(10, func() {
			if one := made(); one.handler != nil || one.run != nil || one.summary != nil {
				t.Errorf("%s: the component is not empty", name)
			}
		})
		if allocated != 0 {
			t.Errorf("%s: %v allocations", name, allocated)
		}
	}
}
