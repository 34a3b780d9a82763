// Package categorize compares the endpoints that Vicinity chooses with those that kube-proxy's own code chooses, for
// random Services that use none of Vicinity's own settings. The program that runs kube-proxy's code is in
// e2e/lab/build/categorize.
package categorize

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// categorized is kube-proxy's result for a port of a Service.
type categorized struct {
	Cluster, Local, All          []string
	HasAny                       bool
	InternalLocal, ExternalLocal bool
	ExternallyAccessible         bool
}

// outcome describes what happens to connections to a port: to the ClusterIP; to other frontends, from outside the
// cluster and from inside. Each value lists the endpoints, or has the action if there are none. Reachable lists all
// endpoints that may serve at all.
type outcome struct{ Internal, External, ShortCircuit, Reachable string }

// kubeProxy returns kube-proxy's outcomes for each case, by the port's name.
func kubeProxy(t *testing.T, cases []testCase) []map[string]outcome {
	t.Helper()
	programs, err := binaries.Build(t.Context(), os.Stderr, binaries.Categorize)
	must.Succeed(t, err)
	var input, output, stderr bytes.Buffer
	encoder := json.NewEncoder(&input)
	for _, testCase := range cases {
		must.Succeed(t, encoder.Encode(testCase))
	}
	cmd := exec.CommandContext(t.Context(), programs.Path(binaries.Categorize, "categorize"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &input, &output, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("categorize: %v\n%s", err, stderr.Bytes()[max(0, stderr.Len()-2000):])
	}
	decoder := json.NewDecoder(&output)
	outcomes := make([]map[string]outcome, len(cases))
	for i := range cases {
		var ports map[string]categorized
		must.Succeed(t, decoder.Decode(&ports))
		outcomes[i] = map[string]outcome{}
		for name, port := range ports {
			outcomes[i][name] = port.outcome()
		}
	}
	return outcomes
}

// outcome interprets kube-proxy's result as its modes do: syncProxyRules in pkg/proxy/nftables/proxier.go of
// Kubernetes.
func (c categorized) outcome() outcome {
	serve := func(local bool) string {
		endpoints := c.Cluster
		if local {
			endpoints = c.Local
		}
		switch {
		case len(endpoints) > 0:
			return strings.Join(endpoints, " ")
		case c.HasAny:
			return "drop"
		}
		return "reject"
	}
	result := outcome{Internal: serve(c.InternalLocal), Reachable: strings.Join(c.All, " ")}
	if c.ExternallyAccessible {
		result.External, result.ShortCircuit = serve(c.ExternalLocal), serve(false)
	}
	return result
}

// vicinity returns Vicinity's outcomes in the same form. Objects take the same path as in the proxy: they are
// converted, applied and decided. It counts the reasons.
func vicinity(testCase testCase, reasons map[selection.Code]int) map[string]outcome {
	var change model.Change
	apply(&change, convert.Services, testCase.Service)
	for _, slice := range testCase.Slices {
		apply(&change, convert.EndpointSlices, slice)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: testCase.Node, Labels: testCase.Labels}}
	apply(&change, convert.Nodes, node)
	cluster := model.NewCluster(testCase.Node)
	cluster.Apply(change)

	outcomes := map[string]outcome{}
	family := model.IPv4
	if testCase.Family == corev1.IPv6Protocol {
		family = model.IPv6
	}
	name := model.ObjectName{Namespace: testCase.Service.Namespace, Name: testCase.Service.Name}
	for _, decision := range selection.NewPlanner(cluster).Decide(name, []model.Family{family}) {
		chosen := decision.Selection
		result := outcome{Internal: served(chosen.ClusterIP())}
		if decision.Service.IsExternal(decision.Port, family) {
			result.External, result.ShortCircuit = served(chosen.External()), served(chosen.ShortCircuit())
		}
		reachable := texts(chosen.Cluster)
		reasons[chosen.Cluster.Reason.Code]++
		if chosen.Local != nil {
			reachable = append(reachable, texts(*chosen.Local)...)
			reasons[chosen.Local.Reason.Code]++
		}
		slices.Sort(reachable)
		result.Reachable = strings.Join(slices.Compact(reachable), " ")
		outcomes[decision.Port.Name] = result
	}
	return outcomes
}

// apply adds an object to a change. An invalid object is missing, which shows in the outcome.
func apply(change *model.Change, kind *convert.Kind, object convert.Object) {
	value, _ := kind.Convert(object, convert.View{})
	kind.Apply(change, model.ObjectName{Namespace: object.GetNamespace(), Name: object.GetName()}, value)
}

func served(choice selection.Choice, outcome selection.Outcome) string {
	switch outcome {
	case selection.Balance:
		return strings.Join(texts(choice), " ")
	case selection.Drop:
		return "drop"
	default:
		return "reject"
	}
}

func texts(choice selection.Choice) []string {
	all := make([]string, len(choice.Endpoints))
	for i, endpoint := range choice.Endpoints {
		all[i] = endpoint.Addr.String()
	}
	slices.Sort(all)
	return all
}

// difference is a port with two different outcomes.
type difference struct {
	testCase            testCase
	port                string
	vicinity, kubeProxy outcome
}

// String returns the objects as manifests, and both outcomes.
func (d difference) String() string {
	manifest, err := yaml.Marshal(d.testCase)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("port %q:\n vicinity:   %+v\n kube-proxy: %+v\n%s", d.port, d.vicinity, d.kubeProxy, manifest)
}

// compare returns the differences, and the number of compared ports. Vicinity gets the cases as modify returns them.
func compare(
	t *testing.T, cases []testCase, modify func(testCase) testCase, reasons map[selection.Code]int,
) (differences []difference, compared int) {
	t.Helper()
	for i, expected := range kubeProxy(t, cases) {
		actual := vicinity(modify(cases[i]), reasons)
		if len(actual) != len(expected) {
			t.Fatalf("Vicinity serves %d ports, and kube-proxy %d:\n%s", len(actual), len(expected), difference{testCase: cases[i]})
		}
		for name, want := range expected {
			compared++
			if got, ok := actual[name]; !ok || got != want {
				differences = append(differences, difference{cases[i], name, got, want})
			}
		}
	}
	return differences, compared
}

func TestEndpointsAreThoseOfKubeProxy(t *testing.T) {
	const count = 15_000
	reasons := map[selection.Code]int{}
	differences, compared := compare(t, randomCases(count), func(testCase testCase) testCase { return testCase }, reasons)
	t.Logf("%d ports of %d Services compared, for %v", compared, count, reasons)
	for _, difference := range differences[:min(3, len(differences))] {
		t.Error(difference)
	}
	if len(differences) > 0 {
		t.Errorf("%d of %d ports differ", len(differences), compared)
	}
	if compared < count {
		t.Errorf("%d ports were compared, want at least one of each Service", compared)
	}
	for _, code := range everyReason {
		if reasons[code] < count/200 {
			t.Errorf("%s was the reason %d times, want at least %d", code, reasons[code], count/200)
		}
	}
}

// everyReason are the reasons for choosing endpoints without topology keys and evacuations.
var everyReason = []selection.Code{
	selection.HintedForThisNode, selection.HintedForThisZone, selection.HintedForThisZoneNotNode,
	selection.HintedForThisZoneNodeHintsIncomplete, selection.AllEndpoints, selection.HintsIncomplete,
	selection.NoHintForThisNode, selection.NoHintForThisZone, selection.NodeHasNoZone, selection.OnlyTerminating,
	selection.OnThisNode, selection.OnThisNodeTerminating, selection.NoneOnThisNode,
	selection.NoEndpoints, selection.NoUsableEndpoints, selection.ClusterChoiceUnused,
}

// TestComparisonDetectsDifferences hides each decisive property in turn from Vicinity, and expects differences.
func TestComparisonDetectsDifferences(t *testing.T) {
	const count = 1_000
	cases := randomCases(count)
	for name, hide := range hidden {
		t.Run(name, func(t *testing.T) {
			differences, compared := compare(t, cases, hide, map[selection.Code]int{})
			t.Logf("%d of %d ports differ", len(differences), compared)
			if len(differences) < count/100 {
				t.Errorf("%d of %d ports differ, want at least %d", len(differences), compared, count/100)
			}
		})
	}
}
