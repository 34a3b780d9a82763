package servicedemand

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The names of the resource in the API.
const (
	Kind     = "ServiceDemand"
	Resource = "servicedemands"
)

// Group is that of the resource, with the version that is served.
var Group = schema.GroupVersion{Group: "vicinity.dev", Version: "v1alpha1"}

// Limits of an object that the schema in manifests/webhook/components/demand sets, too.
const (
	// MaxZones is large enough for hundreds of sites that are a zone each.
	MaxZones = 512
	// PPM is the most that all zones may ask together.
	PPM = 1_000_000
)

// The Lease of the publisher, in its own namespace, and how long the published objects count after its last renewal. An
// hour is better than no demand in all shapes of a cluster that were simulated, with a load that follows day and night;
// two are not.
const (
	LeaseName = "vicinity-demand"
	FreshFor  = time.Hour
	// FreshForText is GoodFor in the middle of a sentence. Manifests and documents say it, too: a test compares them.
	FreshForText = "an hour"
)

// ServiceDemand is the demand for the Service that has its name.
type ServiceDemand struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Zones are what the nodes of each zone ask together. A zone that is missing asks nothing.
	Zones []Zone `json:"zones"`
	// NodesReporting of NodesAll have reported their counts.
	NodesReporting int32 `json:"nodesReporting"`
	NodesTotal     int32 `json:"nodesTotal"`
	// ConnectionsPerMinute are the new connections to the Service in the last minutes.
	ConnectionsPerMinute int64 `json:"connectionsPerMinute"`
	// ObservedAt is when this demand was determined.
	ObservedAt metav1.Time `json:"observedAt"`
}

// Zone is what the nodes of one zone ask; the zone of nodes without a zone is empty.
type Zone struct {
	Zone      string `json:"zone"`
	DemandPPM uint32 `json:"demandPPM"` // of Million
}

// List is a list of them, called ServiceDemandList in the API.
type List struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []ServiceDemand `json:"items"`
}

// DeepCopyObject is part of runtime.Object.
func (d *ServiceDemand) DeepCopyObject() runtime.Object { return d.DeepCopy() }

// DeepCopy returns a copy that shares nothing.
func (d *ServiceDemand) DeepCopy() *ServiceDemand {
	copied := *d
	copied.ObjectMeta = *d.ObjectMeta.DeepCopy()
	copied.Zones = append([]Zone(nil), d.Zones...)
	return &copied
}

// DeepCopyObject is part of runtime.Object.
func (l *List) DeepCopyObject() runtime.Object {
	copied := &List{TypeMeta: l.TypeMeta, ListMeta: *l.DeepCopy()}
	for i := range l.Items {
		copied.Items = append(copied.Items, *l.Items[i].DeepCopy())
	}
	return copied
}

// AddToScheme makes the types known.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypeWithName(Group.WithKind(Kind), &ServiceDemand{})
	scheme.AddKnownTypeWithName(Group.WithKind(Kind+"List"), &List{})
	metav1.AddToGroupVersion(scheme, Group)
	return nil
}
