package rules

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// topologySettings are the annotations of Services with a meaning for topology.
var topologySettings = []string{policy.TopologyModeAnnotation, policy.TopologyKeysAnnotation, policy.TopologyAwareHintsAnnotation}

// slips are the settings of which nearly the name is looked for. As a label max-load is an unknown word of ours, and so
// is nearly its name with our domain. The name of clients is too common to guess.
var slips = append(slices.Clone(topologySettings), policy.MaxLoadAnnotation)

func isTopologySetting(key string) bool { return slices.Contains(topologySettings, key) }

// misplacedSettings: topology settings that are labels, and annotations whose names are misspelt. Names with our own
// domain have a rule that denies.
func misplacedSettings(s *subject) (violations []Violation) {
	for _, key := range slices.Sorted(maps.Keys(s.Metadata.Labels)) {
		switch {
		case isTopologySetting(key):
			violations = append(violations, misplaced(label(key), s.Metadata.Labels[key], "has no effect as a label; make it an annotation"))
		case isMisspelt(key):
			violations = append(violations, misspelt(label(key), key, s.Metadata.Labels[key], "unknown label; "))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.Metadata.Annotations)) {
		if isMisspelt(key) {
			violations = append(violations, misspelt(annotation(key), key, s.Metadata.Annotations[key], "unknown annotation; "))
		}
	}
	return violations
}

func misplaced(path *field.Path, value, detail string) Violation {
	return violationOf(errorOf(field.ErrorTypeInvalid, path, value, detail), "")
}

// misspelt is a key that is none of the settings.
func misspelt(path *field.Path, key, value, detail string) Violation {
	found := misplaced(path, value, detail)
	found.advice = func() string { return advice(key) }
	return found
}

// isMisspelt reports whether a key is none of the settings, and looks like one: `service*.kubernetes.io/topology*`, or
// within a slip.
func isMisspelt(key string) bool {
	if isTopologySetting(key) || strings.HasPrefix(key, policy.Domain) || len(key) > maxKey {
		return false
	}
	domain, name, _ := strings.Cut(key, "/")
	if strings.HasPrefix(domain, "service") && strings.HasSuffix(domain, ".kubernetes.io") && strings.HasPrefix(name, "topology") {
		return true
	}
	return slices.ContainsFunc(slips, func(known string) bool { return policy.IsSlip(strings.ToLower(key), known) })
}

// advice names the annotation that was probably meant.
func advice(key string) string {
	if meant := policy.Suggest(key, slips...); meant != "" {
		return fmt.Sprintf("did you mean the annotation %s?", meant)
	}
	return "use the annotation " + policy.TopologyModeAnnotation + " or " + policy.TopologyKeysAnnotation
}

// lastApplied is where kubectl keeps what was applied, with fields that the API server has dropped.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// removedField: spec.topologyKeys in a file, or in what a user applied.
func removedField(s *subject) []Violation {
	keys := s.Spec.TopologyKeys
	if len(keys) == 0 {
		keys = appliedKeys(s.Metadata.Annotations[lastApplied])
	}
	if len(keys) == 0 {
		return nil
	}
	value := strings.Join(keys, ", ")
	const detail = "removed in Kubernetes 1.22, and dropped by API servers; use the annotation " + policy.TopologyKeysAnnotation
	return single(errorOf(field.ErrorTypeForbidden, field.NewPath("spec", "topologyKeys"), value, detail), value)
}

// appliedKeys reads spec.topologyKeys in what a user applied. It returns nil if the text is no Service.
func appliedKeys(text string) []string {
	if !strings.Contains(text, "topologyKeys") { // most do not, and are not decoded
		return nil
	}
	var applied struct {
		Spec struct {
			TopologyKeys []string `json:"topologyKeys"`
		} `json:"spec"`
	}
	if json.Unmarshal([]byte(text), &applied) != nil {
		return nil
	}
	return applied.Spec.TopologyKeys
}

// openYurtKeys is OpenYurt's annotation of the same kind.
const openYurtKeys = "openyurt.io/topologyKeys"

// openYurtAnnotation: OpenYurt's annotation where ours is missing.
func openYurtAnnotation(s *subject) []Violation {
	value, present := s.Metadata.Annotations[openYurtKeys]
	if !present || s.hasKeys {
		return nil
	}
	const detail = "is not read; use " + policy.TopologyKeysAnnotation
	return single(errorOf(field.ErrorTypeInvalid, annotation(openYurtKeys), value, detail), value)
}
