package policies_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/e2e/webhook/release"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/rulecases"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// locatedCase is a case with a namespace of its own, or with the name of the object if that is a Namespace or a Node.
type locatedCase struct {
	rulecases.Case
	location string
}

// locateCases assigns a namespace or name to each case that reaches an API server.
func (w *testbed) locateCases() []locatedCase {
	var cases []locatedCase
	for i, c := range w.Cases(w.t) {
		if c.APIServer == "" {
			cases = append(cases, locatedCase{c, fmt.Sprintf("case-%d", i)})
		}
	}
	return cases
}

// isPlain reports whether the case is about the policies as shipped.
func (c locatedCase) isPlain() bool { return c.Settings == nil }

// locatedObject returns an object of the case in the case's namespace.
func (c locatedCase) locatedObject(t *testing.T, object map[string]any) map[string]any {
	t.Helper()
	text, err := json.Marshal(object)
	must.Succeed(t, err)
	var located map[string]any
	text = bytes.ReplaceAll(text, []byte(rulecases.OwnNamespace), []byte(c.location))
	must.Succeed(t, json.Unmarshal(text, &located))
	metadata := located["metadata"].(map[string]any)
	switch c.Kind() {
	case "Namespace", "Node":
		metadata["name"] = c.location
	default:
		metadata["namespace"] = c.location
	}
	return located
}

// storeOld creates the Namespaces and the old objects before any policy is active.
func (w *testbed) storeOld(cases []locatedCase) {
	for _, c := range cases {
		if c.Kind() == "Service" || c.Kind() == "EndpointSlice" {
			w.createNamespace(w.t, c.location, c.Namespace)
		}
		if c.Old != nil {
			if response := w.create(w.t, c.locatedObject(w.t, c.Old)); response.err != nil {
				w.t.Fatalf("%s: store the old object: %v", c.Name, response.err)
			}
		}
	}
}

func (w *testbed) testCases(t *testing.T, cases []locatedCase) {
	count := 0
	for _, c := range cases {
		if c.isPlain() {
			count++
			t.Run(c.Name, func(t *testing.T) { w.testCase(t, c) })
		}
	}
	if count == 0 {
		t.Error("no case covers the policies")
	}
}

// testCase makes the request of a case. A case that CEL cannot express is admitted without a warning.
func (w *testbed) testCase(t *testing.T, c locatedCase) {
	response := w.request(t, c)
	checkViolations(t, c.wantViolations(), response)
	if response.err == nil && c.Kind() == "Service" {
		if diff := cmp.Diff(w.wantSettings(t, c), settingsOf(t, response.stored)); diff != "" {
			t.Errorf("stored topology settings (-want +got):\n%s", diff)
		}
	}
}

func (w *testbed) request(t *testing.T, c locatedCase, parameters ...string) response {
	t.Helper()
	if c.Old == nil {
		return w.create(t, c.locatedObject(t, c.Object), parameters...)
	}
	return w.replace(t, c.locatedObject(t, c.Object), parameters...)
}

// wantViolations returns the violations that the policies should report.
func (c locatedCase) wantViolations() []rulecases.Want {
	if c.NotInCEL != "" {
		return nil
	}
	return c.Want
}

// checkViolations compares the violations in a response with those of a case: the same rules, the same actions, and
// each path in the text.
func checkViolations(t *testing.T, want []rulecases.Want, response response) {
	t.Helper()
	expected, got := map[string]bool{}, map[string]bool{}
	isDenied := false
	for _, one := range want {
		expected[string(one.Action)+" "+string(one.Rule)] = true
		isDenied = isDenied || one.Action == rules.Deny
		isFound := func(v violation) bool {
			return v.rule == one.Rule && v.action == one.Action && strings.Contains(v.text, one.Path+": ")
		}
		if !slices.ContainsFunc(response.violations, isFound) {
			t.Errorf("the response has no %s for %s", one.Rule, one.Path)
		}
	}
	for _, v := range response.violations {
		got[string(v.action)+" "+string(v.rule)] = true
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(expected)), slices.Sorted(maps.Keys(got))); diff != "" || isDenied != (response.err != nil) {
		t.Errorf("rules (-want +got):\n%s%v", diff, response)
	}
}

// wantSettings returns the topology settings that the stored object of a case should have.
func (w *testbed) wantSettings(t *testing.T, c locatedCase) map[rules.Setting]string {
	t.Helper()
	settings := w.Stored(settingsOf(t, c.Object))
	switch {
	case c.Default == nil || !w.IsAtLeast(release.HasMutatingPolicies):
	case c.NotInCEL != "": // the Namespace's default applies regardless of the Nodes
		for setting, key := range defaultAnnotations {
			if value, ok := c.Namespace.Annotations[key]; ok {
				settings[setting] = value
			}
		}
	case c.Default.Setting != "":
		settings[c.Default.Setting] = c.Default.Value
	}
	return settings
}

var defaultAnnotations = map[rules.Setting]string{
	rules.TopologyMode:        policy.DefaultTopologyModeAnnotation,
	rules.TopologyKeys:        policy.DefaultTopologyKeysAnnotation,
	rules.TrafficDistribution: policy.DefaultTrafficDistributionAnnotation,
}

// settingsOf returns the topology settings of a Service.
func settingsOf(t *testing.T, object map[string]any) map[rules.Setting]string {
	t.Helper()
	service := rulecases.Service(t, object)
	settings := map[rules.Setting]string{}
	for setting, key := range map[rules.Setting]string{
		rules.TopologyMode: policy.TopologyModeAnnotation, rules.TopologyKeys: policy.TopologyKeysAnnotation,
	} {
		if value, present := service.Metadata.Annotations[key]; present {
			settings[setting] = value
		}
	}
	if service.Spec.TrafficDistribution != nil {
		settings[rules.TrafficDistribution] = *service.Spec.TrafficDistribution
	}
	return settings
}
