package rules

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// The rules here are about lists that the proxy obeys, and that may yet do something else than their author thought.

// effectiveKeys are the topology keys of a Service, if its proxy obeys them, or DNS does.
func (s *subject) effectiveKeys() []policy.Key {
	if !s.isServed() && !s.isServedByDNS() {
		return nil
	}
	return s.keys
}

// keysViolation is a violation in the list of topology keys, or an entry of it.
func keysViolation(entry policy.Key, detail string, inputs ...string) Violation {
	err := errorOf(field.ErrorTypeInvalid, annotation(policy.TopologyKeysAnnotation), string(entry), detail)
	return violationOf(err, string(entry), inputs...)
}

// keysWithoutWildcard: lists without `*`.
func keysWithoutWildcard(s *subject) []Violation {
	keys := s.effectiveKeys()
	if len(keys) == 0 || slices.Contains(keys, policy.AnyNode) {
		return nil
	}
	detail, input := `no "*": connections fail where no endpoint matches; append ", *" to fall back to any endpoint`, ""
	if s.isBounded() {
		detail, input = `no "*": max-load is of each group's own mean, and connections fail where no endpoint matches; append ", *"`, "bounded"
	}
	if s.isServedByDNS() {
		detail, input = `no "*": where no endpoint matches, DNS says that there is none; append ", *"`, "headless"
	}
	return []Violation{keysViolation(policy.Key(s.keysText), detail, input)}
}

// widths orders the keys that Kubernetes knows: Nodes with the same value of one have the same value of each wider one.
var widths = map[policy.Key]int{
	policy.Hostname: 1,
	policy.Zone:     2, "failure-domain.beta.kubernetes.io/zone": 2,
	policy.Region: 3, "failure-domain.beta.kubernetes.io/region": 3,
}

// unreachableKeys: keys behind wider ones.
func unreachableKeys(s *subject) (violations []Violation) {
	keys := s.effectiveKeys()
	for i, key := range keys {
		wider := slices.IndexFunc(keys[:i], func(other policy.Key) bool { return widths[key] > 0 && widths[other] > widths[key] })
		if wider >= 0 {
			detail := fmt.Sprintf("%q after %q is never reached; put narrower keys first", key, keys[wider])
			violations = append(violations, keysViolation(key, detail, string(keys[wider])))
		}
	}
	return violations
}

// deprecatedPrefix is that of the labels that Kubernetes had before 1.17.
const deprecatedPrefix = "failure-domain.beta.kubernetes.io/"

// deprecatedKeys: labels that new nodes may not have.
func deprecatedKeys(s *subject) (violations []Violation) {
	for _, key := range s.effectiveKeys() {
		if name, found := strings.CutPrefix(string(key), deprecatedPrefix); found && (name == "zone" || name == "region") {
			detail := "deprecated label key; use topology.kubernetes.io/" + name
			violations = append(violations, keysViolation(key, detail))
		}
	}
	return violations
}

// keysOnNoNode: keys that no Node carries. The proxy knows a node's name whatever its labels. A cluster whose Nodes
// have no labels at all says nothing about those that they will have.
func keysOnNoNode(s *subject) (violations []Violation) {
	nodes, keys := s.facts.Nodes, s.effectiveKeys()
	if nodes == nil || len(nodes.keys) == 0 {
		return nil
	}
	isCarried := func(key policy.Key) bool {
		return key == policy.AnyNode || key == policy.Hostname || nodes.HasKey(string(key))
	}
	failsAlways := !slices.ContainsFunc(keys, isCarried)
	for _, key := range keys {
		if !isCarried(key) {
			violations = append(violations, keysViolation(key, keyOnNoNode(key, nodes, failsAlways)))
		}
	}
	return violations
}

// keyOnNoNode says what follows from a key that no Node carries, and what was probably meant.
func keyOnNoNode(key policy.Key, nodes *NodeLabels, failsAlways bool) string {
	detail := fmt.Sprintf("no node has label %q", truncateValue(string(key)))
	if failsAlways {
		detail += `; with no "*" all traffic fails`
	}
	if meant := nodes.suggest(string(key)); meant != "" {
		return fmt.Sprintf("%s; did you mean %q?", detail, meant)
	}
	return detail + "; label the nodes, or remove the key"
}
