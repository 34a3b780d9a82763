// Package release defines how API servers of earlier Kubernetes releases differ from what the webhook's cases expect.
// With binaries.ProgramsEnv the tests run against such servers.
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

// The minor releases of Kubernetes from which on a feature works as in the cases, without a feature gate.
const (
	KeepsDistribution   = 31 // spec.trafficDistribution; earlier API servers drop it (KEP-4444)
	ReadsEndpointSlices = 34 // for webhook calls, with --enable-aggregator-routing; earlier API servers read Endpoints
	AcceptsPreferSame   = 34 // PreferSameZone and PreferSameNode; earlier API servers reject them (KEP-3015)
	HasMutatingPolicies = 36 // MutatingAdmissionPolicies in v1 (KEP-3962)
	hasEverything       = 36 // from this release on no test may be skipped
)

// Release is the release of an API server.
type Release struct{ version *version.Version }

// Of returns the release of an API server. Those that the lab builds are never old.
func Of(t testing.TB, api *site.Site) Release {
	t.Helper()
	response, err := api.Admin.Discovery().ServerVersion()
	must.Succeed(t, err)
	parsed, err := version.ParseGeneric(response.GitVersion)
	must.Succeed(t, err)
	r := Release{parsed}
	if os.Getenv(binaries.ProgramsEnv) == "" && !r.IsAtLeast(hasEverything) {
		t.Fatalf("the lab's API server is %s, so that tests would be skipped", response.GitVersion)
	}
	return r
}

// IsAtLeast reports whether the release is this minor release or a later one. From hasEverything on it is always true,
// so that no test can check less there.
func (r Release) IsAtLeast(minor uint) bool {
	if minor > hasEverything {
		panic(fmt.Sprintf("a test requires Kubernetes 1.%d, but with 1.%d no test may be skipped", minor, hasEverything))
	}
	return r.version.AtLeast(version.MajorMinor(1, minor))
}

// Needs skips a test before a minor release.
func (r Release) Needs(t *testing.T, minor uint, what string) {
	t.Helper()
	if !r.IsAtLeast(minor) {
		t.Skipf("Kubernetes %s: %s requires 1.%d", r.version, what, minor)
	}
}

// Cases returns the webhook's cases, adapted to the API server.
func (r Release) Cases(t *testing.T) []rulecases.Case {
	t.Helper()
	cases := rulecases.Cases(t)
	for i := range cases {
		if !r.IsAtLeast(AcceptsPreferSame) {
			usePreferClose(cases[i].Object)
			usePreferClose(cases[i].Old)
			expectNoDefaultDistribution(&cases[i])
		}
		if !r.IsAtLeast(KeepsDistribution) {
			expectNoDistribution(&cases[i])
		}
	}
	return cases
}

// Stored returns the settings of an object that the API server keeps.
func (r Release) Stored(settings map[rules.Setting]string) map[rules.Setting]string {
	if !r.IsAtLeast(KeepsDistribution) {
		delete(settings, rules.TrafficDistribution)
	}
	return settings
}

// usePreferClose replaces later values by PreferClose. All rules treat the three alike.
func usePreferClose(object map[string]any) {
	spec, _ := object["spec"].(map[string]any)
	switch spec["trafficDistribution"] {
	case corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode:
		spec["trafficDistribution"] = corev1.ServiceTrafficDistributionPreferClose
	}
}

// expectNoDefaultDistribution expects no default if it is a distribution, because the API server would reject the Service with
// it. The webhook checks that before the number of zones.
func expectNoDefaultDistribution(c *rulecases.Case) {
	setting := c.Default
	if setting == nil {
		return
	}
	hasNoZones := setting.Reason == "zones" && c.Namespace.Annotations[policy.DefaultTrafficDistributionAnnotation] != ""
	if setting.Setting == rules.TrafficDistribution || hasNoZones {
		setting.Setting, setting.Value, setting.Reason = "", "", "before 1.34"
	}
}

// expectNoDistribution removes the expectation about a field that the API server drops and does not pass to the
// webhook. It is the only setting of Services without annotations, and there are no messages about Services without
// settings.
func expectNoDistribution(c *rulecases.Case) {
	spec, _ := c.Object["spec"].(map[string]any)
	metadata, _ := c.Object["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	isOnlySetting := spec["trafficDistribution"] != nil && len(annotations) == 0
	c.Want = slices.DeleteFunc(c.Want, func(want rulecases.Want) bool { return isOnlySetting || want.Path == "spec.trafficDistribution" })
}
