package admission_test

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

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/rulecases"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// twinAuto is what a Service is given where the default is Auto.
func twinAuto() map[rules.Setting]string {
	if !isAtLeast(hasMutatingPolicies) {
		return map[rules.Setting]string{}
	}
	return map[rules.Setting]string{rules.TopologyMode: "Auto"}
}

func checkTwinSettings(t *testing.T, what string, want map[rules.Setting]string, answer twinAnswer) {
	t.Helper()
	twinMust(t, answer.err)
	if diff := cmp.Diff(want, twinSettings(t, answer.stored)); diff != "" {
		t.Errorf("%s: topology settings (-want +got):\n%s", what, diff)
	}
}

// testWriting: whichever way a Service is written, it is given its default when it is new, and then never again.
func (w *twin) testWriting(t *testing.T) {
	w.namespaceWith(t, "writing", policy.DefaultTopologyModeAnnotation, "Auto")
	none := map[rules.Setting]string{}

	checkTwinSettings(t, "a dry run", twinAuto(), w.create(t, twinService("writing", "dry"), "dryRun=All"))
	if _, err := w.client.CoreV1().Services("writing").Get(t.Context(), "dry", metav1.GetOptions{}); err == nil {
		t.Error("a dry run stores the Service")
	}
	generated := twinService("writing", "")
	generated["metadata"] = map[string]any{"namespace": "writing", "generateName": "web-"}
	checkTwinSettings(t, "generateName", twinAuto(), w.create(t, generated))

	applied := w.apply(t, twinService("writing", "applied"))
	checkTwinSettings(t, "server-side apply", twinAuto(), applied)
	again := w.apply(t, twinService("writing", "applied"))
	checkTwinSettings(t, "the same once more", twinAuto(), again)
	if diff := cmp.Diff(twinVersion(applied), twinVersion(again)); diff != "" {
		t.Errorf("a repeated apply changes something (-before +after):\n%s", diff)
	}

	checkTwinSettings(t, "a create", twinAuto(), w.create(t, twinService("writing", "web")))
	checkTwinSettings(t, "a PUT without the annotation", none, w.replace(t, twinService("writing", "web")))
	own := twinService("writing", "own", twinAnnotated(policy.TopologyModeAnnotation, "Disabled"))
	disabled := map[rules.Setting]string{rules.TopologyMode: "Disabled"}
	checkTwinSettings(t, "a setting of its own", disabled, w.create(t, own))
	w.testClientSideApply(t)
}

// testClientSideApply: kubectl's apply is denied with our words, and repeated it changes nothing.
func (w *twin) testClientSideApply(t *testing.T) {
	t.Helper()
	file := t.TempDir() + "/service.json"
	twinWrite(t, file, twinService("writing", "by-kubectl"))
	for _, want := range []string{"service/by-kubectl created\n", "service/by-kubectl unchanged\n"} {
		if got := w.run(t, "apply", "-f", file); got != want {
			t.Errorf("kubectl apply: %q, want %q", got, want)
		}
	}
	const path = `jsonpath={.metadata.annotations.service\.kubernetes\.io/topology-mode}`
	mode := w.run(t, "get", "service", "by-kubectl", "-n", "writing", "-o", path)
	if mode != twinAuto()[rules.TopologyMode] {
		t.Errorf("after two applies topology-mode is %q", mode)
	}
}

func twinVersion(answer twinAnswer) any {
	return answer.stored["metadata"].(map[string]any)["resourceVersion"]
}

// testDeletion: an object that is wrong, and being deleted, may lose its finalizer, and even be made worse.
func (w *twin) testDeletion(t *testing.T) {
	w.namespace(t, "deletion", nil)
	held := func(metadata, _ map[string]any) { metadata["finalizers"] = []any{"example.com/wait"} }
	twinMust(t, w.create(t, twinService("deletion", "web", held)).err)
	twinMust(t, w.client.CoreV1().Services("deletion").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	wrong := twinAnnotated(policy.TopologyKeysAnnotation, "a b")
	if answer := w.replace(t, twinService("deletion", "web", held, wrong)); answer.err != nil || len(answer.said) > 0 {
		t.Errorf("a wrong annotation on what is being deleted: %v", answer)
	}
	if answer := w.replace(t, twinService("deletion", "web", wrong)); answer.err != nil || len(answer.said) > 0 {
		t.Errorf("taking the finalizer away: %v", answer)
	}
	if _, err := w.client.CoreV1().Services("deletion").Get(t.Context(), "web", metav1.GetOptions{}); err == nil {
		t.Error("the Service is still there")
	}
}

// testOptingOut: what runs the cluster is not judged, nor is a Namespace that does not want to be. Services that opt out are among the
// cases.
func (w *twin) testOptingOut(t *testing.T) {
	w.namespace(t, "opted-out", &rulecases.Namespace{
		Labels:      map[string]string{policy.AdmissionLabel: policy.AdmissionDisabled},
		Annotations: map[string]string{policy.DefaultTopologyModeAnnotation: "Auto"},
	})
	w.namespace(t, "vicinity-system", nil)
	wrong := twinAnnotated(policy.TopologyKeysAnnotation, "a b")
	for _, namespace := range []string{"kube-system", "kube-public", "kube-node-lease", "vicinity-system", "opted-out"} {
		if answer := w.create(t, twinService(namespace, "wrong", wrong)); answer.err != nil || len(answer.said) > 0 {
			t.Errorf("a wrong Service in %s: %v", namespace, answer)
		}
	}
	none := map[rules.Setting]string{}
	checkTwinSettings(t, "a Service in a Namespace that opts out", none, w.create(t, twinService("opted-out", "web")))
}

// testControllers: a slice that a controller of Kubernetes writes is not judged, whatever is in it.
func (w *twin) testControllers(t *testing.T) {
	w.namespace(t, "controllers", nil)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "web-1"}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Zone: new("us east!!")}},
	}
	if _, err := w.client.DiscoveryV1().EndpointSlices("controllers").Create(t.Context(), slice, metav1.CreateOptions{}); err == nil {
		t.Error("an administrator may write a zone that is none")
	}
	// Written by a ServiceAccount of kube-system, as the controllers' are.
	config, err := w.plane.ClientConfig("system:serviceaccount:kube-system:endpointslice-controller",
		"system:serviceaccounts:kube-system", "system:masters")
	twinMust(t, err)
	controller, err := kubernetes.NewForConfig(config)
	twinMust(t, err)
	_, err = controller.DiscoveryV1().EndpointSlices("controllers").Create(t.Context(), slice, metav1.CreateOptions{})
	twinMust(t, err)
	w.testRealController(t)
}

// testRealController: the controllers that run write the slices of Services.
func (w *twin) testRealController(t *testing.T) {
	t.Helper()
	twinMust(t, w.create(t, twinService("controllers", "web")).err)
	twinAwait(t, "the Service has its EndpointSlice", func() error {
		selector := metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=web"}
		slices, err := w.client.DiscoveryV1().EndpointSlices("controllers").List(t.Context(), selector)
		if err == nil && len(slices.Items) == 0 {
			err = fmt.Errorf("there is none")
		}
		return err
	})
}

// testLargeObjects: as many bytes of annotations as an object may have are judged, or let through if that costs too much; the request
// never fails for it.
func (w *twin) testLargeObjects(t *testing.T) {
	w.namespaceWith(t, "large", policy.DefaultTopologyModeAnnotation, "Auto")
	const most = 256<<10 - 1000
	many := func(metadata, _ map[string]any) {
		annotations := map[string]any{}
		for i := range 20_000 {
			annotations[fmt.Sprintf("a%06d", i)] = "x"
		}
		metadata["annotations"] = annotations
	}
	manyAndWrong := func(metadata, spec map[string]any) {
		many(metadata, spec)
		twinAnnotated(policy.TopologyKeysAnnotation, "a b")(metadata, spec)
	}
	for name, c := range map[string]struct {
		change func(metadata, spec map[string]any)
		denies rules.ID // which must be found all the same
	}{
		"a long value": {twinAnnotated("example.com/long", strings.Repeat("x", most)), ""},
		"commas":       {twinAnnotated(policy.TopologyKeysAnnotation, strings.Repeat(",", most)), "SVC002"},
		"one long key": {twinAnnotated(policy.TopologyKeysAnnotation, strings.Repeat("x", most)), "SVC003"},
		"spaces":       {twinAnnotated(policy.TopologyKeysAnnotation, strings.Repeat(" ", most)), "SVC001"},
		"a long mode":  {twinAnnotated(policy.TopologyModeAnnotation, strings.Repeat("x", most)), ""},
		"what was applied": {twinAnnotated(corev1.LastAppliedConfigAnnotation,
			`{"spec":{"topologyKeys":["`+strings.Repeat("x", most-200)+`"]}}`), ""},
		"many annotations":               {many, ""},
		"many annotations and one wrong": {manyAndWrong, "SVC003"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := w.create(t, twinService("large", "web", c.change), "dryRun=All")
			if c.denies != "" != (answer.err != nil) || c.denies != "" && !answer.says(c.denies) {
				t.Errorf("want %q: %.2000v", c.denies, answer)
			}
		})
	}
}

// testLargeSlice: a wrong zone is found in an EndpointSlice with as many endpoints as it may have.
func (w *twin) testLargeSlice(t *testing.T) {
	const most = 1000
	endpoints := make([]any, most)
	for i := range endpoints {
		endpoints[i] = map[string]any{
			"addresses": []any{fmt.Sprintf("10.1.%d.%d", i/250, i%250+1)}, "zone": fmt.Sprintf("zone-%d", i%7),
			"hints": map[string]any{"forZones": []any{map[string]any{"name": "zone-1"}, map[string]any{"name": "zone-2"}}},
		}
	}
	slice := w.knownBad()["EPS001"]
	slice["metadata"], slice["endpoints"] = map[string]any{"namespace": "large", "name": "web-1"}, endpoints
	if answer := w.create(t, slice, "dryRun=All"); answer.err != nil || len(answer.said) > 0 {
		t.Errorf("%d endpoints: %.2000v", most, answer)
	}
	endpoints[most-1].(map[string]any)["zone"] = "us east!!"
	if answer := w.create(t, slice, "dryRun=All"); !answer.says("EPS001") {
		t.Errorf("%d endpoints and one wrong: %.2000v", most, answer)
	}
}

// testClusterDefaults gives the policy each default of the cluster that the cases have, as the README says.
func (w *twin) testClusterDefaults(t *testing.T, cases []twinCase) {
	needs(t, hasMutatingPolicies, "a policy that gives defaults")
	byDefault := map[rulecases.Setting][]twinCase{}
	for _, c := range cases {
		if s := c.Settings; s != nil && s.Default != nil && !s.OnUpdate && !s.WithAffinity && s.ProxyName == "" {
			byDefault[*s.Default] = append(byDefault[*s.Default], c)
		}
	}
	if len(byDefault) == 0 {
		t.Error("no case has a default of the cluster")
	}
	w.namespace(t, "without-default", nil)
	for given, of := range byDefault {
		w.giveDefault(t, given)
		for _, c := range of {
			t.Run(c.Name, func(t *testing.T) { w.testCase(t, c) })
		}
	}
}

func (w *twin) giveDefault(t *testing.T, given rulecases.Setting) {
	t.Helper()
	const example = `{"vicinity.dev/default-traffic-distribution": "PreferSameZone"}`
	expression := fmt.Sprintf("{%q: %q}", twinDefaultAnnotations[given.Setting], given.Value)
	w.mustDo(t, "value: cluster", example, expression)
	want := map[rules.Setting]string{given.Setting: given.Value}
	twinAwait(t, "Services are given "+expression, func() error {
		answer := w.create(t, twinService("without-default", "web"), "dryRun=All")
		twinMust(t, answer.err)
		if diff := cmp.Diff(want, twinSettings(t, answer.stored)); diff != "" {
			return fmt.Errorf("not this one (-want +got):\n%s", diff)
		}
		return nil
	})
}

func twinWrite(t *testing.T, file string, object map[string]any) {
	t.Helper()
	text, err := json.Marshal(object)
	twinMust(t, err)
	twinMust(t, os.WriteFile(file, text, 0o600))
}
