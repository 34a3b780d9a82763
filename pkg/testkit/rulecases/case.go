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

// Case is a request with its expected outcome.
type Case struct {
	// Name describes the case in a sentence. It is unique.
	Name string `json:"name"`
	// Object is a Service, Namespace, EndpointSlice or Node as JSON decodes it, with apiVersion and kind. A kube-apiserver
	// 1.36 without admission accepts it, unless APIServer is set. In a file it may omit the defaults of the API server;
	// see Service.
	Object map[string]any `json:"object"`
	// Old is the object that Object replaces. Without it Object is created.
	Old map[string]any `json:"old,omitempty"`
	// Nodes are the labels of the cluster's Nodes. nil means that they are unknown.
	Nodes []map[string]string `json:"nodes,omitempty"`
	// Services are the names of all Services of some Namespaces. Those of other Namespaces are unknown.
	Services map[string][]string `json:"services,omitempty"`
	// NoDemand is set if no demand is published in the cluster.
	NoDemand bool `json:"noDemand,omitempty"`
	// Settings are the settings of the webhook. Policies as shipped have none, so cases with settings do not apply to
	// them. With a proxy name or in strict mode, only cases with these settings do.
	Settings *Settings `json:"settings,omitempty"`

	// Want are the expected violations, in the order of rules.Result: denials, then warnings. A policy reports a rule
	// once, even if an object violates it several times.
	Want []Want `json:"want,omitempty"`
	// NotInCEL is the reason why CEL cannot express the case. The policies then admit it without a warning, and apply the
	// default of the Namespace. It is empty if they implement Want and Default.
	NotInCEL string `json:"notInCEL,omitempty"`
	// APIServer is the reason why a real API server never sends this request. It is empty if it does.
	APIServer string `json:"apiserver,omitempty"`

	// Namespace is the known state of the Service's Namespace, in a case about defaults.
	Namespace *Namespace `json:"namespace,omitempty"`
	// Default is the default that the Service gets. Without it the case is not about defaults.
	Default *Default `json:"default,omitempty"`
}

// Want is an expected violation.
type Want struct {
	Rule   rules.ID     `json:"rule"`
	Action rules.Action `json:"action"`
	Path   string       `json:"path"`
}

// Settings are rules.Settings in the format of a case.
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

// Namespace is the known state of a Service's Namespace. It is nil if the Namespace is unknown. A Namespace with
// invalid values was stored before the webhook was installed.
type Namespace struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Default is the default that a Service gets, with its source. An empty Setting means none.
type Default struct {
	Setting rules.Setting       `json:"setting,omitempty"`
	Value   string              `json:"value,omitempty"`
	Source  rules.DefaultSource `json:"source"`
	// Reason is a part of the reason why there is none.
	Reason string `json:"reason,omitempty"`
}

//go:embed cases/*.yaml
var files embed.FS

// Cases reads all cases, in the order of the files and of each list. A case with unknown fields fails the test.
func Cases(t testing.TB) []Case {
	t.Helper()
	names, err := fs.Glob(files, "cases/*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatalf("no cases: %v", err)
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

// Kind returns the kind of the object.
func (c Case) Kind() string {
	kind, _ := c.Object["kind"].(string)
	return kind
}

// Service returns a Service object as a webhook receives it: with the API server's defaults.
func Service(t testing.TB, object map[string]any) *rules.Service {
	t.Helper()
	if object == nil {
		return nil
	}
	service := decode[rules.Service](t, object)
	spec := &service.Spec
	spec.Type = withDefault(spec.Type, "ClusterIP")
	spec.SessionAffinity = withDefault(spec.SessionAffinity, "None")
	if spec.Type != "ExternalName" {
		spec.InternalTrafficPolicy = withDefault(spec.InternalTrafficPolicy, "Cluster")
	}
	if spec.Type == "NodePort" || spec.Type == "LoadBalancer" {
		spec.ExternalTrafficPolicy = withDefault(spec.ExternalTrafficPolicy, "Cluster")
	}
	return service
}

// NamespaceOf returns a Namespace object.
func NamespaceOf(t testing.TB, object map[string]any) *rules.Namespace {
	t.Helper()
	if object == nil {
		return nil
	}
	return decode[rules.Namespace](t, object)
}

// Facts returns the state of the cluster in the case.
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

// OwnNamespace is a placeholder in a case for the Namespace of its object.
const OwnNamespace = "own-namespace"

// serviceNames are the names of the Services of a case, by Namespace.
type serviceNames map[string][]string

// Names returns the names in a Namespace, and whether the case has that Namespace.
func (s serviceNames) Names(namespace string) (names []string, known bool) {
	names, known = s[namespace]
	return names, known
}

// ToRules returns the settings of the webhook.
func (s *Settings) ToRules() *rules.Settings {
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

// ToRules returns the defaults of the Namespace.
func (n *Namespace) ToRules() rules.NamespaceDefaults {
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
		t.Fatalf("decode %s: %v", text, err)
	}
	return decoded
}

func withDefault(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
