package rules

// Default is a topology setting for Services that have none.
type Default struct {
	Setting Setting
	Value   string
}

// Setting is a kind of topology setting. Its text is used in audit annotations and metrics.
type Setting string

// The settings that can be a default.
const (
	TopologyMode        Setting = "topology-mode"        // annotation service.kubernetes.io/topology-mode: Auto, Disabled, or ModeBalanced
	TrafficDistribution Setting = "traffic-distribution" // spec.trafficDistribution: PreferSameZone, PreferSameNode
	TopologyKeys        Setting = "topology-keys"        // annotation vicinity.dev/topology-keys
)

// DefaultSource is the source of the decision about a Service's default.
type DefaultSource string

// The sources, the most specific first. The first one with a setting decides, even if the setting is "none".
const (
	FromService   DefaultSource = "service"   // the Service has its own setting, or is being deleted
	FromOptOut    DefaultSource = "opt_out"   // the label vicinity.dev/admission: disabled, on the Service or its Namespace
	FromNamespace DefaultSource = "namespace" // an annotation of the Namespace
	FromCluster   DefaultSource = "cluster"   // Settings.Default
	FromNone      DefaultSource = "none"
)

// DefaultDecision is the decision about a Service's default, and its reason.
type DefaultDecision struct {
	// Add is the default to add; nil for none.
	Add *Default
	// Source is the source that decided, even if nothing is added.
	Source DefaultSource
	// Reason is why nothing is added although a source has a default, or which Service setting takes precedence; a few
	// words, such as "headless Services have no proxy". Empty if Add is set.
	Reason string
}

// NamespaceDefaults are the labels and annotations of a Service's Namespace.
type NamespaceDefaults struct {
	// IsLoaded reports whether they are known. Nothing is added until they are.
	IsLoaded    bool
	Labels      map[string]string
	Annotations map[string]string
}

// DefaultSources returns every source, so that metrics can count them from the start.
func DefaultSources() []DefaultSource {
	return []DefaultSource{FromService, FromOptOut, FromNamespace, FromCluster, FromNone}
}

// DefaultSettings returns every setting that can be a default.
func DefaultSettings() []Setting { return []Setting{TopologyMode, TrafficDistribution, TopologyKeys} }
