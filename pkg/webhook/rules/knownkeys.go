package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// knownKeys lists the Vicinity annotations that a kind of object may have.
type knownKeys struct {
	meaningless string // the text of an error about any other key
	annotations []string
	// hasSettings is set if topology settings in labels have a rule of their own.
	hasSettings bool
	// elsewhere maps annotations of other kinds of objects to the one to suggest here; empty if there is none.
	elsewhere map[string]string
	otherKind string
	// otherKeys are annotations of other domains to suggest.
	otherKeys []string
}

// defaultsOfNamespaces are the annotations of Namespaces. The map has the corresponding annotation of Services for each.
var defaultsOfNamespaces, suggestionsForDefaults = func() (names []string, meant map[string]string) {
	meant = map[string]string{}
	for _, standard := range policy.NamespaceDefaults {
		names, meant[standard.Name] = append(names, standard.Name), standard.Of
	}
	return names, meant
}()

var knownServiceKeys = knownKeys{
	meaningless: "has no meaning on Services; ", hasSettings: true, otherKind: "Namespaces",
	annotations: policy.OwnAnnotations,
	otherKeys: policy.NamesOf(func(a policy.Annotation) bool {
		return !a.IsDeprecated && slices.Contains(policy.ModeAnnotations, a.Name)
	}),
	elsewhere: suggestionsForDefaults,
}

var knownNamespaceKeys = knownKeys{
	meaningless: "has no meaning on Namespaces; ", otherKind: "Services",
	annotations: defaultsOfNamespaces,
	elsewhere: func() map[string]string {
		meant := map[string]string{}
		for _, annotation := range policy.Annotations {
			if annotation.OnNamespace != "" {
				meant[annotation.Name] = annotation.OnNamespace
			}
		}
		return meant
	}(),
}

// unknownServiceKeys and unknownNamespaceKeys find annotations and labels of vicinity.dev that have no meaning.
func unknownServiceKeys(s *subject) []Violation { return knownServiceKeys.unknownKeys(&s.Metadata) }

func unknownNamespaceKeys(s *subject) []Violation { return knownNamespaceKeys.unknownKeys(&s.Metadata) }

// unknownKeys returns the violations of keys and values that are not known.
func (v *knownKeys) unknownKeys(metadata *Metadata) (violations []Violation) {
	for _, key := range vicinityKeys(metadata.Annotations) {
		value := metadata.Annotations[key]
		switch {
		case !slices.Contains(v.annotations, key):
			found := v.violation("metadata.annotations", key, value)
			found.advice = func() string { return v.adviseAnnotation(key) }
			violations = append(violations, found)
		case key == policy.DemandSourceAnnotation && policy.CheckDemandSource(value) != nil:
			err := field.NotSupported(annotation(key), truncateValue(value), []string{policy.Measured})
			violations = append(violations, violationOf(err, value))
		}
	}
	for _, key := range vicinityKeys(metadata.Labels) {
		value := metadata.Labels[key]
		switch {
		case key == policy.AdmissionLabel && value == policy.AdmissionDisabled:
		case key == policy.AdmissionLabel:
			err := field.NotSupported(label(key), truncateValue(value), []string{policy.AdmissionDisabled})
			violations = append(violations, violationOf(err, value))
		case v.hasSettings && isTopologySetting(key):
		default:
			found := v.violation("metadata.labels", key, value)
			found.advice = func() string { return v.adviseLabel(key) }
			violations = append(violations, found)
		}
	}
	return violations
}

// vicinityKeys returns the keys with the domain vicinity.dev, sorted.
func vicinityKeys(all map[string]string) []string {
	var keys []string
	for key := range all {
		if strings.HasPrefix(key, policy.Domain) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// violation returns the violation of an unknown key, whatever its value. An object may have a hundred thousand of them,
// so each holds only what it needs: field.Path would cost several more allocations, and a formatted detail another.
func (v *knownKeys) violation(in, key, value string) Violation {
	return violationOf(&field.Error{
		Type: field.ErrorTypeNotSupported, Field: in + "[" + shownKey(key) + "]", BadValue: truncateValue(value), Detail: v.meaningless,
	}, key)
}

func (v *knownKeys) adviseAnnotation(key string) string {
	if key == policy.AdmissionLabel {
		return "make it a label"
	}
	if meant := v.suggest(key); meant != "" {
		return meant
	}
	return "known annotations: " + strings.Join(v.annotations, ", ")
}

func (v *knownKeys) adviseLabel(key string) string {
	if slices.Contains(v.annotations, key) {
		return "make it an annotation"
	}
	if policy.Suggest(key, policy.AdmissionLabel) != "" {
		return fmt.Sprintf("did you mean %s?", policy.AdmissionLabel)
	}
	if meant := v.suggest(key); meant != "" {
		return meant
	}
	return "the only label is " + policy.AdmissionLabel
}

// suggest returns a suggestion for an unknown annotation; empty if no known one is close.
func (v *knownKeys) suggest(key string) string {
	if meant, isElsewhere := v.elsewhere[key]; isElsewhere {
		return fmt.Sprintf("it is for %s; did you mean %s?", v.otherKind, meant)
	}
	if meant := suggestSetting(strings.TrimPrefix(key, policy.Domain)); strings.HasPrefix(meant, "spec.") && v.hasSettings {
		return fmt.Sprintf("did you mean %s?", meant)
	}
	if key == policy.ModeBalanced {
		return "it is a value of " + policy.TopologyModeAnnotation
	}
	if meant := policy.Suggest(key, slices.Concat(v.annotations, v.otherKeys)...); meant != "" {
		return fmt.Sprintf("did you mean %s?", meant)
	}
	if meant := policy.Suggest(key, slices.Sorted(maps.Keys(v.elsewhere))...); meant != "" {
		return fmt.Sprintf("did you mean %s?", v.elsewhere[meant])
	}
	return ""
}
