package policy

import "strings"

// Domain begins every label and annotation of ours.
const Domain = "vicinity.dev/"

// TopologyKeysAnnotation is the annotation of a Service that holds its topology keys: a comma-separated list.
const TopologyKeysAnnotation = Domain + "topology-keys"

// MaxLoadAnnotation is the annotation of a Service that bounds the load of its endpoints: a percentage of the mean, such
// as "120%". ClientsAnnotation says whose endpoints are the demand that the bound is about: a comma-separated list of
// Services. DemandSourceAnnotation says where the demand is from: Measured.
const (
	MaxLoadAnnotation      = Domain + "max-load"
	ClientsAnnotation      = Domain + "clients"
	DemandSourceAnnotation = Domain + "demand-source"
)

// Annotation is an annotation of a Service that Parse reads. Everything about one is in its row of Annotations:
// the parser, the sentences where it has no effect, the webhook's vocabulary and the documents are made from it.
type Annotation struct {
	Name string
	// Description is what it is for, for the documents. Since is the release that reads it first.
	Description, Since string
	// Ignored is the stable code of the finding that it has no effect.
	Ignored string
	// OnNamespace is what an owner of a Namespace means by writing it there; empty if unknown.
	OnNamespace string
	// IsPreference: it says which endpoints are preferred, so that no default of the webhook does.
	IsPreference bool
	// IsGenericName: others may have annotations with similar names, so it is never suggested as what was meant.
	IsGenericName bool
	// IsDeprecated: it is never recommended.
	IsDeprecated bool
	// read is a pass of the parser. It returns false if what it found leaves nothing to read for the later passes.
	read func(*parser) bool
}

// Annotations are all of them, in the order in which they are read.
var Annotations = [...]Annotation{
	{
		Name: TopologyKeysAnnotation, Ignored: "TopologyKeysIgnored", Since: "v0.1.0", read: (*parser).readKeys,
		OnNamespace: DefaultTopologyKeysAnnotation, IsPreference: true,
		Description: "labels of Nodes, the nearest first: connections go to the endpoints that share the first label that any endpoint shares",
	},
	{
		Name: TopologyModeAnnotation, Ignored: "TopologyModeIgnored", Since: "v0.1.0", read: (*parser).readMode,
		IsPreference: true,
		Description:  "`Auto`, hints as Kubernetes computes them; or `" + ModeBalanced + "`, near as far as a bound on the load allows",
	},
	{
		Name: TopologyAwareHintsAnnotation, Ignored: "TopologyModeIgnored", Since: "v0.1.0", read: (*parser).readHints,
		IsPreference: true, IsDeprecated: true,
		Description: "the older name of `" + TopologyModeAnnotation + "`: it decides if a Service has both",
	},
	{
		Name: MaxLoadAnnotation, Ignored: "LoadBoundIgnored", Since: "v0.1.0", read: (*parser).readBound,
		OnNamespace: DefaultTopologyModeAnnotation + "=" + ModeBalanced,
		Description: "a percentage of the mean load that no endpoint should expect to exceed, as far as other endpoints can take the rest",
	},
	{
		Name: ClientsAnnotation, Ignored: "ClientsIgnored", Since: "v0.1.0", read: (*parser).readClients, IsGenericName: true,
		Description: "the Services whose endpoints are the clients, so that a bound knows the demand of each node",
	},
	{
		Name: DemandSourceAnnotation, Ignored: "DemandSourceIgnored", Since: "v0.1.0", read: (*parser).readDemandSource, IsGenericName: true,
		Description: "`" + Measured + "`: the demand that a bound is planned with is what was measured, and until then what it is without this",
	},
}

// The names of the annotations: OwnAnnotations are those in our domain, which only our proxy reads; ModeAnnotations are
// Kubernetes' own.
var (
	OwnAnnotations  = NamesOf(func(a Annotation) bool { return strings.HasPrefix(a.Name, Domain) })
	ModeAnnotations = NamesOf(func(a Annotation) bool { return !strings.HasPrefix(a.Name, Domain) })
)

// NamesOf returns the names of some annotations.
func NamesOf(wanted func(Annotation) bool) []string {
	var names []string
	for _, annotation := range Annotations {
		if wanted(annotation) {
			names = append(names, annotation.Name)
		}
	}
	return names
}

// AdmissionLabel on a Service or Namespace, with the value AdmissionDisabled, says that its topology settings are
// neither judged nor given defaults. Other values mean nothing.
const (
	AdmissionLabel    = Domain + "admission"
	AdmissionDisabled = "disabled"
)

// Annotations of a Namespace: the topology settings of its Services that have none. A Namespace has one of them at
// most.
const (
	DefaultTopologyModeAnnotation        = Domain + "default-topology-mode"
	DefaultTopologyKeysAnnotation        = Domain + "default-topology-keys"
	DefaultTrafficDistributionAnnotation = Domain + "default-traffic-distribution"
)

// NamespaceDefaults are these annotations, each with the setting of a Service that it is the default for.
var NamespaceDefaults = [...]struct{ Name, Of string }{
	{DefaultTopologyModeAnnotation, TopologyModeAnnotation},
	{DefaultTopologyKeysAnnotation, TopologyKeysAnnotation},
	{DefaultTrafficDistributionAnnotation, "spec.trafficDistribution"},
}

// NodeLabel is a label of ours on a Node, as Annotation is on a Service.
type NodeLabel struct {
	Name, Description, Since string
	// Check returns what is wrong with a value, which counts as absent then.
	Check func(value string) error
}

// NodeLabels are all of them.
var NodeLabels = [...]NodeLabel{
	{
		Name: EvacuateLabel, Since: "v0.1.0", Check: checkEvacuate,
		Description: "`true`, or the time in UTC until when: its endpoints get no new connections where others may serve in their place",
	},
	{
		Name: DemandLabel, Since: "v0.1.0", Check: checkDemand,
		Description: "0 to 100: the demand there, compared with other Nodes, for a bound on the load",
	},
}

// None is the value of a Namespace's default that means: no default here, whatever the cluster's default is.
const None = "None"

// Values of spec.trafficDistribution. PreferClose is what PreferSameZone was called first, and means the same.
const (
	PreferSameZone = "PreferSameZone"
	PreferSameNode = "PreferSameNode"
	PreferClose    = "PreferClose"
)

// ServiceProxyNameLabel hands a Service to the proxy of that name (KEP-2447).
const ServiceProxyNameLabel = "service.kubernetes.io/service-proxy-name"

// IsHandledBy reports whether a Service with these labels belongs to the proxy with that name. The proxy without a
// name, which is "", has those without the label; a Service whose label is empty has no proxy.
func IsHandledBy(labels map[string]string, proxyName string) bool {
	named, labelled := labels[ServiceProxyNameLabel]
	return named == proxyName && labelled == (proxyName != "")
}

// The annotations that turn Kubernetes' own topology aware routing on. The second one is deprecated, but still counts.
const (
	TopologyModeAnnotation       = "service.kubernetes.io/topology-mode"
	TopologyAwareHintsAnnotation = "service.kubernetes.io/topology-aware-hints"
)

// Values of these annotations. Kubernetes documents both spellings, at different times.
const (
	ModeAuto          = "Auto"
	ModeAutoLower     = "auto"
	ModeDisabled      = "Disabled"
	ModeDisabledLower = "disabled"
)

// ModeBalanced is our value of these annotations: near as far as a bound allows. Kubernetes leaves values with a domain
// to others, and treats them as Disabled.
const ModeBalanced = Domain + "balanced"

// ModeSetting is the annotation that decides about topology aware routing.
type ModeSetting struct {
	Annotation string // TopologyModeAnnotation or TopologyAwareHintsAnnotation; empty without either
	Value      string
}

// ModeOf returns the annotation that decides: the deprecated one, if a Service has both (hintsEnabled in
// k8s.io/endpointslice/utils.go).
func ModeOf(annotations map[string]string) ModeSetting {
	for _, name := range [...]string{TopologyAwareHintsAnnotation, TopologyModeAnnotation} {
		if value, present := annotations[name]; present {
			return ModeSetting{Annotation: name, Value: value}
		}
	}
	return ModeSetting{}
}

// IsAuto reports whether the EndpointSlice controller computes hints. It knows these two spellings; every other value,
// whatever its case and spaces, is treated as Disabled.
func (m ModeSetting) IsAuto() bool {
	return m.Annotation != "" && (m.Value == ModeAuto || m.Value == ModeAutoLower)
}

// IsBalanced reports whether the mode asks for a bound.
func (m ModeSetting) IsBalanced() bool { return m.Value == ModeBalanced }
