package daemon

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/counts"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// newCounts counts Service ports.
func newCounts(c *common) part {
	return part{reader: counts.NewReader(func(now counts.Counts) { setCounts(c.recorder, now) })}
}

// setCounts translates the counts of Service ports into metrics.
func setCounts(recorder *metrics.Recorder, now counts.Counts) {
	recorder.ServicePortsByReason(portReasons(now.Reasons))
	recorder.ExpectedTraffic(now.Shares.Ratios())
	for source, ports := range now.Shares.BySource {
		recorder.Set(metrics.ServicePortsByDemand, ports, balance.Source(source).String())
	}
	for _, family := range model.Families {
		name := family.String()
		for _, external := range []bool{false, true} {
			none := counts.Reason{Family: family, External: external, Code: selection.NoneOnThisNode}
			recorder.Set(metrics.NoLocalEndpoints, now.Reasons[none], name, policyOf(external))
		}
	}
}

func portReasons(reasons map[counts.Reason]int) map[metrics.PortReason]int {
	byReason := make(map[metrics.PortReason]int, len(reasons))
	for reason, n := range reasons {
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
