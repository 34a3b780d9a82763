package rules

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

func TestDefaultPatch(t *testing.T) {
	for name, c := range map[string]struct {
		add    Default
		object string
		patch  string
		want   string
	}{
		"an annotation next to others": {
			add: auto, object: `{"metadata":{"annotations":{"a":"b"}},"unknown":1}`,
			patch: `[{"op":"add","path":"/metadata/annotations/service.kubernetes.io~1topology-mode","value":"Auto"}]`,
			want:  `{"metadata":{"annotations":{"a":"b","service.kubernetes.io/topology-mode":"Auto"}},"unknown":1}`,
		},
		"an annotation in an empty map": {
			add: zoneOrAny, object: `{"metadata":{"annotations":{}}}`,
			patch: `[{"op":"add","path":"/metadata/annotations/vicinity.dev~1topology-keys","value":"topology.kubernetes.io/zone, *"}]`,
			want:  `{"metadata":{"annotations":{"vicinity.dev/topology-keys":"topology.kubernetes.io/zone, *"}}}`,
		},
		"the first annotation": {
			add: zoneOrAny, object: `{"metadata":{"name":"web"}}`,
			patch: `[{"op":"add","path":"/metadata/annotations","value":{"vicinity.dev/topology-keys":"topology.kubernetes.io/zone, *"}}]`,
			want:  `{"metadata":{"name":"web","annotations":{"vicinity.dev/topology-keys":"topology.kubernetes.io/zone, *"}}}`,
		},
		"annotations that are null": {
			add: disabled, object: `{"metadata":{"annotations":null}}`,
			patch: `[{"op":"add","path":"/metadata/annotations","value":{"service.kubernetes.io/topology-mode":"Disabled"}}]`,
			want:  `{"metadata":{"annotations":{"service.kubernetes.io/topology-mode":"Disabled"}}}`,
		},
		"the field": {
			add: sameZone, object: `{"spec":{"ports":[{"port":80}]}}`,
			patch: `[{"op":"add","path":"/spec/trafficDistribution","value":"PreferSameZone"}]`,
			want:  `{"spec":{"ports":[{"port":80}],"trafficDistribution":"PreferSameZone"}}`,
		},
		"the field that is null": {
			add: sameNode, object: `{"spec":{"trafficDistribution":null}}`,
			patch: `[{"op":"add","path":"/spec/trafficDistribution","value":"PreferSameNode"}]`,
			want:  `{"spec":{"trafficDistribution":"PreferSameNode"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var service Service
			if err := json.Unmarshal([]byte(c.object), &service); err != nil {
				t.Fatal(err)
			}
			patch, err := json.Marshal(c.add.Patch(&service))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.patch, string(patch)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			got := applyPatch(t, []byte(c.object), c.add.Patch(&service))
			if !jsonpatch.Equal([]byte(c.want), got) {
				t.Errorf("patched %s, want %s", got, c.want)
			}
		})
	}
}

func TestUnknownDefaultHasNoPatch(t *testing.T) {
	if got := (Default{Setting: "topology", Value: "Auto"}).Patch(plainService()); got != nil {
		t.Errorf("Patch() = %v, want none", got)
	}
}

// applyPatch applies a patch in the same way as the API server.
func applyPatch(t *testing.T, object []byte, operations []PatchOperation) []byte {
	t.Helper()
	text, err := json.Marshal(operations)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		t.Fatalf("%s is not a patch: %v", text, err)
	}
	result, err := patch.Apply(object)
	if err != nil {
		t.Fatalf("apply %s to %s: %v", text, object, err)
	}
	return result
}

// randomInput is a random request with all inputs of the decision about it.
type randomInput struct {
	object    map[string]any
	namespace NamespaceDefaults
	facts     Facts
	settings  *Settings
	isUpdate  bool
}

// pickOne returns one of several values.
func pickOne[T any](random *rand.Rand, values ...T) T { return values[random.IntN(len(values))] }

// maybeSet sets a field in one of four cases.
func maybeSet(random *rand.Rand, fields map[string]any, key string, values ...any) {
	if random.IntN(4) == 0 {
		fields[key] = pickOne(random, values...)
	}
}

func randomRequest(random *rand.Rand) randomInput {
	return randomInput{
		object:    randomObject(random),
		namespace: randomNamespace(random),
		facts:     pickOne(random, Facts{}, inZones("a"), inZones("a", "b"), inZones("a", "b", "c")),
		settings:  randomSettings(random),
		isUpdate:  random.IntN(4) == 0,
	}
}

func randomObject(random *rand.Rand) map[string]any {
	metadata := map[string]any{"name": pickOne(random, "web", "kubernetes"), "namespace": pickOne(random, "shop", "default", "kube-system")}
	maybeSet(random, metadata, "deletionTimestamp", "2026-01-01T00:00:00Z")
	maybeSet(random, metadata, "managedFields", []any{map[string]any{"manager": "kubectl"}})
	labels := map[string]any{}
	maybeSet(random, labels, policy.AdmissionLabel, "disabled", "Disabled", "")
	maybeSet(random, labels, policy.ServiceProxyNameLabel, "", "vicinity", "other")
	metadata["labels"] = labels
	annotations := map[string]any{}
	for range random.IntN(2) {
		maybeSet(random, annotations, policy.TopologyModeAnnotation, "Auto", "AUTO", "")
		maybeSet(random, annotations, policy.TopologyAwareHintsAnnotation, "Auto", "auto", "")
		maybeSet(random, annotations, policy.TopologyKeysAnnotation, "*", "", "a,*")
	}
	maybeSet(random, annotations, policy.MaxLoadAnnotation, "120%", "1.2")
	maybeSet(random, annotations, "example.com/other~thing", "x")
	if len(annotations) > 0 || random.IntN(2) == 0 {
		metadata["annotations"] = annotations
	} else {
		maybeSet(random, metadata, "annotations", nil)
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": randomSpec(random), "status": map[string]any{},
	}
}

func randomSpec(random *rand.Rand) map[string]any {
	spec := map[string]any{
		"type":  pickOne(random, "ClusterIP", "ClusterIP", "NodePort", "LoadBalancer", "ExternalName"),
		"ports": []any{map[string]any{"port": 80, "fieldOfTheFuture": true}}, "selector": map[string]any{"app": "web"},
	}
	maybeSet(random, spec, "clusterIP", "None", "10.0.0.1", "")
	maybeSet(random, spec, "selector", nil, map[string]any{})
	maybeSet(random, spec, "internalTrafficPolicy", "Local", "Cluster")
	maybeSet(random, spec, "externalTrafficPolicy", "Local", "Cluster")
	maybeSet(random, spec, "sessionAffinity", "ClientIP", "None")
	maybeSet(random, spec, "trafficDistribution", nil, "PreferSameZone", "")
	return spec
}

// randomValues are valid and invalid values of any default.
var randomValues = []string{
	"Auto", "Disabled", "None", "PreferSameZone", "PreferSameNode", "topology.kubernetes.io/zone, *", "*", "rack", "*,*", "",
}

func randomNamespace(random *rand.Rand) NamespaceDefaults {
	namespace := NamespaceDefaults{IsLoaded: random.IntN(8) != 0}
	if !namespace.IsLoaded {
		return namespace
	}
	namespace.Annotations = map[string]string{}
	for _, annotation := range namespaceAnnotations {
		if random.IntN(3) == 0 {
			namespace.Annotations[annotation.key] = pickOne(random, randomValues...)
		}
	}
	if random.IntN(8) == 0 {
		namespace.Labels = map[string]string{policy.AdmissionLabel: "disabled"}
	}
	return namespace
}

func randomSettings(random *rand.Rand) *Settings {
	settings := &Settings{
		Strict: random.IntN(2) == 0, DefaultOnUpdate: random.IntN(2) == 0, DefaultWithAffinity: random.IntN(2) == 0,
		ProxyName: pickOne(random, "", "", "vicinity"), ExcludedNamespaces: pickOne(random, nil, []string{"kube-system"}),
	}
	if random.IntN(2) == 0 {
		settings.Default = &Default{pickOne(random, TopologyMode, TrafficDistribution, TopologyKeys), pickOne(random, randomValues...)}
	}
	return settings
}

// allowedPaths are all paths that a patch may add.
var allowedPaths = []string{
	"metadata.annotations[" + policy.TopologyModeAnnotation + "]", "metadata.annotations[" + policy.TopologyKeysAnnotation + "]",
	"spec.trafficDistribution",
}

func TestDefaultingInvariants(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	outcomes := map[string]int{}
	for round := range 10_000 {
		w := randomRequest(random)
		before, err := json.Marshal(w.object)
		if err != nil {
			t.Fatal(err)
		}
		service := decodeService(t, before)
		decision := DecideDefault(service, w.namespace, w.facts, w.settings, w.isUpdate)
		if (decision.Add != nil) == (decision.Reason != "") && decision.Source != FromNone {
			t.Fatalf("round %d: added %v, reason %q", round, decision.Add, decision.Reason)
		}
		if decision.Add == nil {
			outcomes["nothing, "+string(decision.Source)]++
			continue
		}
		outcomes[string(decision.Add.Setting)+", "+string(decision.Source)]++
		after := applyPatch(t, before, decision.Add.Patch(service))
		if faults := w.violatedInvariants(t, before, after, decision); len(faults) > 0 {
			t.Fatalf("round %d: %s\nbefore %s\nafter  %s", round, strings.Join(faults, "; "), before, after)
		}
	}
	const numOutcomes = 5 + 2*3 // no default from each source; each setting from a Namespace and the cluster
	if len(outcomes) != numOutcomes {
		t.Errorf("the random requests do not cover all outcomes: %v", outcomes)
	}
}

// violatedInvariants returns the invariants that a patched Service violates.
func (w randomInput) violatedInvariants(t *testing.T, before, after []byte, decision DefaultDecision) (faults []string) {
	t.Helper()
	oldService, newService := decodeService(t, before), decodeService(t, after)
	if again := DecideDefault(newService, w.namespace, w.facts, w.settings, w.isUpdate); again.Add != nil {
		faults = append(faults, fmt.Sprintf("a second decision adds %v", *again.Add))
	}
	if explicit := explicitSetting(oldService); explicit != "" {
		faults = append(faults, "a default is added to an explicit setting: "+explicit)
	}
	if added := differences(t, before, after); len(added) != 1 || !strings.Contains(strings.Join(allowedPaths, " "), added[0]) {
		faults = append(faults, fmt.Sprintf("the patch changes %v", added))
	}
	mode, hasMode := newService.Metadata.Annotations[policy.TopologyModeAnnotation]
	if hints, hasHints := newService.Metadata.Annotations[policy.TopologyAwareHintsAnnotation]; hasMode && hasHints && mode != hints {
		faults = append(faults, "the API server rejects the Service: two modes")
	}
	denied := ReviewService(nil, oldService, w.facts, w.settings).Denied
	for _, violation := range ReviewService(nil, newService, w.facts, w.settings).Denied {
		if !contains(denied, violation) {
			faults = append(faults, fmt.Sprintf("%v is denied because of the default %v", violation.Error, *decision.Add))
		}
	}
	return faults
}

func contains(all []Violation, one Violation) bool {
	for _, violation := range all {
		if violation.Rule == one.Rule && violation.Error.Field == one.Error.Field {
			return true
		}
	}
	return false
}

func decodeService(t *testing.T, object []byte) *Service {
	t.Helper()
	var service Service
	if err := json.Unmarshal(object, &service); err != nil {
		t.Fatal(err)
	}
	return &service
}

// differences returns the paths at which two objects differ. Null counts as absent.
func differences(t *testing.T, before, after []byte) []string {
	t.Helper()
	var oldFields, newFields map[string]any
	if err := json.Unmarshal(before, &oldFields); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(after, &newFields); err != nil {
		t.Fatal(err)
	}
	var all []string
	for path, value := range leaves("", newFields) {
		if old, had := leaves("", oldFields)[path]; !had || old != value {
			all = append(all, path)
		}
	}
	for path := range leaves("", oldFields) {
		if _, has := leaves("", newFields)[path]; !has {
			all = append(all, path+" was removed")
		}
	}
	return all
}

// leaves returns the values of an object by their paths.
func leaves(path string, value any) map[string]string {
	found := map[string]string{}
	add := func(path string, value any) {
		maps.Copy(found, leaves(path, value))
	}
	switch value := value.(type) {
	case nil:
	case map[string]any:
		for key, item := range value {
			if strings.ContainsAny(key, "./") {
				add(path+"["+key+"]", item)
			} else {
				add(strings.TrimPrefix(path+"."+key, "."), item)
			}
		}
	case []any:
		for i, item := range value {
			add(fmt.Sprintf("%s[%d]", path, i), item)
		}
	default:
		found[path] = fmt.Sprint(value)
	}
	return found
}

func TestNodeSnapshotIsImmutable(t *testing.T) {
	nodes := inZones("a", "b").Nodes
	before := nodes.Snapshot()
	nodes.Put("node-c", map[string]string{string(policy.Zone): "c", "rack": "r1"})
	if before.Zones() != 2 || before.HasKey("rack") {
		t.Errorf("the snapshot has %d zones, racks %v", before.Zones(), before.HasKey("rack"))
	}
	after := nodes.Snapshot()
	nodes.Delete("node-c")
	if after.Zones() != 3 || !after.HasKey("rack") || nodes.Zones() != 2 {
		t.Errorf("the snapshot has %d zones, the nodes %d", after.Zones(), nodes.Zones())
	}
}
