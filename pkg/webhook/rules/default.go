package rules

// Default is one topology setting for Services that have none.
type Default struct {
	Setting Setting
	Value   string
}

// Setting is a kind of topology setting. Its text is what audit annotations and metrics call it.
type Setting string

// The settings that can be a default.
const (
	TopologyMode        Setting = "topology-mode"        // annotation service.kubernetes.io/topology-mode: Auto, Disabled, or our own
	TrafficDistribution Setting = "traffic-distribution" // spec.trafficDistribution: PreferSameZone, PreferSameNode
	TopologyKeys        Setting = "topology-keys"        // annotation vicinity.dev/topology-keys
)

// DefaultSource is what decided about a Service's default.
type DefaultSource string

// The origins, the most specific first. The first one that says anything decides, also if it says "none".
const (
	FromService   DefaultSource = "service"   // the Service says something itself
	FromOptOut    DefaultSource = "opt_out"   // the label vicinity.dev/admission: disabled, on the Service or its Namespace
	FromNamespace DefaultSource = "namespace" // an annotation of the Namespace
	FromCluster   DefaultSource = "cluster"   // Settings.Default
	FromNone      DefaultSource = "none"
)

// DefaultDecision is what a Service is given, and why.
type DefaultDecision struct {
	// Add is what the Service is given; nil for nothing.
	Add *Default
	// Origin is who decided, also if it decided that nothing is added.
	Origin DefaultSource
	// Reason is why nothing is added although an origin has a default, or which Service setting stands in the way; a few
	// words, such as "headless Services have no proxy". Empty if Add is set.
	Reason string
}

// NamespaceDefaults is what is known of the Namespace of a Service.
type NamespaceDefaults struct {
	// IsLoaded: the labels and annotations are those of the Namespace. As long as they are not known, nothing is added.
	IsLoaded    bool
	Labels      map[string]string
	Annotations map[string]string
}

// DefaultSources returns every origin, so that metrics can count them from the start.
func DefaultSources() []DefaultSource {
	return []DefaultSource{FromService, FromOptOut, FromNamespace, FromCluster, FromNone}
}

// DefaultSettings are all there are.
func DefaultSettings() []Setting { return []Setting{TopologyMode, TrafficDistribution, TopologyKeys} }
