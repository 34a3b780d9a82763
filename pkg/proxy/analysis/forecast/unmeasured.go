package forecast

import (
	"fmt"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
)

// unmeasuredNote returns why Services with the setting "measured" are planned with default demand, and what to do, or
// why existing ServiceDemands are not valid; empty if neither is the case, or if the forecast is without measured
// demand.
func (f *forecaster) unmeasuredNote() string {
	switch {
	case f.demands == nil:
		return ""
	case len(f.unmeasured) == 0 && f.demandsInvalid:
		return string(f.assumedReason)
	case len(f.unmeasured) == 0:
		return ""
	}
	bounds := "The load bound of " + explain.ListOrCount(f.unmeasured) + " is"
	if len(f.unmeasured) > 1 {
		bounds = "The load bounds of " + explain.ListOrCount(f.unmeasured) + " are"
	}
	remedy := ""
	if f.assumedReason == v1alpha1.NoUsableDemand && len(f.demands) == 0 {
		remedy = " The component demand of the webhook's manifests measures and publishes them."
		if f.isDump {
			remedy = " If the cluster has any, 'kubectl get servicedemands -A -o yaml' prints them; else the component demand of the webhook's " +
				"manifests measures and publishes them."
		}
	}
	return fmt.Sprintf("%s%s %s planned with assumed demand in spite of %s: %s. To plan with numbers of your own: without "+
		"hypothetical changes, 'forecast --demand FILE' compares a load bound with one that is planned with FILE.",
		f.assumedReason, remedy, bounds, policy.DemandSourceAnnotation, policy.Measured)
}
