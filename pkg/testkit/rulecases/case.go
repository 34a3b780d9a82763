package rulecases

import (
	"embed"
	"encoding/json"
	"io/fs"
	"testing"

	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// Case is a request and its outcome.
type Case struct {
	// Name says in a sentence what the case shows. No two cases have the same.
	Name string `json:"name"`
	// Object is a Service, Namespace, EndpointSlice or Node as JSON decodes it, with apiVersion and kind. Unless
	// APIServer says otherwise, a kube-apiserver 1.36 without admission takes it. In a file it may leave out what the API
	// server fills in; see Service.
	Object map[string]any `json:"object"`
	// Old is what Object replaces. Without it Object is created.
	Old map[string]any `json:"old,omitempty"`
	// Nodes are the labels of the cluster's Nodes; nil if nothing is known about them.
	Nodes []map[string]string `json:"nodes,omitempty"`
	// Services are the names of all Services of some Namespaces; of others nothing is known.
	Services map[string][]string `json:"services,omitempty"`
	// NoDemand: nobody publishes demand in the cluster.
	NoDemand bool `json:"noDemand,omitempty"`
	// Settings are those of the webhook. The policies have none, so a case with settings other than the default for
	// Services is not for them.
	Settings *Settings `json:"settings,omitempty"`

	// Want is what is found, in the order of rules.Judgement: what is denied, then what is warned of. A policy reports a
	// rule once, however often an object breaks it.
	Want []Want `json:"want,omitempty"`
	// Twin is why CEL cannot express the case. The policies then admit it without a warning, and give what the
	// Namespace says. Empty if they do what Want and Default say.
	Twin string `json:"twin,omitempty"`
	// APIServer is why a real API server never asks about this case; empty if it does.
	APIServer string `json:"apiserver,omitempty"`

	// Namespace is what is known of the Service's Namespace, in a case about defaults.
	Namespace *Namespace `json:"namespace,omitempty"`
	// Default is what the Service is given. Without it the case is not about defaults.
	Default *Default `json:"default,omitempty"`
}

// Want is a violation.
type Want struct {
	Rule   rules.ID     `json:"rule"`
	Action rules.Action `json:"action"`
	Path   string       `json:"path"`
}

// Settings are rules.Settings as a case writes them.
type Settings struct {
	Actions            map[rules.ID]rules.Action `json:"actions,omitempty"`
	Strict             bool                      `json:"strict,omitempty"`
	ProxyName          string                    `json:"proxyName,omitempty"`
	DNSByTopology      bool                      `json:"dnsByTopology,omitempty"`
	Default            *Setting                  `json:"default,omitempty"`
	OnUpdate           bool                      `json:"onUpdate,omitempty"`
	WithAffinity       bool                      `json:"withSessionAffinity,omitempty"`
	ExcludedNamespaces []string                  `json:"excludedNamespaces,omitempty"`
}

// Setting is a default of the cluster.
type Setting struct {
	Setting rules.Setting `json:"setting"`
	Value   string        `json:"value"`
}

// Namespace is what is known about the Namespace of a Service. An absent one is not known. One with mistakes was stored
// before there was a webhook.
type Namespace struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Default is what a Service is given and by whom; nothing if Setting is empty.
type Default struct {
	Setting rules.Setting       `json:"setting,omitempty"`
	Value   string              `json:"value,omitempty"`
	Source  rules.DefaultSource `json:"source"`
	// Reason is a part of the reason why nothing is given.
	Reason string `json:"reason,omitempty"`
}

//go:embed cases/*.yaml
var files embed.FS

// Cases reads every case, in the order of the files and of each list. A case that is not understood in full fails the
// test.
func Cases(t testing.TB) []Case {
	t.Helper()
	names, err := fs.Glob(files, "cases/*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatalf("there are no cases: %v", err)
	}
	var all []Case
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var cases []Case
		if err := yaml.UnmarshalStrict(text, &cases); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, cases...)
	}
	return all
}

// Kind is that of the object.
func (c Case) Kind() string {
	kind, _ := c.Object["kind"].(string)
	return kind
}

// Service is an object of kind Service as a webhook sees it: with the defaults that the API server fills in before it
// asks.
func Service(t testing.TB, object map[string]any) *rules.Service {
	t.Helper()
	if object == nil {
		return nil
	}
	service := decode[rules.Service](t, object)
	spec := &service.Spec
	spec.Type = orElse(spec.Type, "ClusterIP")
	spec.SessionAffinity = orElse(spec.SessionAffinity, "None")
	if spec.Type != "ExternalName" {
		spec.InternalTrafficPolicy = orElse(spec.InternalTrafficPolicy, "Cluster")
	}
	if spec.Type == "NodePort" || spec.Type == "LoadBalancer" {
		spec.ExternalTrafficPolicy = orElse(spec.ExternalTrafficPolicy, "Cluster")
	}
	return service
}

// NamespaceOf is an object of kind Namespace.
func NamespaceOf(t testing.TB, object map[string]any) *rules.Namespace {
	t.Helper()
	if object == nil {
		return nil
	}
	return decode[rules.Namespace](t, object)
}

// Facts are what a case knows about the cluster.
func (c Case) Facts(t testing.TB) rules.Facts {
	t.Helper()
	facts := rules.Facts{Kubernetes: version.MajorMinor(1, 36), NoDemand: c.NoDemand}
	if c.Services != nil {
		facts.Services = serviceNames(c.Services)
	}
	if c.Nodes == nil {
		return facts
	}
	nodes := rules.NewNodeLabels()
	for i, labels := range c.Nodes {
		nodes.Put("node-"+string(rune('a'+i)), labels)
	}
	facts.Nodes = nodes
	return facts
}

// OwnNamespace stands in a case for the Namespace into which its object is put.
const OwnNamespace = "own-namespace"

// serviceNames are the Services of a case.
type serviceNames map[string][]string

// Names returns those of a Namespace, if it is among those of the case.
func (s serviceNames) Names(namespace string) (names []string, known bool) {
	names, known = s[namespace]
	return names, known
}

// Admission is the settings of the webhook.
func (s *Settings) Admission() *rules.Settings {
	if s == nil {
		return &rules.Settings{}
	}
	settings := &rules.Settings{
		Actions: s.Actions, Strict: s.Strict, ProxyName: s.ProxyName, DNSByTopology: s.DNSByTopology,
		DefaultOnUpdate: s.OnUpdate, DefaultWithAffinity: s.WithAffinity, ExcludedNamespaces: s.ExcludedNamespaces,
	}
	if s.Default != nil {
		settings.Default = &rules.Default{Setting: s.Default.Setting, Value: s.Default.Value}
	}
	return settings
}

// Defaults is what is known of the Namespace.
func (n *Namespace) Defaults() rules.NamespaceDefaults {
	if n == nil {
		return rules.NamespaceDefaults{}
	}
	return rules.NamespaceDefaults{IsLoaded: true, Labels: n.Labels, Annotations: n.Annotations}
}

func decode[T any](t testing.TB, object map[string]any) *T {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	decoded := new(T)
	if err := json.Unmarshal(text, decoded); err != nil {
		t.Fatalf("decoding %s: %v", text, err)
	}
	return decoded
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
