package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// vocabulary lists which annotations of ours a kind of object may have.
type vocabulary struct {
	meaningless string // what an error says of another one
	annotations []string
	// hasSettings: topology settings that are labels have a rule of their own.
	hasSettings bool
	// elsewhere are annotations that objects of other kinds have, and which of those here is probably meant; empty if
	// none is.
	elsewhere map[string]string
	otherKind string
	// besides are annotations of other domains that may be meant.
	besides []string
}

// defaultsOfNamespaces are the annotations of Namespaces, and meantByDefaults what each means on a Service.
var defaultsOfNamespaces, meantByDefaults = func() (names []string, meant map[string]string) {
	meant = map[string]string{}
	for _, standard := range policy.NamespaceDefaults {
		names, meant[standard.Name] = append(names, standard.Name), standard.Of
	}
	return names, meant
}()

var serviceWords = vocabulary{
	meaningless: "has no meaning on Services; ", hasSettings: true, otherKind: "Namespaces",
	annotations: policy.OwnAnnotations,
	besides: policy.NamesOf(func(a policy.Annotation) bool {
		return !a.IsDeprecated && slices.Contains(policy.ModeAnnotations, a.Name)
	}),
	elsewhere: meantByDefaults,
}

var namespaceWords = vocabulary{
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

// unknownServiceWords and unknownNamespaceWords: annotations and labels with our domain that have no meaning.
func unknownServiceWords(s *subject) []Violation { return serviceWords.missing(&s.Metadata) }

func unknownNamespaceWords(s *subject) []Violation { return namespaceWords.missing(&s.Metadata) }

// missing are the keys that are not in the vocabulary.
func (v *vocabulary) missing(metadata *Metadata) (violations []Violation) {
	for _, key := range ours(metadata.Annotations) {
		value := metadata.Annotations[key]
		switch {
		case !slices.Contains(v.annotations, key):
			found := v.refuse("metadata.annotations", key, value)
			found.advice = func() string { return v.adviseAnnotation(key) }
			violations = append(violations, found)
		case key == policy.DemandSourceAnnotation && policy.CheckDemandSource(value) != nil:
			err := field.NotSupported(annotation(key), shown(value), []string{policy.Measured})
			violations = append(violations, violationOf(err, value))
		}
	}
	for _, key := range ours(metadata.Labels) {
		value := metadata.Labels[key]
		switch {
		case key == policy.AdmissionLabel && value == policy.AdmissionDisabled:
		case key == policy.AdmissionLabel:
			err := field.NotSupported(label(key), shown(value), []string{policy.AdmissionDisabled})
			violations = append(violations, violationOf(err, value))
		case v.hasSettings && isTopologySetting(key):
		default:
			found := v.refuse("metadata.labels", key, value)
			found.advice = func() string { return v.adviseLabel(key) }
			violations = append(violations, found)
		}
	}
	return violations
}

// ours are the keys with our domain, in order.
func ours(all map[string]string) []string {
	var keys []string
	for key := range all {
		if strings.HasPrefix(key, policy.Domain) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// refuse is the violation of a key without meaning, whatever its value. An object has room for a hundred thousand of
// them, so each holds only what it needs: field.Path would be several allocations more, and a detail that is put
// together another.
func (v *vocabulary) refuse(in, key, value string) Violation {
	return violationOf(&field.Error{
		Type: field.ErrorTypeNotSupported, Field: in + "[" + shownKey(key) + "]", BadValue: shown(value), Detail: v.meaningless,
	}, key)
}

func (v *vocabulary) adviseAnnotation(key string) string {
	if key == policy.AdmissionLabel {
		return "make it a label"
	}
	if meant := v.meantBy(key); meant != "" {
		return meant
	}
	return "known annotations: " + strings.Join(v.annotations, ", ")
}

func (v *vocabulary) adviseLabel(key string) string {
	if slices.Contains(v.annotations, key) {
		return "make it an annotation"
	}
	if policy.Suggest(key, policy.AdmissionLabel) != "" {
		return fmt.Sprintf("did you mean %s?", policy.AdmissionLabel)
	}
	if meant := v.meantBy(key); meant != "" {
		return meant
	}
	return "the only label is " + policy.AdmissionLabel
}

// meantBy says which annotation was probably meant; empty if none is close.
func (v *vocabulary) meantBy(key string) string {
	if meant, isElsewhere := v.elsewhere[key]; isElsewhere {
		return fmt.Sprintf("it is for %s; did you mean %s?", v.otherKind, meant)
	}
	if meant := settingMeant(strings.TrimPrefix(key, policy.Domain)); strings.HasPrefix(meant, "spec.") && v.hasSettings {
		return fmt.Sprintf("did you mean %s?", meant)
	}
	if key == policy.ModeBalanced {
		return "it is a value of " + policy.TopologyModeAnnotation
	}
	if meant := policy.Suggest(key, slices.Concat(v.annotations, v.besides)...); meant != "" {
		return fmt.Sprintf("did you mean %s?", meant)
	}
	if meant := policy.Suggest(key, slices.Sorted(maps.Keys(v.elsewhere))...); meant != "" {
		return fmt.Sprintf("did you mean %s?", v.elsewhere[meant])
	}
	return ""
}
