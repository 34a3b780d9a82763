package topologypublisher

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
)

// applyWrite performs one write. Created slices are numbered in sequence.
func applyWrite(current map[string]content, w write, created *int) {
	switch {
	case w.content == nil:
		delete(current, w.name)
	case w.name == "":
		*created++
		current[fmt.Sprintf("slice-%05d", *created)] = *w.content
	default:
		current[w.name] = *w.content
	}
}

// storedNodes returns the nodes in all slices.
func storedNodes(current map[string]content) map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(current))) { // the first one counts
		for _, node := range current[name].nodes {
			all[node.Name] = node.Labels
		}
	}
	return all
}

func formatWrites(writes []write) string {
	var parts []string
	for _, w := range writes {
		part := w.name
		if part == "" {
			part = "(new)"
		}
		if w.content == nil {
			parts = append(parts, "delete "+part)
			continue
		}
		for _, node := range w.content.nodes {
			part += " " + node.Name
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

func contentOf(names string) content {
	result := content{keys: []string{"zone"}}
	for name := range strings.FieldsSeq(names) {
		result.nodes = append(result.nodes, v1alpha1.NodeTopology{Name: name, Labels: map[string]string{"zone": "a"}})
	}
	return result
}

func nodesOf(names string) map[string]map[string]string {
	nodes := map[string]map[string]string{}
	for name := range strings.FieldsSeq(names) {
		nodes[name] = map[string]string{"zone": "a"}
	}
	return nodes
}

func TestPlan(t *testing.T) {
	moved := nodesOf("a b c d")
	moved["c"] = map[string]string{"zone": "b"}
	for name, test := range map[string]struct {
		now   string // slices 1, 2 and so on
		keys  []string
		nodes map[string]map[string]string
		want  string
	}{
		"nothing":                        {},
		"the first nodes":                {nodes: nodesOf("a b c d e"), want: "(new) a b c d; (new) e"},
		"no change":                      {now: "a b c; d", nodes: nodesOf("a b c d")},
		"a changed label":                {now: "a b c; d", nodes: moved, want: "1 a b c"},
		"a new node goes to the fullest": {now: "a b; c d e", nodes: nodesOf("a b c d e f"), want: "2 c d e f"},
		"a new node goes to a slice that is written anyway": {now: "a b c; d e f", nodes: nodesOf("b c d e f g"), want: "1 b c g"},
		"a slice is full":           {now: "a b c d", nodes: nodesOf("a b c d e f"), want: "(new) e f"},
		"a node was deleted":        {now: "a b c; d e f", nodes: nodesOf("a b c e f"), want: "2 e f"},
		"a slice is empty":          {now: "a b c; d", nodes: nodesOf("a b c"), want: "delete 2"},
		"no node is left":           {now: "a", want: "delete 1"},
		"two slices are merged":     {now: "a b c; d", nodes: nodesOf("a d"), want: "2 a d; delete 1"},
		"a node is in two slices":   {now: "a b c; c d e", nodes: nodesOf("a b c d e"), want: "2 d e"},
		"a slice exceeds the limit": {now: "a b c d e f", nodes: nodesOf("a b c d e f"), want: "(new) e f; 1 a b c d"},
		"an added key": {
			now: "a b c; d e f", keys: []string{"rack", "zone"}, nodes: nodesOf("a b c d e f"), want: "1 a b c; 2 d e f",
		},
	} {
		t.Run(name, func(t *testing.T) {
			keys := test.keys
			if keys == nil {
				keys = []string{"zone"}
			}
			current := map[string]content{}
			for i, names := range strings.Split(test.now, ";") {
				if names != "" {
					current[fmt.Sprint(i+1)] = contentOf(names)
				}
			}
			if diff := cmp.Diff(test.want, formatWrites(plan(current, keys, test.nodes, 4))); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPlanInvariants checks that after each plan all nodes are in slices, that these are neither too many
// nor too large, that no node is missing in between, that nothing is left to write, and that unchanged nodes keep their
// slice.
func TestPlanInvariants(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		limit := 2 + random.IntN(9)
		keys, nodes, current := []string{"zone"}, map[string]map[string]string{}, map[string]content{}
		created := 0
		for step := range 40 {
			previous := maps.Clone(nodes)
			for range random.IntN(2 * limit) {
				name := fmt.Sprint("node-", random.IntN(6*limit))
				if random.IntN(5) < 2 {
					delete(nodes, name)
				} else {
					nodes[name] = map[string]string{"zone": fmt.Sprint(random.IntN(3))}
				}
			}
			writes := plan(current, keys, nodes, limit)
			for i, w := range writes {
				applyWrite(current, w, &created)
				for name := range previous {
					if _, stays := nodes[name]; stays && storedNodes(current)[name] == nil {
						t.Fatalf("seed %d, step %d: after %s, node %s is missing", seed, step, formatWrites(writes[:i+1]), name)
					}
				}
			}
			if diff := cmp.Diff(nodes, storedNodes(current)); diff != "" {
				t.Fatalf("seed %d, step %d: nodes (-want +got):\n%s", seed, step, diff)
			}
			for name, slice := range current {
				if len(slice.nodes) > limit || len(slice.nodes) == 0 {
					t.Fatalf("seed %d, step %d: slice %s has %d nodes, the limit is %d", seed, step, name, len(slice.nodes), limit)
				}
			}
			if maxSlices := 1 + 4*len(nodes)/limit; len(current) > maxSlices {
				t.Fatalf("seed %d, step %d: %d slices for %d nodes, want at most %d", seed, step, len(current), len(nodes), maxSlices)
			}
			if again := plan(current, keys, nodes, limit); len(again) > 0 {
				t.Fatalf("seed %d, step %d: a second plan has writes: %s", seed, step, formatWrites(again))
			}
		}
	}
}
