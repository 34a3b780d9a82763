package daemon

import (
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// began is when this process did. What caused a change before that waited for a process, not for its work.
var began = time.Now()

// count hands what a sync did to metrics, in the words of metrics.
func (o *observer) count(report proxy.Report, took time.Duration, ended time.Time) {
	o.recorder.ObserveSync(report.Complete, took, nil)
	o.recorder.SyncDone(ended, report.Complete, report.Services)
	o.recorder.Set(metrics.Services, report.Total)
	o.recorder.Set(metrics.FrontendsContested, report.Contested)
	o.recorder.Set(metrics.ServicesRefused, report.RefusedTotal)
	o.recorder.ServicePortsByReason(portReasons(report.Reasons))
	for _, family := range model.Families {
		name := family.String()
		o.recorder.Add(metrics.ElementsWritten, report.Added[family], name, metrics.OperationAdd)
		o.recorder.Add(metrics.ElementsWritten, report.Deleted[family], name, metrics.OperationDelete)
		o.recorder.Set(metrics.ServicePorts, report.Ports[family], name)
		for _, external := range []bool{false, true} {
			none := proxy.PortReason{Family: family, External: external, Code: selection.NoneOnThisNode}
			o.recorder.Set(metrics.NoLocalEndpoints, report.Reasons[none], name, policyOf(external))
		}
		for _, cause := range report.Triggered[family] {
			if !cause.Before(began) {
				o.recorder.Programmed(name, ended.Sub(cause))
			}
		}
	}
}

func portReasons(counts map[proxy.PortReason]int) map[metrics.PortReason]int {
	byReason := make(map[metrics.PortReason]int, len(counts))
	for reason, n := range counts {
		byReason[metrics.PortReason{
			Family: reason.Family.String(), TrafficPolicy: policyOf(reason.External), Reason: string(reason.Code),
		}] = n
	}
	return byReason
}

func policyOf(external bool) string {
	if external {
		return metrics.PolicyExternal
	}
	return metrics.PolicyInternal
}
