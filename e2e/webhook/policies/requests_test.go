package policies_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/vicinity-proxy/vicinity/e2e/webhook/release"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/rulecases"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// autoSettings returns the settings that a Service gets if the default is Auto.
func (w *testbed) autoSettings() map[rules.Setting]string {
	if !w.IsAtLeast(release.HasMutatingPolicies) {
		return map[rules.Setting]string{}
	}
	return map[rules.Setting]string{rules.TopologyMode: "Auto"}
}

func checkSettings(t *testing.T, what string, want map[rules.Setting]string, response response) {
	t.Helper()
	must.Succeed(t, response.err)
	if diff := cmp.Diff(want, settingsOf(t, response.stored)); diff != "" {
		t.Errorf("%s: topology settings (-want +got):\n%s", what, diff)
	}
}

// testWriting checks that a new Service gets its default however it is written, and never again later.
func (w *testbed) testWriting(t *testing.T) {
	w.createNamespaceWith(t, "writing", policy.DefaultTopologyModeAnnotation, "Auto")
	none := map[rules.Setting]string{}

	checkSettings(t, "a dry run", w.autoSettings(), w.create(t, serviceOf("writing", "dry"), "dryRun=All"))
	if _, err := w.Admin.CoreV1().Services("writing").Get(t.Context(), "dry", metav1.GetOptions{}); err == nil {
		t.Error("the dry run stored the Service")
	}
	generated := serviceOf("writing", "")
	generated["metadata"] = map[string]any{"namespace": "writing", "generateName": "web-"}
	checkSettings(t, "generateName", w.autoSettings(), w.create(t, generated))

	applied := w.apply(t, serviceOf("writing", "applied"))
	checkSettings(t, "server-side apply", w.autoSettings(), applied)
	again := w.apply(t, serviceOf("writing", "applied"))
	checkSettings(t, "repeated server-side apply", w.autoSettings(), again)
	if diff := cmp.Diff(versionOf(applied), versionOf(again)); diff != "" {
		t.Errorf("a repeated apply changed the object (-before +after):\n%s", diff)
	}

	checkSettings(t, "a create", w.autoSettings(), w.create(t, serviceOf("writing", "web")))
	checkSettings(t, "a PUT without the annotation", none, w.replace(t, serviceOf("writing", "web")))
	service := serviceOf("writing", "own", annotated(policy.TopologyModeAnnotation, "Disabled"))
	disabled := map[rules.Setting]string{rules.TopologyMode: "Disabled"}
	checkSettings(t, "its own setting", disabled, w.create(t, service))
	w.testClientSideApply(t)
}

// testClientSideApply checks that kubectl's apply is denied with our messages, and that repeating it changes nothing.
func (w *testbed) testClientSideApply(t *testing.T) {
	t.Helper()
	file := t.TempDir() + "/service.json"
	writeFile(t, file, serviceOf("writing", "by-kubectl"))
	for _, want := range []string{"service/by-kubectl created\n", "service/by-kubectl unchanged\n"} {
		if got := w.Kubectl(t, "apply", "-f", file); got != want {
			t.Errorf("kubectl apply: %q, want %q", got, want)
		}
	}
	const path = `jsonpath={.metadata.annotations.service\.kubernetes\.io/topology-mode}`
	mode := w.Kubectl(t, "get", "service", "by-kubectl", "-n", "writing", "-o", path)
	if mode != w.autoSettings()[rules.TopologyMode] {
		t.Errorf("topology-mode after two applies: %q, want %q", mode, w.autoSettings()[rules.TopologyMode])
	}
}

func versionOf(response response) any {
	return response.stored["metadata"].(map[string]any)["resourceVersion"]
}

// testDeletion checks that an object that is being deleted may become invalid, and may then lose its finalizer.
func (w *testbed) testDeletion(t *testing.T) {
	w.createNamespace(t, "deletion", nil)
	withFinalizer := func(metadata, _ map[string]any) { metadata["finalizers"] = []any{"example.com/wait"} }
	must.Succeed(t, w.create(t, serviceOf("deletion", "web", withFinalizer)).err)
	must.Succeed(t, w.Admin.CoreV1().Services("deletion").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	invalid := annotated(policy.TopologyKeysAnnotation, "a b")
	if response := w.replace(t, serviceOf("deletion", "web", withFinalizer, invalid)); response.err != nil || len(response.violations) > 0 {
		t.Errorf("an invalid annotation on a Service that is being deleted: %v", response)
	}
	if response := w.replace(t, serviceOf("deletion", "web", invalid)); response.err != nil || len(response.violations) > 0 {
		t.Errorf("removing the finalizer: %v", response)
	}
	if _, err := w.Admin.CoreV1().Services("deletion").Get(t.Context(), "web", metav1.GetOptions{}); err == nil {
		t.Error("the Service still exists")
	}
}

// testOptingOut checks that the cluster's own objects are not reviewed, and neither are Namespaces that opt out.
// Services that opt out are among the cases.
func (w *testbed) testOptingOut(t *testing.T) {
	w.createNamespace(t, "opted-out", &rulecases.Namespace{
		Labels:      map[string]string{policy.AdmissionLabel: policy.AdmissionDisabled},
		Annotations: map[string]string{policy.DefaultTopologyModeAnnotation: "Auto"},
	})
	w.createNamespace(t, "vicinity-system", nil)
	invalid := annotated(policy.TopologyKeysAnnotation, "a b")
	for _, namespace := range []string{"kube-system", "kube-public", "kube-node-lease", "vicinity-system", "opted-out"} {
		if response := w.create(t, serviceOf(namespace, "wrong", invalid)); response.err != nil || len(response.violations) > 0 {
			t.Errorf("an invalid Service in %s: %v", namespace, response)
		}
	}
	none := map[rules.Setting]string{}
	checkSettings(t, "a Service in a Namespace that opts out", none, w.create(t, serviceOf("opted-out", "web")))
}

// testControllers checks that slices written by a controller of Kubernetes are not reviewed, whatever they contain.
func (w *testbed) testControllers(t *testing.T) {
	w.createNamespace(t, "controllers", nil)
	slice := objects.Slice("controllers", "web-1", "", "10.0.0.1")
	slice.Labels = nil
	slice.Endpoints[0].Zone = new("us east!!")
	if _, err := w.Admin.DiscoveryV1().EndpointSlices("controllers").Create(t.Context(), slice, metav1.CreateOptions{}); err == nil {
		t.Error("an administrator wrote an invalid zone, want a denial")
	}
	// The slice is written by a ServiceAccount of kube-system, like those of the controllers.
	config, err := w.ClientConfig("system:serviceaccount:kube-system:endpointslice-controller",
		"system:serviceaccounts:kube-system", "system:masters")
	must.Succeed(t, err)
	controller, err := kubernetes.NewForConfig(config)
	must.Succeed(t, err)
	_, err = controller.DiscoveryV1().EndpointSlices("controllers").Create(t.Context(), slice, metav1.CreateOptions{})
	must.Succeed(t, err)
	w.testRealController(t)
}

// testRealController checks that the running controllers write the slices of Services.
func (w *testbed) testRealController(t *testing.T) {
	t.Helper()
	must.Succeed(t, w.create(t, serviceOf("controllers", "web")).err)
	wait.Success(t, "the Service has its EndpointSlice", func() error {
		selector := metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=web"}
		slices, err := w.Admin.DiscoveryV1().EndpointSlices("controllers").List(t.Context(), selector)
		if err == nil && len(slices.Items) == 0 {
			err = fmt.Errorf("no EndpointSlice")
		}
		return err
	})
}

// testLargeObjects checks that annotations of the maximum size are reviewed, or admitted if the CEL cost is too high.
// The request never fails because of their size.
func (w *testbed) testLargeObjects(t *testing.T) {
	w.createNamespaceWith(t, "large", policy.DefaultTopologyModeAnnotation, "Auto")
	const maxSize = 256<<10 - 1000
	many := func(metadata, _ map[string]any) {
		annotations := map[string]any{}
		for i := range 20_000 {
			annotations[fmt.Sprintf("a%06d", i)] = "x"
		}
		metadata["annotations"] = annotations
	}
	manyAndWrong := func(metadata, spec map[string]any) {
		many(metadata, spec)
		annotated(policy.TopologyKeysAnnotation, "a b")(metadata, spec)
	}
	for name, c := range map[string]struct {
		change func(metadata, spec map[string]any)
		denies rules.ID // must be found in spite of the size
	}{
		"a long value": {annotated("example.com/long", strings.Repeat("x", maxSize)), ""},
		"commas":       {annotated(policy.TopologyKeysAnnotation, strings.Repeat(",", maxSize)), "SVC002"},
		"one long key": {annotated(policy.TopologyKeysAnnotation, strings.Repeat("x", maxSize)), "SVC003"},
		"spaces":       {annotated(policy.TopologyKeysAnnotation, strings.Repeat(" ", maxSize)), "SVC001"},
		"a long mode":  {annotated(policy.TopologyModeAnnotation, strings.Repeat("x", maxSize)), ""},
		"last-applied configuration": {annotated(corev1.LastAppliedConfigAnnotation,
			`{"spec":{"topologyKeys":["`+strings.Repeat("x", maxSize-200)+`"]}}`), ""},
		"many annotations":              {many, ""},
		"many annotations, one invalid": {manyAndWrong, "SVC003"},
	} {
		t.Run(name, func(t *testing.T) {
			response := w.create(t, serviceOf("large", "web", c.change), "dryRun=All")
			if c.denies != "" != (response.err != nil) || c.denies != "" && !response.reports(c.denies) {
				t.Errorf("want a denial by %q, or none if that is empty: %.2000v", c.denies, response)
			}
		})
	}
}

// testLargeSlice checks that a wrong zone is found in an EndpointSlice with the maximum number of endpoints.
func (w *testbed) testLargeSlice(t *testing.T) {
	const maxEndpoints = 1000
	endpoints := make([]any, maxEndpoints)
	for i := range endpoints {
		endpoints[i] = map[string]any{
			"addresses": []any{fmt.Sprintf("10.1.%d.%d", i/250, i%250+1)}, "zone": fmt.Sprintf("zone-%d", i%7),
			"hints": map[string]any{"forZones": []any{map[string]any{"name": "zone-1"}, map[string]any{"name": "zone-2"}}},
		}
	}
	slice := w.invalidObjects()["EPS001"]
	slice["metadata"], slice["endpoints"] = map[string]any{"namespace": "large", "name": "web-1"}, endpoints
	if response := w.create(t, slice, "dryRun=All"); response.err != nil || len(response.violations) > 0 {
		t.Errorf("%d endpoints: %.2000v", maxEndpoints, response)
	}
	endpoints[maxEndpoints-1].(map[string]any)["zone"] = "us east!!"
	if response := w.create(t, slice, "dryRun=All"); !response.reports("EPS001") {
		t.Errorf("%d endpoints, one invalid: %.2000v", maxEndpoints, response)
	}
}

// testClusterDefaults configures each cluster-wide default in the cases, as described in the README.
func (w *testbed) testClusterDefaults(t *testing.T, cases []locatedCase) {
	w.Needs(t, release.HasMutatingPolicies, "a policy that sets defaults")
	byDefault := map[rulecases.Setting][]locatedCase{}
	for _, c := range cases {
		if s := c.Settings; s != nil && s.Default != nil && !s.OnUpdate && !s.WithAffinity && s.ProxyName == "" {
			byDefault[*s.Default] = append(byDefault[*s.Default], c)
		}
	}
	if len(byDefault) == 0 {
		t.Error("no case has a cluster-wide default")
	}
	w.createNamespace(t, "without-default", nil)
	for setting, chosen := range byDefault {
		w.setClusterDefault(t, setting)
		for _, c := range chosen {
			t.Run(c.Name, func(t *testing.T) { w.testCase(t, c) })
		}
	}
}

func (w *testbed) setClusterDefault(t *testing.T, setting rulecases.Setting) {
	t.Helper()
	const example = `{"vicinity.dev/default-traffic-distribution": "PreferSameZone"}`
	expression := fmt.Sprintf("{%q: %q}", defaultAnnotations[setting.Setting], setting.Value)
	w.mustRunBlock(t, "value: cluster", example, expression)
	want := map[rules.Setting]string{setting.Setting: setting.Value}
	wait.Success(t, "Services get "+expression, func() error {
		response := w.create(t, serviceOf("without-default", "web"), "dryRun=All")
		must.Succeed(t, response.err)
		if diff := cmp.Diff(want, settingsOf(t, response.stored)); diff != "" {
			return fmt.Errorf("settings (-want +got):\n%s", diff)
		}
		return nil
	})
}

func writeFile(t *testing.T, file string, object map[string]any) {
	t.Helper()
	text, err := json.Marshal(object)
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(file, text, 0o600))
}
