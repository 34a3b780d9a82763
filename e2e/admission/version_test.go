package admission_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/rulecases"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// With binaries.OfYours the tests run against API servers of other releases. What those answer otherwise than the cases have it is here.

// The minor releases of Kubernetes from which on something is as the cases have it, without a feature gate.
const (
	keepsDistribution   = 31 // spec.trafficDistribution; API servers before drop it (KEP-4444)
	readsEndpointSlices = 34 // to find what they call, with --enable-aggregator-routing; API servers before read Endpoints
	takesPreferSame     = 34 // PreferSameZone and PreferSameNode; API servers before refuse them (KEP-3015)
	hasMutatingPolicies = 36 // MutatingAdmissionPolicies in v1 (KEP-3962)
	hasEverything       = 36 // from here on no test may be left out
)

// server is the version of the API servers.
var server *version.Version

// isAtLeast says whether the API servers are of a minor release or a later one. From hasEverything on it always says yes, so that no
// test can do less there.
func isAtLeast(minor uint) bool {
	if minor > hasEverything {
		panic(fmt.Sprintf("a test wants Kubernetes 1.%d, and with 1.%d no test may do less than it can", minor, hasEverything))
	}
	return server.AtLeast(version.MajorMinor(1, minor))
}

// learnVersion asks an API server which version it is. Those that the lab builds are never old.
func learnVersion(config *rest.Config) error {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	told, err := client.ServerVersion()
	if err != nil {
		return err
	}
	if server, err = version.ParseGeneric(told.GitVersion); err != nil {
		return err
	}
	if os.Getenv(binaries.OfYours) == "" && !isAtLeast(hasEverything) {
		return fmt.Errorf("the lab's API server says that it is %s, with which tests would be left out", told.GitVersion)
	}
	return nil
}

// needs leaves a test out before a minor release.
func needs(t *testing.T, minor uint, what string) {
	t.Helper()
	if !isAtLeast(minor) {
		t.Skipf("Kubernetes %s: %s came with 1.%d", server, what, minor)
	}
}

// casesForServer are the cases as the API server can be asked them.
func casesForServer(t *testing.T) []rulecases.Case {
	t.Helper()
	cases := rulecases.Cases(t)
	for i := range cases {
		if !isAtLeast(takesPreferSame) {
			respell(cases[i].Object)
			respell(cases[i].Old)
			giveNoDistribution(&cases[i])
		}
		if !isAtLeast(keepsDistribution) {
			expectNoDistribution(&cases[i])
		}
	}
	return cases
}

// respell says PreferClose for what came later. All rules treat the three alike.
func respell(object map[string]any) {
	spec, _ := object["spec"].(map[string]any)
	switch spec["trafficDistribution"] {
	case corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode:
		spec["trafficDistribution"] = corev1.ServiceTrafficDistributionPreferClose
	}
}

// giveNoDistribution: as a default it would be why a Service is refused. That comes before the question in how many zones the Nodes are.
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

// expectNoDistribution: nobody is asked about a field that the API server has dropped. It is the only setting of Services without
// annotations, and there is nothing to say of Services without settings.
func expectNoDistribution(c *rulecases.Case) {
	spec, _ := c.Object["spec"].(map[string]any)
	isAlone := spec["trafficDistribution"] != nil && len(annotationsOf(c.Object)) == 0
	c.Want = slices.DeleteFunc(c.Want, func(want rulecases.Want) bool { return isAlone || want.Path == "spec.trafficDistribution" })
}

// storedSettings are the settings of an object that the API server keeps.
func storedSettings(settings map[rules.Setting]string) map[rules.Setting]string {
	if !isAtLeast(keepsDistribution) {
		delete(settings, rules.TrafficDistribution)
	}
	return settings
}

// What the tests take an API server of a version for, it is.
func TestTheAPIServerKnowsTheDistributionsOfItsVersion(t *testing.T) {
	in := install(t, manifests, 1)
	services := in.admin.CoreV1().Services(probedNamespace)
	for value, since := range map[string]uint{
		corev1.ServiceTrafficDistributionPreferClose:    keepsDistribution,
		corev1.ServiceTrafficDistributionPreferSameZone: takesPreferSame,
		corev1.ServiceTrafficDistributionPreferSameNode: takesPreferSame,
	} {
		service := serviceOf("distributed", nil)
		service.Spec.TrafficDistribution = new(value)
		made, err := services.Create(t.Context(), service, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		switch {
		case !isAtLeast(keepsDistribution):
			if err != nil || made.Spec.TrafficDistribution != nil {
				t.Errorf("%s must be dropped: error %v, stored %v", value, err, made.Spec.TrafficDistribution)
			}
		case !isAtLeast(since):
			if !apierrors.IsInvalid(err) || len(deniedBy(err)) > 0 {
				t.Errorf("%s must be refused, and not by us: %v", value, err)
			}
		case err != nil || made.Spec.TrafficDistribution == nil || *made.Spec.TrafficDistribution != value:
			t.Errorf("%s must be kept: error %v, stored %v", value, err, made.Spec.TrafficDistribution)
		}
	}
}

// putEndpoints does the work of the Endpoints controller.
//
//nolint:staticcheck // Endpoints are deprecated, and all that such API servers read
func (in *installation) putEndpoints(ctx context.Context, addresses []string) error {
	made := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: installedName}}
	for _, address := range addresses {
		made.Subsets = append(made.Subsets, corev1.EndpointSubset{
			Addresses: []corev1.EndpointAddress{{IP: address}},
			Ports:     []corev1.EndpointPort{{Name: "webhook", Port: webhookPort}},
		})
	}
	endpoints := in.admin.CoreV1().Endpoints(installedNamespace)
	_, err := endpoints.Update(ctx, made, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = endpoints.Create(ctx, made, metav1.CreateOptions{})
	}
	return err
}

// testDefaultsAreRefused: before there are MutatingAdmissionPolicies, API servers refuse the file, as it says itself.
func (w *twin) testDefaultsAreRefused(t *testing.T) {
	t.Helper()
	_, err := w.tryRun(t, "apply", "-f", twinDefaults)
	if err == nil || !strings.Contains(err.Error(), `no matches for kind "MutatingAdmissionPolicy"`) {
		t.Errorf("applying %s: %v", twinDefaults, err)
	}
}

// forServer leaves out the commands of the README that say for which release they are, where that is a later one.
func forServer(commands string) string {
	var kept strings.Builder
	for line := range strings.Lines(commands) {
		if isAtLeast(hasMutatingPolicies) || !strings.Contains(line, fmt.Sprintf("1.%d and later", hasMutatingPolicies)) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}
