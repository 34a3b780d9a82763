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
	wanted := manifest.Type{APIVersion: APIVersion, Kind: Kind}
	var read *manifest.Part
	for part := range manifest.Parts(manifest.FormatOfText(name, text), text, wanted) {
		wrong := func(field, format string, args ...any) error {
			return problem{part.LineOf(field), fmt.Sprintf(format, args...)}.in(name)
		}
		switch fault := part.Fault; {
		case fault != nil && fault.Line > 0:
			return nil, problem{fault.Line, "invalid YAML: " + fault.Reason}.in(name)
		case read != nil:
			return nil, wrong("", "a second document; only one is allowed")
		case part.Type.Kind == "ConfigMap":
			return nil, wrong("kind",
				"kind: this is a ConfigMap; use the text under its key config.yaml, as in a pod that mounts it")
		case part.Type != wanted:
			return nil, wrong("kind", "got apiVersion %q, kind %q; want apiVersion %q, kind %q",
				part.Type.APIVersion, part.Type.Kind, APIVersion, Kind)
		case fault != nil:
			return nil, wrong(fault.Field, "%s: %s", fault.Field, fault.Reason)
		}
		read = &part
	}
	if read == nil {
		return nil, problem{1, "the file is empty"}.in(name)
	}
	return decode(name, read)
}

// problem is one error in the file.
type problem struct {
	line int
	text string
}

func (p problem) in(file string) error {
	return fmt.Errorf("%s:%d: %s", file, p.line, sanitize.Truncate(p.text))
}

// decode parses the document of a file. The error contains all problems, in the order of their lines.
func decode(name string, part *manifest.Part) (*rules.Settings, error) {
	var read document
	var problems []problem
	isUnread := map[int]bool{} // by line: the value there could not be decoded
	for _, fault := range part.DecodeAsClient(&read) {
		line, reason := part.LineOf(fault.Field), fault.Reason
		if fault.IsForeign { // an unknown field without a suggestion
			reason = manifest.UnknownField
		}
		problems, isUnread[line] = append(problems, problem{line, fault.Field + ": " + reason}), true
	}
	settings, wrong := read.settings()
	for _, err := range wrong {
		if line := part.LineOf(err.Field); !isUnread[line] {
			problems = append(problems, problem{line, err.Error()})
		}
	}
	slices.SortStableFunc(problems, func(a, b problem) int { return a.line - b.line })
	var errs []error
	for _, problem := range problems {
		errs = append(errs, problem.in(name))
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
	wrong := invalid(field.NewPath("proxyName"), d.ProxyName, validation.IsValidLabelValue(d.ProxyName))
	if d.ExcludedNamespaces != nil {
		settings.ExcludedNamespaces = *d.ExcludedNamespaces
	}
	for i, name := range settings.ExcludedNamespaces {
		wrong = append(wrong, invalid(field.NewPath("excludedNamespaces").Index(i), name, validation.IsDNS1123Label(name))...)
	}
	var errs field.ErrorList
	settings.Default, errs = d.Defaults.chosen()
	wrong = append(wrong, errs...)
	settings.Actions, errs = actions(d.Rules)
	return settings, append(wrong, errs...)
}

// chosen returns the configured default; nil if there is none.
func (d *defaults) chosen() (chosen *rules.Default, wrong field.ErrorList) {
	var before *field.Path
	for _, one := range [...]struct {
		name    string
		setting rules.Setting
		value   *string
	}{
		{"topologyMode", rules.TopologyMode, d.TopologyMode},
		{"trafficDistribution", rules.TrafficDistribution, d.TrafficDistribution},
		{"topologyKeys", rules.TopologyKeys, d.TopologyKeys},
	} {
		at := field.NewPath("defaults", one.name)
		switch {
		case one.value == nil:
			continue
		case before != nil:
			wrong = append(wrong, field.Forbidden(at, fmt.Sprintf("only one default is allowed, and %s is set", before)))
			continue
		}
		before, chosen = at, &rules.Default{Setting: one.setting, Value: *one.value}
		words := one.setting.Values()
		switch err := chosen.Check(); {
		case err != nil && words != nil:
			wrong = append(wrong, unsupported(at, *one.value, words))
		case err != nil:
			wrong = append(wrong, invalid(at, *one.value, []string{err.Error()})...)
		}
	}
	return chosen, wrong
}

// actions returns the actions for violations of single rules.
func actions(written map[string]any) (map[rules.ID]rules.Action, field.ErrorList) {
	read := map[rules.ID]rules.Action{}
	var wrong field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(written)) {
		at, value := field.NewPath("rules", name), written[name]
		if why := unknownRuleError(name); why != "" {
			wrong = append(wrong, notSupported(at, name, why))
			continue
		}
		text, isText := value.(string)
		if value == false { // YAML 1.1 parses off as false
			text, isText = string(rules.Off), true
		}
		if words := []string{string(rules.Deny), string(rules.Warn), string(rules.Off)}; !isText || !slices.Contains(words, text) {
			wrong = append(wrong, unsupported(at, text, words))
		}
		read[rules.ID(name)] = rules.Action(text)
	}
	return read, wrong
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
func suggestion(word string, known []string) string {
	if meant := policy.Suggest(word, known...); meant != "" {
		return fmt.Sprintf("; did you mean %s?", meant)
	}
	return ""
}

func unsupported(at *field.Path, value string, words []string) *field.Error {
	return notSupported(at, value, "must be one of: "+strings.Join(words, ", ")+suggestion(value, words))
}

func notSupported(at *field.Path, value, detail string) *field.Error {
	return &field.Error{Type: field.ErrorTypeNotSupported, Field: at.String(), BadValue: short(value), Detail: detail}
}

// invalid returns an error if there are reasons.
func invalid(at *field.Path, value string, reasons []string) field.ErrorList {
	if len(reasons) == 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(at, short(value), strings.Join(reasons, "; "))}
}

// short truncates a value for a message.
func short(value string) string {
	const most = 64
	return rules.Cut(value, most)
}
