package apiserver

import (
	"encoding/json"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/manifests"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/nodes"
)

// values are the tested values of a setting: a valid one, and invalid ones. If no value can be invalid, isNeverWrong is
// set, and bad has other values.
type values struct {
	good         string
	bad          []string
	isNeverWrong bool
}

var valuesOf = map[string]values{
	policy.ServiceProxyNameLabel: {bad: []string{"kube-proxy", ""}, isNeverWrong: true},

	policy.TopologyKeysAnnotation:       {good: "topology.kubernetes.io/zone, *", bad: []string{"*, *", "", " "}},
	policy.MaxLoadAnnotation:            {good: "120%", bad: []string{"1.2", "", "0%"}},
	policy.ClientsAnnotation:            {good: "shop/web", bad: []string{"web", "", "shop/web, measured"}},
	policy.DemandSourceAnnotation:       {good: policy.Measured, bad: []string{"Measured", "", "clients"}},
	policy.TopologyModeAnnotation:       {good: policy.ModeBalanced, bad: []string{"vicinity.dev/balance", "vicinity.dev/Balanced"}},
	policy.TopologyAwareHintsAnnotation: {good: policy.ModeBalanced, bad: []string{"vicinity.dev/x"}},

	discoveryv1.LabelServiceName:          {good: "web", bad: []string{"Web", "a.b"}},
	corev1.IsHeadlessService:              {bad: []string{"maybe", "false", ""}, isNeverWrong: true},
	corev1.EndpointsLastChangeTriggerTime: {good: "2026-11-22T18:00:00Z", bad: []string{"yesterday", ""}},

	policy.EvacuateLabel: {good: "true", bad: []string{"soon", "", "1", "20261322T1800Z"}},
	policy.DemandLabel:   {good: "5", bad: []string{"many", "", "101", "-1"}},
}

// deliveredState is the state that a source has delivered.
type deliveredState struct {
	Change   model.Change
	problems []model.Finding
}

func (s *deliveredState) apply(update convert.Update) {
	s.Change = s.Change.Merge(update.Change)
	s.problems = convert.SortProblems(slices.DeleteFunc(append(s.problems, update.NewProblems...), func(p model.Finding) bool {
		return slices.Contains(update.ResolvedProblems, p)
	}))
	maps.DeleteFunc(s.Change.Services, func(_ model.ObjectName, value *model.Service) bool { return value == nil })
	maps.DeleteFunc(s.Change.Slices, func(_ model.ObjectName, value *model.EndpointSlice) bool { return value == nil })
	maps.DeleteFunc(s.Change.Nodes, func(_ string, value *model.Node) bool { return value == nil })
	maps.DeleteFunc(s.Change.Demotions, func(_ model.DemotionKey, value *model.Demotion) bool { return value == nil })
}

// processVersions processes versions of one object in sequence.
type processVersions func(t *testing.T, view convert.View, kind *convert.Kind, versions ...convert.Object) deliveredState

// viaAPIServer processes versions as the streams of a Watcher do.
func viaAPIServer(t *testing.T, view convert.View, kind *convert.Kind, versions ...convert.Object) (result deliveredState) {
	t.Helper()
	w := newWatcher(listWatches{}, Options{View: view, Log: slog.New(slog.DiscardHandler)})
	w.state.nodes.AllLabels = true
	w.state.nodes.StartListTimeout(w.state.now)
	w.state.wait(nodes.LabelTimeout) // for other nodes, which this test does not list
	streams := map[*convert.Kind]*resourceStream{}
	for _, stream := range w.streams {
		streams[stream.kind] = stream
	}
	for _, version := range versions {
		_ = streams[kind].Update(version)
		if kind == convert.Nodes {
			evacuated := &metav1.PartialObjectMetadata{ObjectMeta: *version.(*corev1.Node).ObjectMeta.DeepCopy()}
			if _, labelled := evacuated.Labels[policy.EvacuateLabel]; labelled {
				_ = streams[convert.NodesByDemotionReason[model.Evacuated]].Update(evacuated)
			} else {
				_ = streams[convert.NodesByDemotionReason[model.Evacuated]].Delete(evacuated)
			}
		}
		w.state.wait(time.Hour) // the handoff to another proxy ends
		update, _ := w.next(true)
		result.apply(update)
	}
	return result
}

// viaFolder reads versions from a file.
func viaFolder(t *testing.T, view convert.View, kind *convert.Kind, versions ...convert.Object) (result deliveredState) {
	t.Helper()
	dir, folder := t.TempDir(), manifests.Folder{View: view}
	write := func(file string, kind *convert.Kind, object convert.Object) {
		object.GetObjectKind().SetGroupVersionKind(kind.Group.WithKind(kind.Name))
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if kind == convert.EndpointSlices {
		write("service.json", convert.Services, webService())
	}
	for _, version := range versions {
		write("object.json", kind, version)
		update, err := folder.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		result.apply(update)
	}
	return result
}

// objectsOf returns objects of a kind for which its settings have a meaning.
func objectsOf(kind *convert.Kind) map[string]func() convert.Object {
	service := func(clusterIP string) func() convert.Object {
		return func() convert.Object {
			service := webService()
			service.Spec.ClusterIP, service.Spec.ClusterIPs = clusterIP, []string{clusterIP}
			service.Spec.TrafficDistribution = new(policy.PreferClose)
			service.Annotations = map[string]string{policy.MaxLoadAnnotation: "150%"}
			return service
		}
	}
	node := func(name string) func() convert.Object {
		return func() convert.Object { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	}
	switch kind {
	case convert.Services:
		return map[string]func() convert.Object{"a Service": service("10.96.0.1"), "a headless Service": service(corev1.ClusterIPNone)}
	case convert.EndpointSlices:
		return map[string]func() convert.Object{"a slice": func() convert.Object {
			return &discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "default", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
				},
				AddressType: discoveryv1.AddressTypeIPv4,
				Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(80))}},
				Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.1"}}},
			}
		}}
	case convert.Nodes:
		return map[string]func() convert.Object{"this node": node("self"), "another node": node("other")}
	}
	return nil
}

// withSetting returns an object with a value of a setting.
func withSetting(object convert.Object, setting convert.Setting, value string) convert.Object {
	get, set := object.GetLabels, object.SetLabels
	if setting.IsAnnotation {
		get, set = object.GetAnnotations, object.SetAnnotations
	}
	entries := maps.Clone(get())
	if entries == nil {
		entries = map[string]string{}
	}
	entries[setting.Key] = value
	set(entries)
	return object
}

func withoutSetting(object convert.Object, setting convert.Setting) convert.Object {
	labels, annotations := maps.Clone(object.GetLabels()), maps.Clone(object.GetAnnotations())
	delete(labels, setting.Key)
	delete(annotations, setting.Key)
	object.SetLabels(labels)
	object.SetAnnotations(annotations)
	return object
}

// equateDecisions compares the fields that affect decisions. TriggeredAt only affects a metric.
var equateDecisions = cmp.Options{
	cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.IgnoreFields(model.EndpointSlice{}, "TriggeredAt"),
}

// TestInvalidValueHasTheSameEffectAfterARestart covers every label and annotation that is read, of every kind: a
// proxy that runs while the value becomes invalid must decide like one that starts afterwards.
func TestInvalidValueHasTheSameEffectAfterARestart(t *testing.T) {
	view := convert.View{Node: "self", WithHeadless: true}
	sources := map[string]processVersions{"API server": viaAPIServer, "folder": viaFolder}
	tried := map[string]bool{}
	for _, kind := range convert.Kinds {
		settings := slices.Clone(kind.Settings)
		if kind == convert.Nodes { // any other label may be a topology key
			settings = append(settings, convert.Setting{Key: string(policy.Zone)}, convert.Setting{Key: "example.com/rack"})
		}
		for name, source := range sources {
			for title, object := range objectsOf(kind) {
				for _, setting := range settings {
					tried[setting.Key] = true
					t.Run(name+"/"+title+"/"+setting.Key, func(t *testing.T) {
						expectSetting(t, view, kind, setting, source, object)
					})
				}
			}
		}
		if len(kind.Settings) > 0 && objectsOf(kind) == nil {
			t.Errorf("no object of kind %s to test settings on", kind.Name)
		}
	}
	for key := range valuesOf {
		if !tried[key] {
			t.Errorf("setting %s is not read", key)
		}
	}
}

func expectSetting(
	t *testing.T, view convert.View, kind *convert.Kind, setting convert.Setting, source processVersions, object func() convert.Object,
) {
	t.Helper()
	tested, known := valuesOf[setting.Key]
	if !known {
		if slices.ContainsFunc(kind.Settings, func(s convert.Setting) bool { return s.Key == setting.Key }) {
			t.Fatal("no test values for this setting")
		}
		tested = values{good: "one", bad: []string{"two words", strings.Repeat("x", 64)}}
	}
	for _, bad := range tested.bad {
		fresh := source(t, view, kind, withSetting(object(), setting, bad))
		running := source(t, view, kind, withSetting(object(), setting, tested.good), withSetting(object(), setting, bad))
		if diff := cmp.Diff(fresh, running, equateDecisions, cmp.AllowUnexported(deliveredState{})); diff != "" {
			t.Errorf("%q: a running proxy differs from a starting one (-starting +running):\n%s", bad, diff)
		}
		if tested.isNeverWrong {
			continue
		}
		if len(fresh.problems) == 0 && !isMeaningless(setting.Key, object()) {
			t.Errorf("%q: the invalid value is not reported", bad)
		}
		if !slices.ContainsFunc(fresh.problems, func(p model.Finding) bool { return p.Code.IsInvalidInput() }) {
			continue // the value already accounts for invalid annotations of a served Service
		}
		absent := source(t, view, kind, withoutSetting(object(), setting))
		wantAbsent(t, bad, setting.Key, fresh, absent)
	}
}

// isMeaningless reports whether an annotation has no meaning on an object: on a headless Service all except topology
// keys.
func isMeaningless(annotation string, object convert.Object) bool {
	service, isService := object.(*corev1.Service)
	return isService && service.Spec.ClusterIP == corev1.ClusterIPNone && annotation != policy.TopologyKeysAnnotation
}

// wantAbsent asserts that an object with an invalid value is used as if it had none.
func wantAbsent(t *testing.T, bad, key string, got, absent deliveredState) {
	t.Helper()
	for _, problem := range got.problems {
		if problem.IsRejection() {
			t.Errorf("%q: the object is rejected: %s", bad, problem)
		}
	}
	for _, node := range got.Change.Nodes {
		delete(node.Labels, key) // code that reads the label handles invalid values
	}
	if diff := cmp.Diff(absent.Change, got.Change, equateDecisions); diff != "" {
		t.Errorf("%q does not count as absent (-want +got):\n%s", bad, diff)
	}
}
