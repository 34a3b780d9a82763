// Package release says where API servers of earlier Kubernetes releases differ from what the webhook's cases expect.
// With binaries.OfYours the tests run against such servers.
package release

import (
	"fmt"
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/rulecases"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// The minor releases of Kubernetes since which something is as the cases have it, without a feature gate.
const (
	KeepsDistribution   = 31 // spec.trafficDistribution; API servers before drop it (KEP-4444)
	ReadsEndpointSlices = 34 // to find what they call, with --enable-aggregator-routing; API servers before read Endpoints
	TakesPreferSame     = 34 // PreferSameZone and PreferSameNode; API servers before refuse them (KEP-3015)
	HasMutatingPolicies = 36 // MutatingAdmissionPolicies in v1 (KEP-3962)
	hasEverything       = 36 // from here on no test may be left out
)

// Release is that of an API server.
type Release struct{ version *version.Version }

// Of asks an API server for its release. Those that the lab builds are never old.
func Of(t testing.TB, api *site.Site) Release {
	t.Helper()
	response, err := api.Admin.Discovery().ServerVersion()
	must.Succeed(t, err)
	parsed, err := version.ParseGeneric(response.GitVersion)
	must.Succeed(t, err)
	r := Release{parsed}
	if os.Getenv(binaries.OfYours) == "" && !r.IsAtLeast(hasEverything) {
		t.Fatalf("the lab's API server says that it is %s, with which tests would be left out", response.GitVersion)
	}
	return r
}

// IsAtLeast reports whether it is a minor release or a later one. From hasEverything on it always is, so that no test
// can do less there.
func (r Release) IsAtLeast(minor uint) bool {
	if minor > hasEverything {
		panic(fmt.Sprintf("a test wants Kubernetes 1.%d, and with 1.%d no test may do less than it can", minor, hasEverything))
	}
	return r.version.AtLeast(version.MajorMinor(1, minor))
}

// Needs leaves a test out before a minor release.
func (r Release) Needs(t *testing.T, minor uint, what string) {
	t.Helper()
	if !r.IsAtLeast(minor) {
		t.Skipf("Kubernetes %s: %s came with 1.%d", r.version, what, minor)
	}
}

// Cases are the webhook's cases as they can be put to the API server.
func (r Release) Cases(t *testing.T) []rulecases.Case {
	t.Helper()
	cases := rulecases.Cases(t)
	for i := range cases {
		if !r.IsAtLeast(TakesPreferSame) {
			respell(cases[i].Object)
			respell(cases[i].Old)
			giveNoDistribution(&cases[i])
		}
		if !r.IsAtLeast(KeepsDistribution) {
			expectNoDistribution(&cases[i])
		}
	}
	return cases
}

// Stored are the settings of an object that the API server keeps.
func (r Release) Stored(settings map[rules.Setting]string) map[rules.Setting]string {
	if !r.IsAtLeast(KeepsDistribution) {
		delete(settings, rules.TrafficDistribution)
	}
	return settings
}

// respell says PreferClose for what came later. All rules treat the three alike.
func respell(object map[string]any) {
	spec, _ := object["spec"].(map[string]any)
	switch spec["trafficDistribution"] {
	case corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode:
		spec["trafficDistribution"] = corev1.ServiceTrafficDistributionPreferClose
	}
}

// giveNoDistribution: as a default it would be why a Service is refused. That comes before the question in how many
// zones the Nodes are.
func giveNoDistribution(c *rulecases.Case) {
	given := c.Default
	if given == nil {
		return
	}
	hasNoZones := given.Reason == "zones" && c.Namespace.Annotations[policy.DefaultTrafficDistributionAnnotation] != ""
	if given.Setting == rules.TrafficDistribution || hasNoZones {
		given.Setting, given.Value, given.Reason = "", "", "before 1.34"
	}
}

// expectNoDistribution: the API server asks about no field that it has dropped. It is the only setting of Services
// without annotations, and there is nothing to say of Services without settings.
func expectNoDistribution(c *rulecases.Case) {
	spec, _ := c.Object["spec"].(map[string]any)
	metadata, _ := c.Object["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	isAlone := spec["trafficDistribution"] != nil && len(annotations) == 0
	c.Want = slices.DeleteFunc(c.Want, func(want rulecases.Want) bool { return isAlone || want.Path == "spec.trafficDistribution" })
}
