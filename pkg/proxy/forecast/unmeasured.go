package forecast

import (
	"fmt"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/explain"
)

// noteUnmeasured says why Services are planned with assumed demand although their owners want it measured, and what to
// do; empty if there are none, or if it was asked to forecast so.
func (f *forecaster) noteUnmeasured() string {
	if len(f.unmeasured) == 0 || f.demands == nil {
		return ""
	}
	services, planned := explain.Counted(f.unmeasured), "its bound is planned with the assumed demand"
	if len(f.unmeasured) > 1 {
		planned = "their bounds are planned with the assumed demand"
	}
	switch {
	case f.areForbidden:
		return fmt.Sprintf("ServiceDemands may not be listed, so it is not known here what was measured of %s: %s.", services, planned)
	case f.isStale: // the note about the Lease says the rest
		return fmt.Sprintf("What was measured of %s does not count: %s.", services, planned)
	}
	next := "Services with few connections have none."
	switch {
	case len(f.demands) > 0:
	case f.isDump:
		next = "If the cluster has any, 'kubectl get servicedemands -A -o yaml' prints them; else the component demand of the webhook's " +
			"manifests measures and publishes them."
	default:
		next = "The component demand of the webhook's manifests measures and publishes them."
	}
	return fmt.Sprintf("There is no ServiceDemand that %s can be planned with. Until there is one, %s, in spite of %s: %q. %s To see what it "+
		"would be with numbers of your own: without what-ifs, 'forecast --demand FILE' compares a bound with one that is planned as FILE says.",
		services, planned, policy.ClientsAnnotation, policy.Measured, next)
}
