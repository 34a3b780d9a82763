package daemon

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// newPortCounts returns the component that counts Service ports.
func newPortCounts(c *common) component {
	return component{handler: metrics.NewPortCounter(func(counts metrics.PortCounts) { setPortCounts(c.recorder, counts) })}
}

// setPortCounts exports the counts of Service ports as metrics. All series of one metric change at once.
func setPortCounts(recorder *metrics.Recorder, counts metrics.PortCounts) {
	recorder.CollectFrom(metrics.ServicePortsByReason, func(add metrics.Add) {
		for reason, ports := range counts.Reasons {
			add(float64(ports), reason.Family.String(), policyOf(reason.External), string(reason.Code))
		}
	})
	recorder.CollectFrom(metrics.ExpectedTraffic, func(add metrics.Add) {
		for key, ratio := range counts.Shares.Ratios() {
			add(ratio, key)
		}
	})
	for source, ports := range counts.Shares.BySource {
		recorder.Set(metrics.ServicePortsByDemand, ports, balance.Source(source).String())
	}
	for _, family := range model.Families {
		name := family.String()
		for _, external := range []bool{false, true} {
			noLocalEndpoints := metrics.PortReason{Family: family, External: external, Code: selection.NoneOnThisNode}
			recorder.Set(metrics.NoLocalEndpoints, counts.Reasons[noLocalEndpoints], name, policyOf(external))
		}
	}
}

func policyOf(external bool) string {
	if external {
		return metrics.PolicyExternal
	}
	return metrics.PolicyInternal
}
