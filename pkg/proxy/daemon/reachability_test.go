package daemon

import (
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/logs"
)

// TestWithoutTheProxyServiceNoNodeIsDemoted: the nodes' addresses are unknown, and that is logged.
func TestWithoutTheProxyServiceNoNodeIsDemoted(t *testing.T) {
	const message = "cannot detect unreachable nodes: without --proxy-service"
	for name, test := range map[string]struct {
		options     Options
		wantDemotes bool
		wantWarning bool
	}{
		"a Service of the proxies": {Options{ProxyService: model.ObjectName{Namespace: "kube-system", Name: "proxies"}}, true,
			false},
		"none":                                  {Options{}, false, true},
		"a manifest directory, which has Nodes": {Options{Manifests: "state"}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			log := logs.New(t, "the daemon")
			test.options.UnreachableNodes = DemoteUnreachable
			c := &common{options: &test.options, log: log.Logger(), recorder: metrics.NewRecorder()}
			monitor, created := newReachabilityMonitor(c, nil, nil, nil, nil, nil)
			var page status.Summary
			created.summary(&page)
			if monitor.demotes != test.wantDemotes || page.Reachability.Demotes != test.wantDemotes {
				t.Errorf("demotes: %v, want %v", monitor.demotes, test.wantDemotes)
			}
			if warned := log.Has(message); warned != test.wantWarning {
				t.Errorf("warned: %v, want %v:\n%s", warned, test.wantWarning, log)
			}
		})
	}
}
