package policy_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/golden"
)

// TestTheREADMEHasTheAnnotations compares README.md with the annotations and Node labels. -update writes them.
func TestTheREADMEHasTheAnnotations(t *testing.T) {
	var table strings.Builder
	table.WriteString("| on | | since | meaning |\n|---|---|---|---|\n")
	addRow := func(kind, name, since, meaning string) {
		if meaning == "" || since == "" {
			t.Errorf("%s: meaning %q, since %q", name, meaning, since)
		}
		fmt.Fprintf(&table, "| %s | `%s` | %s | %s |\n", kind, name, since, meaning)
	}
	for _, annotation := range policy.Annotations {
		addRow("Service", annotation.Name, annotation.Since, annotation.Description)
	}
	for _, setting := range policy.NamespaceDefaults {
		addRow("Namespace", setting.Name, "v0.1.0", "the default of `"+setting.Of+"` for its Services, which the webhook writes; or `None`")
	}
	for _, label := range policy.NodeLabels {
		addRow("Node, as a label", label.Name, label.Since, label.Description)
	}
	golden.Tables(t, "../../README.md", map[string]string{"annotations": table.String()})
}

// TestTheAPIServerCallsTheWebhookAboutEachAnnotation compares the match conditions in the webhook's manifest, which are
// written by hand, with the annotations.
func TestTheAPIServerCallsTheWebhookAboutEachAnnotation(t *testing.T) {
	text, err := os.ReadFile("../../manifests/webhook/base/webhooks.yaml")
	if err != nil {
		t.Fatal(err)
	}
	condition := func(name string) string {
		_, rest, found := strings.Cut(string(text), "- name: "+name+"\n")
		if !found {
			t.Fatalf("the manifest has no condition %s", name)
		}
		end := regexp.MustCompile(`(?m)^(  - |- |---|  #)`).FindStringIndex(rest)
		return rest[:end[0]]
	}

	var listed []string
	for _, found := range regexp.MustCompile(`'([^']+)' in object\.metadata\.annotations`).FindAllStringSubmatch(
		condition("says-nothing-itself"), -1) {
		listed = append(listed, found[1])
	}
	preferences := policy.NamesOf(func(a policy.Annotation) bool { return a.IsPreference })
	slices.Sort(listed)
	slices.Sort(preferences)
	if diff := cmp.Diff(preferences, listed); diff != "" {
		t.Errorf("annotations that prevent a default (-policy +manifest):\n%s", diff)
	}

	expression := condition("says-something-about-topology")
	quoted := func(function string) (words []string) {
		for _, found := range regexp.MustCompile(`key(?:\.lowerAscii\(\))?\.`+function+`\('([^']+)'\)`).FindAllStringSubmatch(expression, -1) {
			words = append(words, found[1])
		}
		return words
	}
	prefixes, words := quoted("startsWith"), quoted("contains")
	for _, annotation := range policy.Annotations {
		if !slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(annotation.Name, prefix) }) {
			t.Errorf("%s has none of the prefixes %q", annotation.Name, prefixes)
		}
		isMatched := slices.ContainsFunc(words, func(word string) bool { return strings.Contains(annotation.Name, word) })
		if isMatched == annotation.IsGenericName {
			t.Errorf("%s: the API server calls the webhook for this name in other domains: %v, but IsGenericName is %v",
				annotation.Name, isMatched, annotation.IsGenericName)
		}
	}
}

// TestThePoliciesCoverEachAnnotation compares the lists of our annotations in the CEL policies, which are written by
// hand, too, with the annotations.
func TestThePoliciesCoverEachAnnotation(t *testing.T) {
	text, err := os.ReadFile("../../manifests/webhook-cel/base/services.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, variable := range []string{"unknownWords", "SVC009", "wordsOfAnother"} {
		_, rest, _ := strings.Cut(string(text), "- name: "+variable+"\n")
		expression, _, _ := strings.Cut(rest, "\n  - name: ")
		for _, name := range policy.DomainAnnotations {
			if !strings.Contains(expression, name) {
				t.Errorf("%s does not contain %s", variable, name)
			}
		}
	}
}

// TestAnnotationsAreConsistent: no two rows have the same name, each has a code, and each NamespaceAnnotation exists.
func TestAnnotationsAreConsistent(t *testing.T) {
	names := policy.NamesOf(func(policy.Annotation) bool { return true })
	if sorted := slices.Compact(slices.Sorted(slices.Values(names))); len(sorted) != len(names) {
		t.Errorf("duplicate names: %q", names)
	}
	for _, annotation := range policy.Annotations {
		known := slices.ContainsFunc(policy.NamespaceDefaults[:], func(d struct{ Name, Of string }) bool {
			return d.Name == strings.SplitN(annotation.NamespaceAnnotation, "=", 2)[0]
		})
		if annotation.NamespaceAnnotation != "" && !known || annotation.IgnoredCode == "" {
			t.Errorf("the code is missing, or the annotation of a Namespace is unknown: %+v", annotation)
		}
	}
}

// TestNodePolicyHasZoneInSlices: NODE002 has the sentence about zones in EndpointSlices that forecast and explain
// print.
func TestNodePolicyHasZoneInSlices(t *testing.T) {
	text, err := os.ReadFile("../../manifests/webhook-cel/base/nodes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), policy.ZoneInSlices) {
		t.Errorf("NODE002 does not contain %q", policy.ZoneInSlices)
	}
}
