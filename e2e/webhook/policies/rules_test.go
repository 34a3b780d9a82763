package policies_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/e2e/webhook/release"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// testApply applies the plain files, and then the output of kustomize for the folders, which changes nothing.
func (w *testbed) testApply(t *testing.T) {
	first := w.Kubectl(t, "apply", "-f", folder)
	if w.IsAtLeast(release.HasMutatingPolicies) {
		first += w.Kubectl(t, "apply", "-f", defaults)
	} else {
		w.testDefaultsAreRejected(t)
	}
	if n := strings.Count(first, " created\n"); n == 0 || n != strings.Count(first, "\n") {
		t.Errorf("apply -f:\n%s", first)
	}
	again := w.mustRunBlock(t, installCommand)
	if strings.Count(again, " unchanged\n") != strings.Count(first, "\n") || strings.Count(again, "\n") != strings.Count(first, "\n") {
		t.Errorf("apply -k:\n%s", again)
	}
	// Nothing but a denial shows that the policies are active.
	wait.Success(t, "the README's example is denied", func() error {
		if output, err := w.runBlock(t, "kubectl create --dry-run=server"); err == nil || !strings.Contains(err.Error(), "[NS001]") {
			return fmt.Errorf("kubectl: %s: %w", output, err)
		}
		return nil
	})
}

// installCommand is in the README's commands that install everything.
const installCommand = "kubectl apply -k manifests/webhook-cel "

// probed is the namespace of requests that show whether policies work.
const probed = "probed"

// waitForAll waits until each policy is active.
func (w *testbed) waitForAll() {
	w.createNamespaceWith(w.t, probed, policy.DefaultTopologyModeAnnotation, "Auto")
	for rule, object := range w.invalidObjects() {
		w.waitForRule(w.t, rule, object)
	}
	if !w.IsAtLeast(release.HasMutatingPolicies) {
		return
	}
	wait.Success(w.t, "Services get defaults", func() error {
		response := w.create(w.t, serviceOf(probed, "web"), "dryRun=All")
		must.Succeed(w.t, response.err)
		if settingsOf(w.t, response.stored)[rules.TopologyMode] != "Auto" {
			return fmt.Errorf("no default was set")
		}
		return nil
	})
}

func (w *testbed) waitForRule(t *testing.T, rule rules.ID, object map[string]any) {
	t.Helper()
	wait.Success(t, string(rule)+" is active", func() error {
		if response := w.create(t, object, "dryRun=All"); !response.reports(rule) {
			return fmt.Errorf("response: %v", response)
		}
		return nil
	})
}

func (w *testbed) createNamespaceWith(t *testing.T, name, annotation, value string) {
	t.Helper()
	response := w.create(t, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{
		"name": name, "annotations": map[string]any{annotation: value},
	}})
	must.Succeed(t, response.err)
}

// invalidObjects returns an invalid object for each policy.
func (w *testbed) invalidObjects() map[rules.ID]map[string]any {
	slice := func(endpoints ...any) map[string]any {
		return map[string]any{
			"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
			"metadata": map[string]any{"namespace": probed, "name": "web-1"}, "endpoints": endpoints,
		}
	}
	withMetadata := func(kind string, metadata map[string]any) map[string]any {
		metadata["name"] = "bad"
		return map[string]any{"apiVersion": "v1", "kind": kind, "metadata": metadata}
	}
	return map[rules.ID]map[string]any{
		"SVC001": serviceOf(probed, "bad", annotated(policy.TopologyKeysAnnotation, "")),
		"SVC022": serviceOf(probed, "bad", annotated(policy.TopologyModeAnnotation, "foo")),
		"SVC027": serviceOf(probed, "bad", annotated(policy.TopologyKeysAnnotation, policy.TopologyKeysAnnotation)),
		"NS001":  withMetadata("Namespace", map[string]any{"annotations": map[string]any{policy.DefaultTopologyModeAnnotation: "x"}}),
		"EPS001": slice(map[string]any{"addresses": []any{"10.0.0.1"}, "zone": ""}),
		"EPS003": slice(map[string]any{"addresses": []any{"10.0.0.1"}},
			map[string]any{"addresses": []any{"10.0.0.2"}, "zone": "a", "hints": map[string]any{"forZones": []any{map[string]any{"name": "a"}}}}),
		"NODE001": withMetadata("Node", map[string]any{"labels": map[string]any{"topology.kubernetes.io/zone": ""}}),
	}
}

// testTypes reads the results of kube-controller-manager, which checks each expression against the schema of its
// objects.
func (w *testbed) testTypes(t *testing.T) {
	policies := w.Admin.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	var list *admissionregistrationv1.ValidatingAdmissionPolicyList
	wait.Success(t, "all policies are type-checked", func() (err error) {
		if list, err = policies.List(t.Context(), metav1.ListOptions{LabelSelector: label}); err != nil {
			return err
		}
		for _, one := range list.Items {
			if one.Status.TypeChecking == nil || one.Status.ObservedGeneration != one.Generation {
				return fmt.Errorf("policy %s is not type-checked", one.Name)
			}
		}
		return nil
	})
	if len(list.Items) != len(w.invalidObjects()) {
		t.Errorf("%d policies, want %d, the number of invalid examples", len(list.Items), len(w.invalidObjects()))
	}
	for _, one := range list.Items {
		for _, warning := range one.Status.TypeChecking.ExpressionWarnings {
			t.Errorf("%s: %s: %s", one.Name, warning.FieldRef, warning.Warning)
		}
	}
}

// testNoExpressionFails reads the API server's metrics, because an expression that fails admits the object. They count
// no object that is admitted for another reason.
func (w *testbed) testNoExpressionFails(t *testing.T) {
	metrics, err := w.Admin.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	must.Succeed(t, err)
	checks := 0
	for line := range strings.Lines(string(metrics)) {
		if !checkCounts.MatchString(line) {
			continue
		}
		checks++
		isMutating := strings.Contains(line, "_mutating_")
		if strings.Contains(line, `enforcement_action="allow"`) || isMutating && !strings.Contains(line, `error_type="no_error"`) {
			t.Errorf("an expression failed: %s", line)
		}
	}
	if checks == 0 {
		t.Error("no policy metrics")
	}
}

// checkCounts matches the metrics that count the policies' results.
var checkCounts = regexp.MustCompile(`^apiserver_(validating|mutating)_admission_policy_check_total\{`)

// testRuleOff disables a rule as described in the README, and enables it again.
func (w *testbed) testRuleOff(t *testing.T) {
	w.mustRunBlock(t, "name: SVC027")
	w.waitForAcceptance(t, "SVC027", w.invalidObjects()["SVC027"])
	w.mustRunBlock(t, installCommand)
	w.waitForRule(t, "SVC027", w.invalidObjects()["SVC027"])
}

func (w *testbed) waitForAcceptance(t *testing.T, rule rules.ID, object map[string]any) {
	t.Helper()
	wait.Success(t, string(rule)+" is inactive", func() error {
		if response := w.create(t, object, "dryRun=All"); response.reports(rule) {
			return fmt.Errorf("response: %v", response)
		}
		return nil
	})
}

// testNamedProxy sets the proxy's name as described in the README, and removes it.
func (w *testbed) testNamedProxy(t *testing.T, cases []locatedCase) {
	w.mustRunBlock(t, "name: proxyName")
	if w.IsAtLeast(release.HasMutatingPolicies) {
		w.mustRunBlock(t, "name: is-ours")
	}
	foreign := w.invalidObjects()["SVC027"]
	w.waitForRule(t, "SVC035", foreign)
	wait.Success(t, "Services of the default proxy get no defaults", func() error {
		if response := w.create(t, serviceOf(probed, "web"), "dryRun=All"); len(settingsOf(t, response.stored)) > 0 {
			return fmt.Errorf("got a default: %v", settingsOf(t, response.stored))
		}
		return nil
	})
	count := 0
	for _, c := range cases {
		if c.Settings != nil && c.Settings.ProxyName == "vicinity" {
			count++
			t.Run(c.Name, func(t *testing.T) { w.testCase(t, c) })
		}
	}
	if count == 0 {
		t.Error("no case has a named proxy")
	}
	w.mustRunBlock(t, installCommand)
	w.waitForAcceptance(t, "SVC035", foreign)
}

// label is the label of all the policies, by which they are removed.
const label = "app.kubernetes.io/name=vicinity-webhook-cel"

// testStrict checks that the overlay denies what it documents, and changes nothing else.
func (w *testbed) testStrict(t *testing.T, cases []locatedCase) {
	w.Kubectl(t, "apply", "-k", strict)
	wait.Success(t, "an unknown mode is denied", func() error {
		if response := w.create(t, w.invalidObjects()["SVC022"], "dryRun=All"); response.err == nil {
			return fmt.Errorf("response: %v", response)
		}
		return nil
	})
	count := 0
	for _, c := range cases {
		if c.Settings == nil || !c.Settings.Strict || len(c.Settings.Actions) > 0 {
			continue
		}
		count++
		t.Run(c.Name, func(t *testing.T) {
			// The policy is active with its new variable once exactly the cases that should be denied are denied.
			wait.Success(t, "the overlay is active", func() error {
				response := w.request(t, c, "dryRun=All")
				if (response.err != nil) != denies(c) {
					return fmt.Errorf("response: %v", response)
				}
				return nil
			})
			checkViolations(t, c.wantViolations(), w.request(t, c))
		})
	}
	if count == 0 {
		t.Error("no case covers strict mode")
	}
}

func denies(c locatedCase) bool {
	for _, want := range c.Want {
		if want.Action == rules.Deny {
			return true
		}
	}
	return false
}

// testRemoval removes all policies as described in the README.
func (w *testbed) testRemoval(t *testing.T) {
	w.mustRunBlock(t, "kubectl delete validatingadmissionpolicies")
	for rule, object := range w.invalidObjects() {
		w.waitForAcceptance(t, rule, object)
	}
	wait.Success(t, "no Service gets a default", func() error {
		response := w.create(t, serviceOf(probed, "web"), "dryRun=All")
		must.Succeed(t, response.err)
		if settings := settingsOf(t, response.stored); len(settings) > 0 {
			return fmt.Errorf("got a default: %v", settings)
		}
		return nil
	})
}

// testDefaultsAreRejected checks that API servers without MutatingAdmissionPolicies reject the file, as the file
// documents.
func (w *testbed) testDefaultsAreRejected(t *testing.T) {
	t.Helper()
	_, err := w.TryKubectl(t.Context(), "apply", "-f", defaults)
	if err == nil || !strings.Contains(err.Error(), `no matches for kind "MutatingAdmissionPolicy"`) {
		t.Errorf("apply %s: %v", defaults, err)
	}
}
