package rules

import (
	"fmt"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// crossingGroups: keys whose groups cross, in a list with a bound.
func crossingGroups(s *subject) []Violation {
	return s.crossing("groups cross: %s and %s share %q, not %q; less stays near than could")
}

// impossibleBound: the same for a list without `*`.
func impossibleBound(s *subject) []Violation {
	if slices.Contains(s.keys, policy.AnyNode) {
		return nil
	}
	return s.crossing(`no "*", and groups cross: %s and %s share %q, not %q; max-load may be impossible`)
}

// crossing is the first pair of keys whose groups cross, said with two Nodes and the keys.
func (s *subject) crossing(format string) []Violation {
	if s.facts.Nodes == nil || len(s.obeyed()) == 0 || !s.isBounded() {
		return nil
	}
	crossing, found := s.facts.Nodes.crossing(s.keys)
	if !found {
		return nil
	}
	detail := fmt.Sprintf(format, Cut(crossing.nodes[0], maxWord), Cut(crossing.nodes[1], maxWord), crossing.first, crossing.second)
	return []Violation{aboutKeys(crossing.first, detail, string(crossing.second), s.keysText)}
}

// crossing are two keys, and two Nodes that have the same value of the first key, but not of the second.
type crossing struct {
	first, second policy.Key
	nodes         [2]string
}

// maxCompared is how many keys are compared with one another: more than a person uses.
const maxCompared = 6

// crossing returns the first two keys whose groups cross: some Nodes are in both groups, and some in each of them
// alone. By hostname each Node is a group of its own, and by `*` all Nodes are one group; nothing crosses these.
func (n *NodeLabels) crossing(keys []policy.Key) (crossing, bool) {
	keys = slices.DeleteFunc(slices.Clone(keys), func(key policy.Key) bool { return key == policy.Hostname || key == policy.AnyNode })
	keys = keys[:min(len(keys), maxCompared)]
	for i, first := range keys {
		for _, second := range keys[i+1:] {
			if nodes, cross := n.crossingNodes(string(first), string(second)); cross {
				return crossing{first, second, nodes}, true
			}
		}
	}
	return crossing{}, false
}

// crossingNodes finds the first group of one key, in the order of values, that crosses a group of another key, and
// returns two of its Nodes.
func (n *NodeLabels) crossingNodes(first, second string) (nodes [2]string, cross bool) {
	type pair struct{ first, second string } // empty: without the label
	least := map[pair]string{}               // the first Node by name that has such values
	byFirst, bySecond := map[string]int{}, map[string]int{}
	for name, labels := range n.all() {
		values := pair{labels[first], labels[second]}
		if other, seen := least[values]; !seen || name < other {
			least[values] = name
		}
	}
	for values := range least {
		byFirst[values.first]++
		bySecond[values.second]++
	}
	var found pair
	for values := range least {
		isCrossed := values.first != "" && values.second != "" && byFirst[values.first] > 1 && bySecond[values.second] > 1
		if isCrossed && (!cross || values.first < found.first || values.first == found.first && values.second < found.second) {
			found, cross = values, true
		}
	}
	if !cross {
		return nodes, false
	}
	nodes[0] = least[found]
	for values, name := range least {
		if values.first == found.first && values != found && (nodes[1] == "" || name < nodes[1]) {
			nodes[1] = name
		}
	}
	return nodes, true
}
