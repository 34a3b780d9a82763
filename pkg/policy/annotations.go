package policy

import "strings"

// Domain is the prefix of all labels and annotations of this project.
const Domain = "vicinity.dev/"

// TopologyKeysAnnotation is the annotation of a Service with its topology keys, as a comma-separated list.
const TopologyKeysAnnotation = Domain + "topology-keys"

// MaxLoadAnnotation is the annotation of a Service that bounds the load of its endpoints: a percentage of the mean,
// such as "120%". ClientsAnnotation is the comma-separated list of Services whose endpoints are the demand for which
// the bound is planned. DemandSourceAnnotation is the source of that demand: Measured.
const (
	MaxLoadAnnotation      = Domain + "max-load"
	ClientsAnnotation      = Domain + "clients"
	DemandSourceAnnotation = Domain + "demand-source"
)

// Annotation is an annotation of a Service that Parse reads. The parser, the messages about annotations without effect,
// the webhook's list of known annotations and the documents are all derived from its row in Annotations.
type Annotation struct {
	Name string
	// Description is its purpose, for the documents. Since is the first release that reads it.
	Description, Since string
	// IgnoredCode is the stable code of the finding that the annotation has no effect.
	IgnoredCode string
	// NamespaceAnnotation is the annotation that is probably meant if this one is set on a Namespace; empty if unknown.
	NamespaceAnnotation string
	// IsPreference is set if the annotation chooses preferred endpoints. The webhook then applies no default.
	IsPreference bool
	// IsGenericName is set if other programs may have annotations with similar names. It is then never suggested.
	IsGenericName bool
	// IsDeprecated is set if the annotation is never recommended.
	IsDeprecated bool
	// read is a pass of the parser. It returns false if the later passes must be skipped.
	read func(*parser) bool
}

// Annotations are all annotations, in the order in which they are read.
var Annotations = [...]Annotation{
	{
		Name: TopologyKeysAnnotation, IgnoredCode: "TopologyKeysIgnored", Since: "v0.1.0", read: (*parser).readKeys,
		NamespaceAnnotation: DefaultTopologyKeysAnnotation, IsPreference: true,
		Description: "Node label keys in order of preference: connections go to the endpoints that match the first key that any endpoint matches",
	},
	{
		Name: TopologyModeAnnotation, IgnoredCode: "TopologyModeIgnored", Since: "v0.1.0", read: (*parser).readMode,
		IsPreference: true,
		Description:  "`Auto`, hints as Kubernetes computes them; or `" + ModeBalanced + "`, as near as a load bound allows",
	},
	{
		Name: TopologyAwareHintsAnnotation, IgnoredCode: "TopologyModeIgnored", Since: "v0.1.0", read: (*parser).readHints,
		IsPreference: true, IsDeprecated: true,
		Description: "the older name of `" + TopologyModeAnnotation + "`: it takes precedence if a Service has both",
	},
	{
		Name: MaxLoadAnnotation, IgnoredCode: "LoadBoundIgnored", Since: "v0.1.0", read: (*parser).readBound,
		NamespaceAnnotation: DefaultTopologyModeAnnotation + "=" + ModeBalanced,
		Description:         "the load bound: the maximum expected load of an endpoint, in percent of the mean, if others can accept the rest",
	},
	{
		Name: ClientsAnnotation, IgnoredCode: "ClientsIgnored", Since: "v0.1.0", read: (*parser).readClients, IsGenericName: true,
		Description: "the Services whose endpoints are the clients: a load bound is planned for the number of them on each Node",
	},
	{
		Name: DemandSourceAnnotation, IgnoredCode: "DemandSourceIgnored", Since: "v0.1.0", read: (*parser).readDemandSource, IsGenericName: true,
		Description: "`" + Measured + "`: a load bound is planned with measured demand; until a measurement exists, as without this annotation",
	},
}

// The names of the annotations. DomainAnnotations are those in our domain, which only this proxy reads; ModeAnnotations
// are those of Kubernetes.
var (
	DomainAnnotations = NamesOf(func(a Annotation) bool { return strings.HasPrefix(a.Name, Domain) })
	ModeAnnotations   = NamesOf(func(a Annotation) bool { return !strings.HasPrefix(a.Name, Domain) })
)

// NamesOf returns the names of the annotations for which match returns true.
func NamesOf(match func(Annotation) bool) []string {
	var names []string
	for _, annotation := range Annotations {
		if match(annotation) {
			names = append(names, annotation.Name)
		}
	}
	return names
}

// AdmissionLabel with the value AdmissionDisabled, on a Service or Namespace, exempts topology settings from validation
// and defaulting. Other values have no effect.
const (
	AdmissionLabel    = Domain + "admission"
	AdmissionDisabled = "disabled"
)

// Annotations of a Namespace that are the topology settings of Services without any. A Namespace has at most one of
// them.
const (
	DefaultTopologyModeAnnotation        = Domain + "default-topology-mode"
	DefaultTopologyKeysAnnotation        = Domain + "default-topology-keys"
	DefaultTrafficDistributionAnnotation = Domain + "default-traffic-distribution"
)

// NamespaceDefaults are these annotations, each with the Service setting for which it is the default.
var NamespaceDefaults = [...]struct{ Name, Of string }{
	{DefaultTopologyModeAnnotation, TopologyModeAnnotation},
	{DefaultTopologyKeysAnnotation, TopologyKeysAnnotation},
	{DefaultTrafficDistributionAnnotation, "spec.trafficDistribution"},
}

// NodeLabel is a label of this project on a Node, the counterpart of Annotation.
type NodeLabel struct {
	Name, Description, Since string
	// Check returns why a value is invalid. An invalid value counts as absent.
	Check func(value string) error
}

// NodeLabels are all Node labels.
var NodeLabels = [...]NodeLabel{
	{
		Name: EvacuateLabel, Since: "v0.1.0", Check: checkEvacuate,
		Description: "`true`, or when the evacuation ends, in UTC: its endpoints get no new connections while others can serve in their place",
	},
	{
		Name: DemandLabel, Since: "v0.1.0", Check: checkDemand,
		Description: "0 to 100: the demand of the Node relative to other Nodes, for load bounds",
	},
}

// None is the value of a Namespace default that disables defaults there, whatever the cluster's default is.
const None = "None"

// Values of spec.trafficDistribution. PreferClose is the former name of PreferSameZone.
const (
	PreferSameZone = "PreferSameZone"
	PreferSameNode = "PreferSameNode"
	PreferClose    = "PreferClose"
)

// ServiceProxyNameLabel assigns a Service to the proxy with that name (KEP-2447).
const ServiceProxyNameLabel = "service.kubernetes.io/service-proxy-name"

// IsHandledBy reports whether a Service with these labels belongs to the proxy with that name. The proxy without a
// name, which is "", handles Services without the label. A Service with an empty label has no proxy.
func IsHandledBy(labels map[string]string, proxyName string) bool {
	name, labelled := labels[ServiceProxyNameLabel]
	return name == proxyName && labelled == (proxyName != "")
}

// The annotations that enable topology aware routing in Kubernetes. The second one is deprecated, but still works.
const (
	TopologyModeAnnotation       = "service.kubernetes.io/topology-mode"
	TopologyAwareHintsAnnotation = "service.kubernetes.io/topology-aware-hints"
)

// Values of these annotations. Kubernetes has documented both spellings at different times.
const (
	ModeAuto          = "Auto"
	ModeAutoLower     = "auto"
	ModeDisabled      = "Disabled"
	ModeDisabledLower = "disabled"
)

// ModeBalanced is this project's value of these annotations: as near as a bound permits. Kubernetes reserves values
// with a domain for other implementations and treats them as Disabled.
const ModeBalanced = Domain + "balanced"

// ModeSetting is the annotation that controls topology aware routing.
type ModeSetting struct {
	Annotation string // TopologyModeAnnotation or TopologyAwareHintsAnnotation; empty if neither is set
	Value      string
}

// ModeOf returns the annotation that applies: the deprecated one if a Service has both (hintsEnabled in
// k8s.io/endpointslice/utils.go).
func ModeOf(annotations map[string]string) ModeSetting {
	for _, name := range [...]string{TopologyAwareHintsAnnotation, TopologyModeAnnotation} {
		if value, present := annotations[name]; present {
			return ModeSetting{Annotation: name, Value: value}
		}
	}
	return ModeSetting{}
}

// IsAuto reports whether the EndpointSlice controller computes hints. It accepts these two spellings, and treats every
// other value, whatever its case and spaces, as Disabled.
func (m ModeSetting) IsAuto() bool {
	return m.Annotation != "" && (m.Value == ModeAuto || m.Value == ModeAutoLower)
}

// IsBalanced reports whether the mode requests a bound.
func (m ModeSetting) IsBalanced() bool { return m.Value == ModeBalanced }
