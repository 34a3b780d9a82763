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

// topologySettings are the annotations of Services that set a topology preference.
var topologySettings = policy.NamesOf(func(a policy.Annotation) bool { return a.IsPreference })

// typoCandidates are the settings for which typos are detected. As a label, max-load is an unknown key of vicinity.dev,
// and so is a typo of it with that domain.
var typoCandidates = append(policy.NamesOf(func(a policy.Annotation) bool { return !a.IsGenericName }), nonexistentAnnotation)

// nonexistentAnnotation is in tutorials, but no program reads it: trafficDistribution is a field, and was never an
// annotation.
const nonexistentAnnotation = "service.kubernetes.io/traffic-distribution"

// trafficFields are the fields of a Service's spec that control where its traffic goes.
var trafficFields = []string{"trafficDistribution", "internalTrafficPolicy", "externalTrafficPolicy"}

// settingNames maps normalized names to the settings to suggest. In an annotation or label without a domain, or with
// one of Kubernetes' own, such a name has no other meaning. (Istio has an annotation of its own.)
var settingNames = func() map[string]string {
	names := map[string]string{}
	for _, key := range topologySettings {
		names[normalizeName(key[strings.LastIndexByte(key, '/')+1:])] = "the annotation " + key
	}
	for _, name := range trafficFields {
		names[normalizeName(name)] = "spec." + name
	}
	return names
}()

// normalizeName returns a name in lower case without dashes and underscores.
func normalizeName(name string) string { return strings.ToLower(separators.Replace(name)) }

var separators = strings.NewReplacer("-", "", "_", "")

// suggestSetting returns the setting whose name a key has; empty if there is none.
func suggestSetting(key string) string {
	domain, name, hasDomain := strings.Cut(key, "/")
	if !hasDomain {
		domain, name = "", key
	}
	const maxLength = 32 // all names are shorter
	if len(name) > maxLength || domain != "" && !isKubernetes(domain) {
		return ""
	}
	return settingNames[normalizeName(name)]
}

// isKubernetes reports whether a domain is Kubernetes' own, or below one.
func isKubernetes(domain string) bool {
	return strings.HasSuffix("."+domain, ".kubernetes.io") || strings.HasSuffix("."+domain, ".k8s.io")
}

func isTopologySetting(key string) bool { return slices.Contains(topologySettings, key) }

// misplacedSettings finds topology settings in labels, and annotations with misspelt names. Names with the domain
// vicinity.dev have a rule that denies.
func misplacedSettings(s *subject) (violations []Violation) {
	for _, key := range slices.Sorted(maps.Keys(s.Metadata.Labels)) {
		switch {
		case isTopologySetting(key):
			violations = append(violations, misplacedViolation(label(key), s.Metadata.Labels[key],
				"has no effect as a label; make it an annotation"))
		case isMisspelt(key):
			violations = append(violations, misspeltViolation(label(key), key, s.Metadata.Labels[key], "unknown label; "))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.Metadata.Annotations)) {
		if isMisspelt(key) {
			violations = append(violations, misspeltViolation(annotation(key), key, s.Metadata.Annotations[key], "unknown annotation; "))
		}
	}
	return violations
}

func misplacedViolation(path *field.Path, value, detail string) Violation {
	return violationOf(errorOf(field.ErrorTypeInvalid, path, value, detail), "")
}

// misspeltViolation returns a violation of a key that is not one of the settings.
func misspeltViolation(path *field.Path, key, value, detail string) Violation {
	found := misplacedViolation(path, value, detail)
	found.advice = func() string { return misspeltAdvice(key) }
	return found
}

// isMisspelt reports whether a key is not one of the settings, but similar: `service*.kubernetes.io/topology*`, the
// name of a setting, or a typo of one.
func isMisspelt(key string) bool {
	if isTopologySetting(key) || strings.HasPrefix(key, policy.Domain) || len(key) > maxKey {
		return false
	}
	domain, name, _ := strings.Cut(key, "/")
	if strings.HasPrefix(domain, "service") && strings.HasSuffix(domain, ".kubernetes.io") && strings.HasPrefix(name, "topology") {
		return true
	}
	if suggestSetting(key) != "" {
		return true
	}
	return slices.ContainsFunc(typoCandidates, func(known string) bool { return policy.IsTypo(strings.ToLower(key), known) })
}

// misspeltAdvice returns a suggestion.
func misspeltAdvice(key string) string {
	if suggestion := suggestSetting(key); suggestion != "" {
		return fmt.Sprintf("did you mean %s?", suggestion)
	}
	switch suggestion := policy.Suggest(key, typoCandidates...); suggestion {
	case "":
		return "use the annotation " + policy.TopologyModeAnnotation + " or " + policy.TopologyKeysAnnotation
	case nonexistentAnnotation:
		return fmt.Sprintf("did you mean %s?", suggestSetting(suggestion))
	default:
		return fmt.Sprintf("did you mean the annotation %s?", suggestion)
	}
}

// lastAppliedAnnotation is the annotation in which kubectl stores the applied object, including fields that the API
// server dropped.
const lastAppliedAnnotation = "kubectl.kubernetes.io/last-applied-configuration"

// removedField finds spec.topologyKeys in a file, or in the applied object.
func removedField(s *subject) []Violation {
	keys := s.Spec.TopologyKeys
	if len(keys) == 0 {
		keys = appliedKeys(s.Metadata.Annotations[lastAppliedAnnotation])
	}
	if len(keys) == 0 {
		return nil
	}
	value := strings.Join(keys, ", ")
	const detail = "removed in Kubernetes 1.22, and dropped by API servers; use the annotation " + policy.TopologyKeysAnnotation
	return oneViolation(errorOf(field.ErrorTypeForbidden, field.NewPath("spec", "topologyKeys"), value, detail), value)
}

// appliedKeys returns spec.topologyKeys of the applied object; nil if the text is not a Service.
func appliedKeys(text string) []string {
	if !strings.Contains(text, "topologyKeys") { // most do not, and are not parsed
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

// openYurtKeysAnnotation is OpenYurt's annotation for topology keys.
const openYurtKeysAnnotation = "openyurt.io/topologyKeys"

// openYurtAnnotation finds OpenYurt's annotation without ours.
func openYurtAnnotation(s *subject) []Violation {
	value, present := s.Metadata.Annotations[openYurtKeysAnnotation]
	if !present || s.hasKeys {
		return nil
	}
	const detail = "is not read; use " + policy.TopologyKeysAnnotation
	return oneViolation(errorOf(field.ErrorTypeInvalid, annotation(openYurtKeysAnnotation), value, detail), value)
}
