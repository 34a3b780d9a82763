package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2/types"
)

// specReport returns a spec as a dry run reports it.
func specReport(text string, labels ...string) types.SpecReport {
	return types.SpecReport{
		ContainerHierarchyTexts: []string{"[sig-network]"}, LeafNodeText: text, LeafNodeLabels: labels,
		LeafNodeType: types.NodeTypeIt, State: types.SpecStatePassed,
	}
}

func TestSpecsAreSkippedByTheFirstReasonThatMatches(t *testing.T) {
	suite := types.SpecReport{LeafNodeType: types.NodeTypeBeforeSuite, State: types.SpecStatePassed}
	other := specReport("of another group")
	other.State = types.SpecStateSkipped
	chosen, err := choose(
		[]types.SpecReport{
			suite, other, specReport("in a cloud, over SCTP"), specReport("over SCTP"), specReport("b quick"),
			specReport("a quick"), specReport("slow", "Conformance", "Slow"), specReport("serial", "Serial"), specReport("rough", "Disruptive"),
		},
		[]reason{{"needs a cloud", []string{"cloud"}}, {"needs SCTP", []string{"SCTP$"}}},
	)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(chosen.skipped, []int{1, 1}) || chosen.skippedCount() != 2 {
		t.Errorf("skipped specs by reason: %v, %d in total, want one by each reason", chosen.skipped, chosen.skippedCount())
	}
	if got := strings.Join(chosen.texts(false), "; "); got != "[sig-network] a quick; [sig-network] b quick" {
		t.Errorf("specs that run in parallel: %s", got)
	}
	if got := strings.Join(chosen.texts(true), "; "); got != "[sig-network] rough; [sig-network] serial; [sig-network] slow" {
		t.Errorf("specs that run alone: %s", got)
	}
	focused := chosen.matching(regexp.MustCompile("a quick|slow"))
	if len(focused.specs) != 2 || len(chosen.specs) != 5 {
		t.Errorf("with a focus, the specs are %v of %v, want 2 of 5", focused.specs, chosen.specs)
	}
}

func TestSpecsRunInTheLabThatTheyNeed(t *testing.T) {
	chosen, err := choose([]types.SpecReport{
		specReport("serve"), specReport("loopback [Feature:LocalhostNodePorts]"), specReport("deny [Feature:NetworkPolicy]"),
		specReport("Netpol API"),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[labKind]string{
		plainLab:      "[sig-network] Netpol API; [sig-network] serve",
		localhost:     "[sig-network] loopback [Feature:LocalhostNodePorts]",
		networkPolicy: "[sig-network] deny [Feature:NetworkPolicy]",
	} {
		if got := strings.Join(chosen.inLab(kind).texts(false), "; "); got != want {
			t.Errorf("specs in a lab of kind %s: %s, want %s", kind, got, want)
		}
	}
}

func TestAnUnusedReasonIsAnError(t *testing.T) {
	for pattern, want := range map[string]string{"SCTP": "matches no spec", "(": "needs SCTP"} {
		_, err := choose([]types.SpecReport{specReport("quick")}, []reason{{"needs SCTP", []string{pattern}}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want %q", pattern, err, want)
		}
	}
}

func TestTheReasonsCanBeRead(t *testing.T) {
	reasons, err := readReasons()
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range reasons {
		if item.Reason == "" || len(item.Specs) == 0 {
			t.Errorf("reason without a text or specs: %+v", item)
		}
	}
	if len(reasons) == 0 {
		t.Error("left-out.yaml has no reasons")
	}
}
