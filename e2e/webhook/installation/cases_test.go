package installation_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/vicinity-proxy/vicinity/e2e/webhook/release"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/rulecases"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// TestEveryCaseThroughAnAPIServer makes the request of each case. A case's old object is stored before the webhook is
// installed.
func TestEveryCaseThroughAnAPIServer(t *testing.T) {
	c := newCorpus(t)
	c.store()
	c.in = apply(t, manifests)
	c.in.publishDemand() // before the webhook reads it
	c.in.start(1)
	for _, group := range c.groups() {
		c.prepare(group)
		for _, placed := range group.cases {
			t.Run(placed.Name, func(t *testing.T) { c.run(t, placed) })
		}
	}
}

// corpus has the cases, and the cluster in which each has a namespace.
type corpus struct {
	*testbed
	t          *testing.T
	in         *installation
	cases      []locatedCase
	apiRelease release.Release

	configs int                 // the number of configurations so far
	marks   int                 // the number of times that Nodes were replaced
	mark    string              // a label of one of the current Nodes
	nodes   []map[string]string // the labels of the group's Nodes
}

// locatedCase is a case with its namespace, or with the name of the Namespace that is the object.
type locatedCase struct {
	rulecases.Case
	namespace string
}

// group has cases that need the same settings and Nodes.
type group struct {
	settings *rulecases.Settings
	nodes    []map[string]string // nil: no key of a case is missing
	cases    []locatedCase
}

func newCorpus(t *testing.T) *corpus {
	t.Helper()
	c := &corpus{testbed: shared, t: t, apiRelease: release.Of(t, shared.Site)}
	for i, one := range c.apiRelease.Cases(t) {
		if kind := one.Kind(); kind == "Service" || kind == "Namespace" { // only the policies review other kinds
			c.cases = append(c.cases, locatedCase{one, fmt.Sprintf("case-%03d", i)})
		}
	}
	return c
}

// object returns an object of a case in the case's namespace.
func (c locatedCase) object(t *testing.T, from map[string]any) map[string]any {
	t.Helper()
	text, err := json.Marshal(from)
	must.Succeed(t, err)
	var object map[string]any
	text = bytes.ReplaceAll(text, []byte(rulecases.OwnNamespace), []byte(c.namespace))
	must.Succeed(t, json.Unmarshal(text, &object))
	metadata, _ := object["metadata"].(map[string]any)
	if c.Kind() == "Namespace" {
		metadata["name"] = c.namespace
	} else {
		metadata["namespace"] = c.namespace
	}
	return object
}

// request returns the request that creates the object, or replaces one.
func (c *corpus) request(one locatedCase, isUpdate bool) *rest.Request {
	client := c.Admin.CoreV1().RESTClient()
	request := client.Post()
	if isUpdate {
		request = client.Put()
	}
	if one.Kind() == "Namespace" {
		request = request.Resource("namespaces")
	} else {
		request = request.Resource("services").Namespace(one.namespace)
	}
	if isUpdate {
		name := one.namespace
		if one.Kind() == "Service" {
			name = one.Object["metadata"].(map[string]any)["name"].(string)
		}
		request = request.Name(name)
	}
	return request
}

// store creates the Namespaces and the old objects while no webhook is installed.
func (c *corpus) store() {
	c.t.Helper()
	for _, one := range c.cases {
		if one.Kind() == "Service" {
			namespace := objects.Namespace(one.namespace, nil, nil)
			if one.Namespace != nil {
				namespace.Labels, namespace.Annotations = one.Namespace.Labels, one.Namespace.Annotations
			}
			c.Create(c.t, namespace)
		}
		if one.Old != nil && one.APIServer == "" {
			if got := send(c.t.Context(), c.t, c.request(one, false), one.object(c.t, one.Old)); got.err != nil {
				c.t.Fatalf("%s: store the old object: %v", one.Name, got.err)
			}
		}
	}
}

// groups sorts the cases so that few changes are necessary between them. Those that need another webhook configuration
// are last.
func (c *corpus) groups() []*group {
	byNeed := map[string]*group{}
	for _, one := range c.cases {
		settings, err := json.Marshal(one.Settings)
		must.Succeed(c.t, err)
		nodes, err := json.Marshal(one.Nodes)
		must.Succeed(c.t, err)
		need := fmt.Sprintf("%v %s %s", needsUpdates(one.Settings), nodes, settings)
		if byNeed[need] == nil {
			byNeed[need] = &group{settings: one.Settings, nodes: one.Nodes}
		}
		byNeed[need].cases = append(byNeed[need].cases, one)
	}
	var groups []*group
	for _, need := range slices.Sorted(maps.Keys(byNeed)) { // "false" sorts before "true"
		groups = append(groups, byNeed[need])
	}
	return groups
}

func needsUpdates(settings *rulecases.Settings) bool { return settings != nil && settings.OnUpdate }

// prepare applies the settings and the Nodes of a group. It removes the settings first, because only without them can
// the test observe which Nodes the webhook has.
func (c *corpus) prepare(g *group) {
	c.t.Helper()
	nodes := slices.Clone(g.nodes)
	if g.nodes == nil {
		nodes = []map[string]string{c.everyKey()}
	}
	if c.marks == 0 || !gocmp.Equal(nodes, c.nodes) {
		c.configure(nil)
		c.replaceNodes(nodes)
		c.nodes = nodes
	}
	c.configure(g.settings)
	if needsUpdates(g.settings) {
		c.in.Kubectl(c.t, "apply", "-k", defaultOnUpdate)
		c.in.waitForDefaultsOnUpdate()
	}
}

func (c *corpus) configure(settings *rulecases.Settings) {
	c.t.Helper()
	c.configs++
	c.in.configure(configOf(c.t, settings, c.configs))
}

// configOf returns the configuration file for the settings of a case. The number makes it differ from the last one.
func configOf(t *testing.T, settings *rulecases.Settings, number int) string {
	t.Helper()
	file := map[string]any{"apiVersion": "vicinity.dev/v1alpha1", "kind": "TopologyAdmissionConfiguration"}
	if settings != nil {
		defaults := map[string]any{"onUpdate": settings.OnUpdate, "withSessionAffinity": settings.WithAffinity}
		if setting := settings.Default; setting != nil {
			field := map[rules.Setting]string{
				rules.TopologyMode: "topologyMode", rules.TrafficDistribution: "trafficDistribution", rules.TopologyKeys: "topologyKeys",
			}[setting.Setting]
			defaults[field] = setting.Value
		}
		file["defaults"], file["strict"], file["proxyName"], file["rules"] = defaults, settings.Strict, settings.ProxyName, settings.Actions
		file["dnsByTopology"] = settings.DNSByTopology
	}
	text, err := yaml.Marshal(file)
	must.Succeed(t, err)
	return fmt.Sprintf("# %d\n%s", number, text)
}

// everyKey returns the labels of a Node that has every topology key of the cases without Nodes: the rules treat a key
// like a present one if its absence is unknown. The Node is in one zone.
func (c *corpus) everyKey() map[string]string {
	labels := map[string]string{}
	for _, one := range c.cases {
		for _, annotations := range []map[string]string{annotationsOf(one.Object), annotationsOf(one.Old)} {
			for key := range strings.SplitSeq(annotations[keysAnnotation], ",") {
				if key = strings.TrimSpace(key); one.Nodes == nil && len(content.IsLabelKey(key)) == 0 {
					labels[key] = "x"
				}
			}
		}
	}
	return labels
}

// replaceNodes replaces the Nodes by those of a group, and waits until the webhook has them, which a label on the first
// Node shows.
func (c *corpus) replaceNodes(labels []map[string]string) {
	c.t.Helper()
	nodes := c.Admin.CoreV1().Nodes()
	must.Succeed(c.t, nodes.DeleteCollection(c.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	before := cmp.Or(c.mark, "group.example.com/never")
	c.marks++
	c.mark = fmt.Sprintf("group.example.com/g%d", c.marks)
	for i := range labels {
		node := objects.Node(fmt.Sprintf("node-%d-%d", c.marks, i), maps.Clone(labels[i]))
		if i == 0 {
			node.Labels[c.mark] = "x"
		}
		c.Create(c.t, node)
	}
	wait.Success(c.t, "the webhook has the Nodes", func() error {
		// Without Nodes no key is reported as missing.
		if !c.reportsMissing(c.mark) && (len(labels) == 0 || c.reportsMissing(before)) {
			return nil
		}
		return errors.New("the webhook has other Nodes")
	})
}

// reportsMissing reports whether, according to the webhook, no Node has a label.
func (c *corpus) reportsMissing(key string) bool {
	c.t.Helper()
	request := c.Admin.CoreV1().RESTClient().Post().Namespace(probedNamespace).Resource("services").Param("dryRun", "All")
	got := send(c.t.Context(), c.t, request, map[string]any{
		"apiVersion": "v1", "kind": "Service",
		"metadata": map[string]any{"name": "keyed", "annotations": map[string]any{keysAnnotation: key + ", *"}},
		"spec":     map[string]any{"selector": map[string]any{"app": "web"}, "ports": []any{map[string]any{"port": 80}}},
	})
	must.Succeed(c.t, got.err)
	return slices.ContainsFunc(got.findings, func(want rulecases.Want) bool { return want.Rule == "SVC030" })
}

// run makes the request of a case and compares the response.
func (c *corpus) run(t *testing.T, one locatedCase) {
	if one.APIServer != "" {
		c.runAPIServer(t, one)
		return
	}
	got := send(t.Context(), t, c.request(one, one.Old != nil), one.object(t, one.Object))
	if diff := gocmp.Diff(one.Want, got.findings, cmpopts.EquateEmpty(), cmpopts.SortSlices(byRuleAndPath)); diff != "" {
		t.Errorf("findings (-want +got):\n%s\n%s", diff, got)
	}
	wantDenied := slices.ContainsFunc(one.Want, func(want rulecases.Want) bool { return want.Action == rules.Deny })
	switch {
	case wantDenied && denyingRules(got.err) == nil:
		t.Errorf("got error %v, want a denial by our rules", got.err)
	case !wantDenied && got.err != nil:
		t.Errorf("got error %v, want none", got.err)
	case !wantDenied && one.Kind() == "Service":
		c.checkStored(t, one, got.object)
	}
	if one.Default != nil {
		c.checkAudit(t, one)
	}
}

func byRuleAndPath(a, b rulecases.Want) bool {
	return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Path, b.Path)) < 0
}

// checkStored compares the stored topology settings with those in the request and the default.
func (c *corpus) checkStored(t *testing.T, one locatedCase, stored map[string]any) {
	t.Helper()
	want := c.apiRelease.Stored(settingsOf(one.Object))
	if one.Default != nil && one.Default.Setting != "" {
		want[one.Default.Setting] = one.Default.Value
	}
	if diff := gocmp.Diff(want, settingsOf(stored)); diff != "" {
		t.Errorf("stored settings (-want +got):\n%s", diff)
	}
	annotations, original := annotationsOf(stored), annotationsOf(one.object(t, one.Object))
	for key, value := range original {
		if annotations[key] != value {
			t.Errorf("annotation %s is %q, want %q as requested", key, annotations[key], value)
		}
	}
}

// settingsOf returns the topology settings of a Service.
func settingsOf(service map[string]any) map[rules.Setting]string {
	settings := map[rules.Setting]string{}
	annotations := annotationsOf(service)
	if mode, set := annotations[modeAnnotation]; set {
		settings[rules.TopologyMode] = mode
	}
	if keys, set := annotations[keysAnnotation]; set {
		settings[rules.TopologyKeys] = keys
	}
	spec, _ := service["spec"].(map[string]any)
	if distribution, set := spec["trafficDistribution"].(string); set {
		settings[rules.TrafficDistribution] = distribution
	}
	return settings
}

func annotationsOf(object map[string]any) map[string]string {
	metadata, _ := object["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	texts := map[string]string{}
	for key, value := range annotations {
		texts[key], _ = value.(string)
	}
	return texts
}

// checkAudit looks for the decision about the default in the API server's audit log. There is no decision if the match
// conditions and selectors exclude the object.
func (c *corpus) checkAudit(t *testing.T, one locatedCase) {
	t.Helper()
	verb := "create"
	if one.Old != nil {
		verb = "update"
	}
	annotation := defaultSource(c.auditOf(t, verb, one.namespace))
	if isSkipped(one) {
		if annotation != "" {
			t.Errorf("the API server called the webhook, want no call; audit annotation: %q", annotation)
		}
		return
	}
	want := "none"
	if one.Default.Setting != "" {
		want = fmt.Sprintf("%s=%s", one.Default.Setting, one.Default.Value)
	}
	want += "; source: " + string(one.Default.Source)
	if !strings.HasPrefix(annotation, want) || one.Nodes != nil && !strings.Contains(annotation, one.Default.Reason) {
		t.Errorf("audit annotation %q, want %q and %q", annotation, want, one.Default.Reason)
	}
}

// isSkipped reports whether the mutating configuration excludes a case.
func isSkipped(one locatedCase) bool {
	switch {
	case one.Default.Source == rules.FromService, one.Default.Source == rules.FromOptOut:
		return true
	case one.Old != nil && !needsUpdates(one.Settings):
		return true
	}
	return one.Default.Reason == "ExternalName" || one.Default.Reason == "headless"
}

// runAPIServer checks what is possible for a case for which a real API server does not call the webhook.
func (c *corpus) runAPIServer(t *testing.T, one locatedCase) {
	got := func() response { return send(t.Context(), t, c.request(one, false), one.object(t, one.Object)) }
	switch reason := one.APIServer; {
	case strings.HasPrefix(reason, "it rejects"):
		if got := got(); !apierrors.IsInvalid(got.err) || len(got.findings) > 0 {
			t.Errorf("got %s, want a rejection by the API server itself", got)
		}
	case strings.HasPrefix(reason, "it drops"):
		if got := got(); got.err != nil || len(got.findings) > 0 {
			t.Errorf("got %s, want admission without findings", got)
		}
	case strings.HasPrefix(reason, "the configuration of the webhook excludes kube-system"):
		one.namespace = "kube-system"
		got := got()
		must.Succeed(t, got.err)
		c.checkStored(t, one, got.object)
		must.Succeed(t, c.Admin.CoreV1().Services("kube-system").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	case strings.HasPrefix(reason, "deletionTimestamp cannot be set by clients"): // TestDeletingIsAlwaysAllowed
	case strings.HasPrefix(reason, "demand is published in that cluster"): // TestAnOwnerIsNotifiedThatNobodyPublishesDemand
	case strings.HasPrefix(reason, "the webhook does not read Services"),
		strings.HasPrefix(reason, "the webhook does not read EndpointSlices"): // only 'webhook check' does, from its files
		if got := got(); got.err != nil || len(got.findings) > 0 {
			t.Errorf("got %s, want admission without findings", got)
		}
	case strings.HasPrefix(reason, "it exists in every cluster"), strings.HasPrefix(reason, "every Namespace is cached"):
	default:
		t.Errorf("no test covers: %s", reason)
	}
}

// waitForDefaultsOnUpdate waits until defaults are applied on updates, too.
func (in *installation) waitForDefaultsOnUpdate() {
	in.t.Helper()
	services := in.Admin.CoreV1().Services(probedNamespace)
	const name = "updated"
	_, err := services.Create(in.t.Context(), serviceOf(name, map[string]string{modeAnnotation: "Auto"}), metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		must.Succeed(in.t, err)
	}
	drop := fmt.Appendf(nil, `{"metadata": {"annotations": {%q: null}}}`, modeAnnotation)
	wait.Success(in.t, "updates get defaults", func() error {
		got, err := services.Patch(in.t.Context(), name, types.MergePatchType, drop, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && got.Annotations[modeAnnotation] != "Disabled" {
			err = errors.New("no default was set")
		}
		return err
	})
}
