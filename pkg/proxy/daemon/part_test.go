package daemon

import (
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// TestDisabledPartsCostNothing: they have no handler, goroutine or callback, and they allocate and open nothing. With
// --service-proxy-name two proxies are intended, and there is no check for others.
func TestDisabledPartsCostNothing(t *testing.T) {
	c := &common{options: &Options{View: convert.View{ServiceProxyName: "vicinity"}}}
	from, none := &source{}, eventReporter{}
	for name, made := range map[string]func() part{
		"reachability": func() part {
			_, made := newReachabilityMonitor(c, nil, nil, nil, nil, nil)
			return made
		},
		"partitions": func() part { return newPartitionReporter(c, none, nil) },
		"DNS":        func() part { return newDNS(c) },
		"xDS": func() part {
			made, err := newXDSServer(c)
			if err != nil {
				t.Error(err)
			}
			return made
		},
		"the demand page": func() part { return newSecureMetrics(c, nil) },
		"accounting":      func() part { return newAccounting(c, nil, nil, nil) },
		"the condition": func() part {
			made, err := newCondition(t.Context(), c, nil)
			if err != nil {
				t.Error(err)
			}
			return made
		},
		"Events":        func() part { return newEvents(c, none) },
		"an API server": func() part { return newAPIServers(from, nil, nil) },
		"other proxies": func() part { return newOtherProxies(c, none) },
	} {
		allocated := testing.AllocsPerRun(10, func() {
			if one := made(); one.reader != nil || one.run != nil || one.summary != nil {
				t.Errorf("%s: the component is not empty", name)
			}
		})
		if allocated != 0 {
			t.Errorf("%s: %v allocations", name, allocated)
		}
	}
}
