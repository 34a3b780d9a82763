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
	unknownKeyText string // the text of an error about any other key
	annotations    []string
	// hasSettings is set for Services, which have topology settings. Those in labels have a rule of their own.
	hasSettings bool
	// onOtherKind maps annotations of other kinds of objects to the one to suggest here; empty if there is none.
	onOtherKind map[string]string
	otherKind   string
	// otherKeys are annotations of other domains to suggest.
	otherKeys []string
}

// namespaceDefaultKeys are the annotations of Namespaces. The map has the corresponding annotation of Services for
// each.
var namespaceDefaultKeys, serviceKeysByDefault = func() (names []string, meant map[string]string) {
	meant = map[string]string{}
	for _, standard := range policy.NamespaceDefaults {
		names, meant[standard.Name] = append(names, standard.Name), standard.Of
	}
	return names, meant
}()

var knownServiceKeys = knownKeys{
	unknownKeyText: "has no meaning on Services; ", hasSettings: true, otherKind: "Namespaces",
	annotations: policy.DomainAnnotations,
	otherKeys: policy.NamesOf(func(a policy.Annotation) bool {
		return !a.IsDeprecated && slices.Contains(policy.ModeAnnotations, a.Name)
	}),
	onOtherKind: serviceKeysByDefault,
}

var knownNamespaceKeys = knownKeys{
	unknownKeyText: "has no meaning on Namespaces; ", otherKind: "Services",
	annotations: namespaceDefaultKeys,
	onOtherKind: func() map[string]string {
		meant := map[string]string{}
		for _, annotation := range policy.Annotations {
			if annotation.NamespaceAnnotation != "" {
				meant[annotation.Name] = annotation.NamespaceAnnotation
			}
		}
		return meant
	}(),
}

// unknownServiceKeys and unknownNamespaceKeys find annotations and labels of vicinity.dev that have no meaning.
func unknownServiceKeys(s *subject) []Violation { return knownServiceKeys.unknownKeys(&s.Metadata) }

func unknownNamespaceKeys(s *subject) []Violation { return knownNamespaceKeys.unknownKeys(&s.Metadata) }

// unknownKeys returns the violations of keys and values that are not known.
func (k *knownKeys) unknownKeys(metadata *Metadata) (violations []Violation) {
	for _, key := range vicinityKeys(metadata.Annotations) {
		value := metadata.Annotations[key]
		switch {
		case !slices.Contains(k.annotations, key):
			found := k.violation("metadata.annotations", key, value)
			found.advice = func() string { return k.adviseAnnotation(key) }
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
		case k.hasSettings && isTopologySetting(key):
		default:
			found := k.violation("metadata.labels", key, value)
			found.advice = func() string { return k.adviseLabel(key) }
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
func (k *knownKeys) violation(fieldPath, key, value string) Violation {
	return violationOf(&field.Error{
		Type: field.ErrorTypeNotSupported, Field: fieldPath + "[" + displayKey(key) + "]", BadValue: truncateValue(value),
		Detail: k.unknownKeyText,
	}, key)
}

func (k *knownKeys) adviseAnnotation(key string) string {
	if key == policy.AdmissionLabel {
		return "make it a label"
	}
	if suggestion := k.suggest(key); suggestion != "" {
		return suggestion
	}
	return "known annotations: " + strings.Join(k.annotations, ", ")
}

func (k *knownKeys) adviseLabel(key string) string {
	if slices.Contains(k.annotations, key) {
		return "make it an annotation"
	}
	if policy.Suggest(key, policy.AdmissionLabel) != "" {
		return fmt.Sprintf("did you mean %s?", policy.AdmissionLabel)
	}
	if suggestion := k.suggest(key); suggestion != "" {
		return suggestion
	}
	return "the only label is " + policy.AdmissionLabel
}

// suggest returns a suggestion for an unknown annotation; empty if no known one is close.
func (k *knownKeys) suggest(key string) string {
	if suggestion, isElsewhere := k.onOtherKind[key]; isElsewhere {
		return fmt.Sprintf("it is for %s; did you mean %s?", k.otherKind, suggestion)
	}
	if suggestion := suggestSetting(strings.TrimPrefix(key, policy.Domain)); strings.HasPrefix(suggestion, "spec.") && k.hasSettings {
		return fmt.Sprintf("did you mean %s?", suggestion)
	}
	if key == policy.ModeBalanced {
		return "it is a value of " + policy.TopologyModeAnnotation
	}
	if suggestion := policy.Suggest(key, slices.Concat(k.annotations, k.otherKeys)...); suggestion != "" {
		return fmt.Sprintf("did you mean %s?", suggestion)
	}
	if suggestion := policy.Suggest(key, slices.Sorted(maps.Keys(k.onOtherKind))...); suggestion != "" {
		return fmt.Sprintf("did you mean %s?", k.onOtherKind[suggestion])
	}
	return ""
}
