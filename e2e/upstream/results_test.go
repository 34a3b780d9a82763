package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/ginkgo/v2/types"
)

func TestOnlyPassedSpecsCountAsPassed(t *testing.T) {
	failedSpec, skipped, interrupted, notRun := specReport("b"), specReport("c"), specReport("d"), specReport("e")
	failedSpec.State = types.SpecStateFailed
	skipped.State = types.SpecStateSkipped
	skipped.Failure.Message = "Requires at least 2 nodes\nand more"
	interrupted.State = types.SpecStateInterrupted
	notRun.State = types.SpecStateSkipped
	texts := []string{"[sig-network] a", "[sig-network] b", "[sig-network] c", "[sig-network] d", "[sig-network] e", "[sig-network] f"}
	got := resultsOf(texts, []types.SpecReport{specReport("a"), failedSpec, skipped, interrupted, notRun, specReport("not requested")})
	want := results{
		"[sig-network] a": "passed",
		"[sig-network] b": "failed",
		"[sig-network] c": "skipped itself: Requires at least 2 nodes",
		"[sig-network] d": "interrupted",
		"[sig-network] e": "did not run",
		"[sig-network] f": "did not run",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, line := range []string{"1 of 6 specs passed\n", "  failed: [sig-network] b\n", "  did not run: [sig-network] f\n"} {
		if !strings.Contains(got.summary(), line) {
			t.Errorf("summary lacks %q:\n%s", line, got.summary())
		}
	}
	for spec, good := range map[string]bool{"a": true, "b": false, "c": true, "d": false, "e": false} {
		single := results{spec: got["[sig-network] "+spec]}
		if single.allPassed() != good {
			t.Errorf("good() with result %q = %t, want %t", single[spec], single.allPassed(), good)
		}
	}
	if (results{}).allPassed() {
		t.Error("good() without results = true, want false")
	}
}

func TestTheTableReplacesTheOldOne(t *testing.T) {
	readme := filepath.Join(t.TempDir(), "README.md")
	write := func(text string) {
		if err := os.WriteFile(readme, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# Title\n\n" + tableBegins + "\nold\n" + tableEnds + "\n\nmore\n")
	all := map[string]results{
		kubeProxy: {"[sig-network] a | b": passed, "[sig-network] c": "failed"},
		vicinity:  {"[sig-network] a | b": passed, "[sig-network] c": passed},
	}
	if err := writeTable(readme, all); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	want := "# Title\n\n" + tableBegins + "\n" + `| spec | kube-proxy | Vicinity | no proxy |
|---|---|---|---|
| a \| b | passed | passed |  |
| c | failed | passed |  |
| **passed** | 1 of 2 | 2 of 2 | |
` + tableEnds + "\n\nmore\n"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	write("# Title\n")
	if err := writeTable(readme, all); err == nil || !strings.Contains(err.Error(), "has no lines") {
		t.Errorf("a README without markers for the table: got error %v", err)
	}
	if _, err := readResults(t.TempDir()); err == nil || !strings.Contains(err.Error(), "make e2e-upstream") {
		t.Errorf("a folder without results: got error %v", err)
	}
}
