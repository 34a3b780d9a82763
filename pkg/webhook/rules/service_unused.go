package rules

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// effectiveSetting is a topology setting that has an effect. A mode of Disabled is not among them: a user would not miss it.
type effectiveSetting struct{ name, value string }

func (s *subject) settings() []effectiveSetting {
	var settings []effectiveSetting
	for _, key := range policy.DomainAnnotations {
		if value, present := s.annotation(key); present {
			settings = append(settings, effectiveSetting{keyName(key), value})
		}
	}
	for _, key := range policy.ModeAnnotations {
		value, present := s.Metadata.Annotations[key]
		if present && value != policy.ModeDisabled && value != policy.ModeDisabledLower {
			settings = append(settings, effectiveSetting{keyName(key), value})
		}
	}
	if value, present := s.distribution(); present {
		settings = append(settings, effectiveSetting{"trafficDistribution", value})
	}
	return settings
}

// settingsOfExternalName and settingsOfHeadless find topology settings of Services that no proxy serves.
func settingsOfExternalName(s *subject) []Violation {
	if !s.isExternalName() {
		return nil
	}
	return unusedViolation(field.NewPath("spec", "type"), s.Spec.Type, s.settings(), " on ExternalName Services; remove ")
}

func settingsOfHeadless(s *subject) []Violation {
	if !s.isHeadless() {
		return nil
	}
	path := field.NewPath("spec", "clusterIP")
	if s.isServedByDNS() {
		return unusedViolation(path, s.Spec.ClusterIP, s.settingsWithKeys(),
			" on headless Services, for which DNS reads topology keys alone; remove ")
	}
	return unusedViolation(path, s.Spec.ClusterIP, s.settings(), " on headless Services (DNS returns every endpoint); remove ")
}

// settingsWithKeys returns the settings that are not Vicinity's, and the demand source. With topology keys, a bound
// does apply, but the connections to the endpoints are not measured.
func (s *subject) settingsWithKeys() []effectiveSetting {
	return slices.DeleteFunc(s.settings(), func(setting effectiveSetting) bool {
		return setting.name != keyName(policy.DemandSourceAnnotation) &&
			slices.ContainsFunc(policy.DomainAnnotations, func(key string) bool { return setting.name == keyName(key) })
	})
}

// keysOfMembers finds keys on a Service through which the members of a StatefulSet find each other.
func keysOfMembers(s *subject) []Violation {
	if !s.isServedByDNS() || !s.Spec.PublishNotReadyAddresses {
		return nil
	}
	const detail = "members find each other by such a Service, and keys hide some of them; " +
		"give the keys to a second headless Service, for clients"
	return oneViolation(errorOf(field.ErrorTypeInvalid, field.NewPath("spec", "publishNotReadyAddresses"), "true", detail), "true", s.keysText)
}

// unusedViolation returns one violation for all settings that have no effect for the same reason. reason ends with the
// verb of the fix.
func unusedViolation(path *field.Path, value string, settings []effectiveSetting, reason string) []Violation {
	if len(settings) == 0 {
		return nil
	}
	detail := joinNames(settings) + plural(settings, " has no effect", " have no effect") + reason + plural(settings, "it", "them")
	return oneViolation(errorOf(field.ErrorTypeInvalid, path, value, detail), value, inputsOf(settings)...)
}

// joinNames joins the names of settings with commas and "and".
func joinNames(settings []effectiveSetting) string {
	names := make([]string, len(settings))
	for i, setting := range settings {
		names[i] = setting.name
	}
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

func plural(settings []effectiveSetting, one, many string) string {
	if len(settings) == 1 {
		return one
	}
	return many
}

func inputsOf(settings []effectiveSetting) []string {
	var inputs []string
	for _, setting := range settings {
		inputs = append(inputs, setting.name, setting.value)
	}
	return inputs
}

// hintsWithoutSelector finds settings that need hints on a Service for which no controller writes any. The
// EndpointSlice controller skips Services without a selector, and the controller that mirrors Endpoints sets no hints.
func hintsWithoutSelector(s *subject) []Violation {
	if len(s.Spec.Selector) > 0 || s.isExternalName() || s.isHeadless() {
		return nil
	}
	_, needsHints := s.distribution()
	needsHints = needsHints && !s.isBounded() // then hints are not read
	if !needsHints && !s.mode.IsAuto() {
		return nil
	}
	value, _ := s.distribution()
	const detail = "without one no controller sets EndpointSlice hints; set hints yourself, or remove the topology setting"
	return oneViolation(field.Required(field.NewPath("spec", "selector"), detail), "", value, s.mode.Annotation, s.mode.Value)
}

// settingsWithInternalLocal finds topology settings that internalTrafficPolicy: Local overrides. Some still apply to
// external clients.
func settingsWithInternalLocal(s *subject) []Violation {
	settings := s.settings()
	if len(settings) == 0 || s.Spec.InternalTrafficPolicy != localPolicy || s.isExternalName() || s.isHeadless() {
		return nil
	}
	remedy := "use trafficDistribution=PreferSameNode instead"
	if value, _ := s.distribution(); value == policy.PreferSameNode {
		remedy = "set Cluster"
	}
	detail := "Local overrides " + joinNames(settings) + " in-cluster; " + remedy
	return oneViolation(errorOf(field.ErrorTypeInvalid, field.NewPath("spec", "internalTrafficPolicy"), localPolicy, detail),
		localPolicy, inputsOf(settings)...)
}
