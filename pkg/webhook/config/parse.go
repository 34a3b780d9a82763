package config

import (
	"fmt"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// What a file must say that it is.
const (
	APIVersion = "vicinity.dev/v1alpha1"
	Kind       = "TopologyAdmissionConfiguration"
)

// Default returns the settings without a file, which are those of a file that says nothing.
func Default() *rules.Settings {
	return &rules.Settings{ExcludedNamespaces: []string{"kube-system"}}
}

// Parse reads the text of a file. The name is what errors call it.
func Parse(name string, text []byte) (*rules.Settings, error) {
	r := reader{file: name}
	document := r.document(text)
	if document == nil || !r.isOurs(document) {
		return nil, r.err()
	}
	settings := Default()
	r.fields(document, nil, append(typeFields(), settingFields(&r, settings)...))
	if err := r.err(); err != nil {
		return nil, err
	}
	return settings, nil
}

// typeFields say what the document is, and have been read already.
func typeFields() []member {
	return []member{{name: "apiVersion"}, {name: "kind"}}
}

// settingFields are the fields of the document that say something.
func settingFields(r *reader, settings *rules.Settings) []member {
	return []member{
		{name: "strict", read: r.boolInto(&settings.Strict)},
		{name: "rules", read: func(at *field.Path, value *yaml.Node) { settings.Actions = r.actions(at, value) }},
		{name: "defaults", read: func(at *field.Path, value *yaml.Node) { r.defaults(at, value, settings) }, within: []string{
			topologyMode, trafficDistribution, topologyKeys, "onUpdate", "withSessionAffinity",
		}},
		{name: "excludedNamespaces", read: func(at *field.Path, value *yaml.Node) {
			settings.ExcludedNamespaces = r.texts(at, value, validation.IsDNS1123Label)
		}},
		{name: "proxyName", read: func(at *field.Path, value *yaml.Node) {
			settings.ProxyName = r.text(at, value, validation.IsValidLabelValue)
		}},
		{name: "dnsByTopology", read: r.boolInto(&settings.DNSByTopology)},
	}
}

// isOurs refuses a document of another type, before anything in it is reported as a mistake. It recognizes types that
// people often confuse with this one.
func (r *reader) isOurs(document *yaml.Node) bool {
	if document.Kind != yaml.MappingNode {
		r.wrong(document, "must hold apiVersion, kind and settings, not %s", kindOf(document))
		return false
	}
	kind := valueOf(document, "kind")
	if kind != nil && kind.Value == "ConfigMap" {
		r.wrong(kind, "kind: this is a ConfigMap; what is needed is the text under its key config.yaml, as a pod sees it that mounts it")
		return false
	}
	r.mustBe(document, "apiVersion", APIVersion)
	r.mustBe(document, "kind", Kind)
	return len(r.problems) == 0
}

// mustBe checks a field that has only one right value.
func (r *reader) mustBe(document *yaml.Node, name, want string) {
	value, at := valueOf(document, name), field.NewPath(name)
	switch {
	case value == nil:
		r.refuse(document, field.Required(at, fmt.Sprintf("must be %q", want)))
	case value.Value != want || value.Kind != yaml.ScalarNode:
		r.refuse(value, field.NotSupported(at, short(value.Value), []string{want}))
	}
}
