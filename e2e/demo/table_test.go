package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	testZones = []string{"zone-a", "zone-a", "zone-b"}
	testPods  = []string{"web-a1", "web-a2", "web-b1"}
)

func TestTable(t *testing.T) {
	view := table{zones: testZones, pods: testPods, emptied: "zone-b", rows: []row{
		{node: "node-a1", zone: "zone-a", counts: []int{33, 27, 0}, expected: []int{0, 1}},
		{node: "node-b1", zone: "zone-b", counts: []int{20, 40, 0}, expected: []int{0, 1}},
		{node: "node-b2", zone: "zone-b", counts: []int{20, 30, 10}, expected: []int{0, 1}},
		{node: "node-c1", zone: "zone-c", counts: []int{1, 0, 0}, expected: []int{0, 1}, failures: []error{errors.New("refused")}},
	}}
	want := strings.Join([]string{
		"                zone-a            zone-b (empty)",
		"  from          web-a1  web-a2    web-b1",
		"  node-a1           33      27         ·   ✓ all 60 stayed in zone-a",
		"  node-b1           20      40         ·   ✓ all 60 spread over zone-a",
		"  node-b2           20      30        10   ✗ 50 of 60 as expected",
		"  node-c1            1       0         ·   ✗ 1 failed",
		"", "",
	}, "\n")
	var printed strings.Builder
	view.print(&page{w: &printed})
	if diff := cmp.Diff(want, printed.String()); diff != "" {
		t.Errorf("the table differs (-want +got):\n%s", diff)
	}
}

func TestTableMarksEvacuatedZone(t *testing.T) {
	view := table{zones: testZones, pods: testPods, evacuated: "zone-a"}
	if got, want := view.zoneLine(), "              zone-a (evacuated)    zone-b"; got != want {
		t.Errorf("zone headings %q, want %q", got, want)
	}
}

func withoutColour(text string) string {
	for _, attribute := range []ink{bold, dim, red, green, cyan, "0"} {
		text = strings.ReplaceAll(text, "\x1b["+string(attribute)+"m", "")
	}
	return text
}

func TestColourAddsOnlyAttributes(t *testing.T) {
	r := row{node: "node-b1", zone: "zone-b", counts: []int{60, 0, 0}, expected: []int{2}}
	view := table{zones: testZones, pods: testPods, rows: []row{r}}
	var plain, coloured strings.Builder
	view.print(&page{w: &plain})
	view.print(&page{w: &coloured, coloured: true})
	if !strings.Contains(coloured.String(), "\x1b[31m      60\x1b[0m") {
		t.Errorf("connections to the wrong pod are not red:\n%q", coloured.String())
	}
	if diff := cmp.Diff(plain.String(), withoutColour(coloured.String())); diff != "" {
		t.Errorf("without its attributes the coloured table differs from the plain one (-plain +coloured):\n%s", diff)
	}
}

func TestMistakes(t *testing.T) {
	tests := map[string]struct {
		row  row
		want []string
	}{
		"connections to expected pods only are no mistake": {
			row{node: "n", counts: []int{30, 30, 0}, expected: []int{0, 1}}, nil,
		},
		"a connection to an unexpected pod is a mistake": {
			row{node: "n", counts: []int{30, 29, 1}, expected: []int{0, 1}},
			[]string{"n: 1 of 60 connections went to web-b1, which is not an expected endpoint"},
		},
		"an expected pod that no connection reaches is a mistake": {
			row{node: "n", counts: []int{60, 0, 0}, expected: []int{0, 1}},
			[]string{"n: no connection reached web-a2, which is as near as the others"},
		},
		"a failed connection is the only mistake, although others were not attempted": {
			row{node: "n", counts: []int{1, 0, 0}, expected: []int{0, 1}, failures: []error{errors.New("refused")}},
			[]string{"n: a connection failed: refused"},
		},
		"connections that were never made are a mistake": {
			row{node: "n", counts: []int{1, 1, 0}, expected: []int{0, 1}},
			[]string{"n: 58 connections were not made"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.row.mistakes(testPods)); diff != "" {
				t.Errorf("the mistakes differ (-want +got):\n%s", diff)
			}
		})
	}
}
