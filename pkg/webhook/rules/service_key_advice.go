package rules

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// The rules here are about lists that the proxy accepts, but that may not have the effect that their author expects.

// effectiveKeys returns the topology keys of a Service if its proxy or DNS applies them.
func (s *subject) effectiveKeys() []policy.Key {
	if !s.isServed() && !s.isServedByDNS() {
		return nil
	}
	return s.keys
}

// keysViolation returns a violation of the list of topology keys, or of an entry in it.
func keysViolation(entry policy.Key, detail string, inputs ...string) Violation {
	err := errorOf(field.ErrorTypeInvalid, annotation(policy.TopologyKeysAnnotation), string(entry), detail)
	return violationOf(err, string(entry), inputs...)
}

// keysWithoutWildcard finds lists without `*`.
func keysWithoutWildcard(s *subject) []Violation {
	keys := s.effectiveKeys()
	if len(keys) == 0 || slices.Contains(keys, policy.AnyNode) {
		return nil
	}
	detail, input := `no "*": connections fail where no endpoint matches; append ", *" to fall back to any endpoint`, ""
	if s.isBounded() {
		detail, input = `no "*": max-load applies to each group's mean, and connections fail where no endpoint matches; append ", *"`, "bounded"
	}
	if s.isServedByDNS() {
		detail, input = `no "*": where no endpoint matches, DNS returns none; append ", *"`, "headless"
	}
	return []Violation{keysViolation(policy.Key(s.keysText), detail, input)}
}

// keyWidths orders the keys that Kubernetes defines: Nodes with the same value of one have the same value of each wider
// one.
var keyWidths = map[policy.Key]int{
	policy.Hostname: 1,
	policy.Zone:     2, "failure-domain.beta.kubernetes.io/zone": 2,
	policy.Region: 3, "failure-domain.beta.kubernetes.io/region": 3,
}

// unreachableKeys finds keys after wider ones.
func unreachableKeys(s *subject) (violations []Violation) {
	keys := s.effectiveKeys()
	for i, key := range keys {
		wider := slices.IndexFunc(keys[:i], func(other policy.Key) bool { return keyWidths[key] > 0 && keyWidths[other] > keyWidths[key] })
		if wider >= 0 {
			detail := fmt.Sprintf("%q after %q is never reached; put narrower keys first", key, keys[wider])
			violations = append(violations, keysViolation(key, detail, string(keys[wider])))
		}
	}
	return violations
}

// deprecatedPrefix is the prefix of the labels that Kubernetes had before 1.17.
const deprecatedPrefix = "failure-domain.beta.kubernetes.io/"

// deprecatedKeys finds labels that new nodes may not have.
func deprecatedKeys(s *subject) (violations []Violation) {
	for _, key := range s.effectiveKeys() {
		if name, found := strings.CutPrefix(string(key), deprecatedPrefix); found && (name == "zone" || name == "region") {
			detail := "deprecated label key; use topology.kubernetes.io/" + name
			violations = append(violations, keysViolation(key, detail))
		}
	}
	return violations
}

// keysOnNoNode finds keys that no Node has. The proxy knows a node's name whatever its labels. If no Node has any
// labels, nothing is known about future labels, and nothing is reported.
func keysOnNoNode(s *subject) (violations []Violation) {
	nodes, keys := s.facts.Nodes, s.effectiveKeys()
	if nodes == nil || len(nodes.keys) == 0 {
		return nil
	}
	isOnNode := func(key policy.Key) bool {
		return key == policy.AnyNode || key == policy.Hostname || nodes.HasKey(string(key))
	}
	neverMatches := !slices.ContainsFunc(keys, isOnNode)
	for _, key := range keys {
		if !isOnNode(key) {
			violations = append(violations, keysViolation(key, keyOnNoNodeDetail(key, nodes, neverMatches)))
		}
	}
	return violations
}

// keyOnNoNodeDetail returns the effect of a key that no Node has, and a suggestion.
func keyOnNoNodeDetail(key policy.Key, nodes *NodeLabels, neverMatches bool) string {
	detail := fmt.Sprintf("no node has label %q", truncateValue(string(key)))
	if neverMatches {
		detail += `; with no "*" all traffic fails`
	}
	if suggestion := nodes.suggest(string(key)); suggestion != "" {
		return fmt.Sprintf("%s; did you mean %q?", detail, suggestion)
	}
	return detail + "; label the nodes, or remove the key"
}
