package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/manifest"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// The required type of the document.
const (
	APIVersion = "vicinity.dev/v1alpha1"
	Kind       = "TopologyAdmissionConfiguration"
)

// Default returns the settings for a cluster without a file, the same as for an empty document.
func Default() *rules.Settings {
	return &rules.Settings{ExcludedNamespaces: []string{"kube-system"}}
}

// Parse parses the text of a file. Errors begin with name.
func Parse(name string, text []byte) (*rules.Settings, error) {
	wantType := manifest.Type{APIVersion: APIVersion, Kind: Kind}
	var first *manifest.Part
	for part := range manifest.Parts(manifest.FormatOfText(name, text), text, wantType) {
		errorAt := func(field, format string, args ...any) error {
			return problem{part.LineOf(field), fmt.Sprintf(format, args...)}.errorIn(name)
		}
		switch fault := part.Fault; {
		case fault != nil && fault.Line > 0:
			return nil, problem{fault.Line, "invalid YAML: " + fault.Reason}.errorIn(name)
		case first != nil:
			return nil, errorAt("", "a second document; only one is allowed")
		case part.Type.Kind == "ConfigMap":
			return nil, errorAt("kind",
				"kind: this is a ConfigMap; use the text under its key config.yaml, as in a pod that mounts it")
		case part.Type != wantType:
			return nil, errorAt("kind", "got apiVersion %q, kind %q; want apiVersion %q, kind %q",
				part.Type.APIVersion, part.Type.Kind, APIVersion, Kind)
		case fault != nil:
			return nil, errorAt(fault.Field, "%s: %s", fault.Field, fault.Reason)
		}
		first = &part
	}
	if first == nil {
		return nil, problem{1, "the file is empty"}.errorIn(name)
	}
	return decode(name, first)
}

// problem is one error in the file.
type problem struct {
	line int
	text string
}

func (p problem) errorIn(file string) error {
	return fmt.Errorf("%s:%d: %s", file, p.line, sanitize.Truncate(p.text))
}

// decode parses the document of a file. The error contains all problems, in the order of their lines.
func decode(name string, part *manifest.Part) (*rules.Settings, error) {
	var doc document
	var problems []problem
	hasDecodeError := map[int]bool{} // by line: the value there could not be decoded
	for _, fault := range part.DecodeAsClient(&doc) {
		line, reason := part.LineOf(fault.Field), fault.Reason
		if fault.IsForeign { // an unknown field without a suggestion
			reason = manifest.UnknownField
		}
		problems, hasDecodeError[line] = append(problems, problem{line, fault.Field + ": " + reason}), true
	}
	settings, invalidFields := doc.settings()
	for _, err := range invalidFields {
		if line := part.LineOf(err.Field); !hasDecodeError[line] {
			problems = append(problems, problem{line, err.Error()})
		}
	}
	slices.SortStableFunc(problems, func(a, b problem) int { return a.line - b.line })
	var errs []error
	for _, problem := range problems {
		errs = append(errs, problem.errorIn(name))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return settings, nil
}

// document is the schema of the file. A null field counts as absent.
type document struct {
	APIVersion         string         `json:"apiVersion"`
	Kind               string         `json:"kind"`
	Strict             bool           `json:"strict"`
	Rules              map[string]any `json:"rules"`
	Defaults           defaults       `json:"defaults"`
	ExcludedNamespaces *[]string      `json:"excludedNamespaces"`
	ProxyName          string         `json:"proxyName"`
	DNSByTopology      bool           `json:"dnsByTopology"`
}

// defaults are the default for Services without a topology setting, at most one, and when it applies.
type defaults struct {
	TopologyMode        *string `json:"topologyMode"`
	TrafficDistribution *string `json:"trafficDistribution"`
	TopologyKeys        *string `json:"topologyKeys"`
	OnUpdate            bool    `json:"onUpdate"`
	WithSessionAffinity bool    `json:"withSessionAffinity"`
}

// settings returns the settings in a document, and its errors.
func (d *document) settings() (*rules.Settings, field.ErrorList) {
	settings := Default()
	settings.Strict, settings.ProxyName, settings.DNSByTopology = d.Strict, d.ProxyName, d.DNSByTopology
	settings.DefaultOnUpdate, settings.DefaultWithAffinity = d.Defaults.OnUpdate, d.Defaults.WithSessionAffinity
	allErrs := invalid(field.NewPath("proxyName"), d.ProxyName, validation.IsValidLabelValue(d.ProxyName))
	if d.ExcludedNamespaces != nil {
		settings.ExcludedNamespaces = *d.ExcludedNamespaces
	}
	for i, name := range settings.ExcludedNamespaces {
		allErrs = append(allErrs, invalid(field.NewPath("excludedNamespaces").Index(i), name, validation.IsDNS1123Label(name))...)
	}
	var errs field.ErrorList
	settings.Default, errs = d.Defaults.toDefault()
	allErrs = append(allErrs, errs...)
	settings.Actions, errs = actions(d.Rules)
	return settings, append(allErrs, errs...)
}

// toDefault returns the configured default; nil if there is none.
func (d *defaults) toDefault() (result *rules.Default, allErrs field.ErrorList) {
	var firstPath *field.Path
	for _, candidate := range [...]struct {
		name    string
		setting rules.Setting
		value   *string
	}{
		{"topologyMode", rules.TopologyMode, d.TopologyMode},
		{"trafficDistribution", rules.TrafficDistribution, d.TrafficDistribution},
		{"topologyKeys", rules.TopologyKeys, d.TopologyKeys},
	} {
		path := field.NewPath("defaults", candidate.name)
		switch {
		case candidate.value == nil:
			continue
		case firstPath != nil:
			allErrs = append(allErrs, field.Forbidden(path, fmt.Sprintf("only one default is allowed, and %s is set", firstPath)))
			continue
		}
		firstPath, result = path, &rules.Default{Setting: candidate.setting, Value: *candidate.value}
		values := candidate.setting.Values()
		switch err := result.Check(); {
		case err != nil && values != nil:
			allErrs = append(allErrs, notOneOf(path, *candidate.value, values))
		case err != nil:
			allErrs = append(allErrs, invalid(path, *candidate.value, []string{err.Error()})...)
		}
	}
	return result, allErrs
}

// actions returns the actions for violations of single rules.
func actions(configured map[string]any) (map[rules.ID]rules.Action, field.ErrorList) {
	result := map[rules.ID]rules.Action{}
	var allErrs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		path, value := field.NewPath("rules", name), configured[name]
		if reason := unknownRuleError(name); reason != "" {
			allErrs = append(allErrs, notSupported(path, name, reason))
			continue
		}
		text, isText := value.(string)
		if value == false { // YAML 1.1 parses off as false
			text, isText = string(rules.Off), true
		}
		if values := []string{string(rules.Deny), string(rules.Warn), string(rules.Off)}; !isText || !slices.Contains(values, text) {
			allErrs = append(allErrs, notOneOf(path, text, values))
		}
		result[rules.ID(name)] = rules.Action(text)
	}
	return result, allErrs
}

// unknownRuleError returns why no action can be set for a rule of that name; empty if it can.
func unknownRuleError(name string) string {
	rule, exists := rules.RuleOf(rules.ID(name))
	switch {
	case exists && (rule.Kind == "Service" || rule.Kind == "Namespace"):
		return ""
	case exists:
		return fmt.Sprintf("the webhook does not review %ss; configure this rule in its policy in manifests/webhook-cel", rule.Kind)
	}
	var names []string
	for _, rule := range rules.Rules() {
		names = append(names, string(rule.ID))
	}
	return "there is no such rule" + suggestion(name, names)
}

// suggestion returns the end of a sentence that suggests the most similar known word, if one is close.
func suggestion(value string, known []string) string {
	if closest := policy.Suggest(value, known...); closest != "" {
		return fmt.Sprintf("; did you mean %s?", closest)
	}
	return ""
}

func notOneOf(path *field.Path, value string, values []string) *field.Error {
	return notSupported(path, value, "must be one of: "+strings.Join(values, ", ")+suggestion(value, values))
}

func notSupported(path *field.Path, value, detail string) *field.Error {
	return &field.Error{Type: field.ErrorTypeNotSupported, Field: path.String(), BadValue: truncateValue(value), Detail: detail}
}

// invalid returns an error if there are reasons.
func invalid(path *field.Path, value string, reasons []string) field.ErrorList {
	if len(reasons) == 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, truncateValue(value), strings.Join(reasons, "; "))}
}

// truncateValue truncates a value for a message.
func truncateValue(value string) string {
	const maxBytes = 64
	return rules.Cut(value, maxBytes)
}
