package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// The names of the resource.
const (
	ServiceDemandKind     = "ServiceDemand"
	ServiceDemandResource = "servicedemands"
)

// Limits of an object. The schema in manifests/webhook/components/demand sets them, too.
const (
	// MaxZones is large enough for hundreds of sites that are a zone each.
	MaxZones = 512
	// PPM is the maximum demand of all zones together.
	PPM = 1_000_000
)

// The Lease of the publisher, in its own namespace, and how long the published objects are used after its last renewal.
// With a load that follows day and night, an hour was better than no demand in all simulated shapes of a cluster; two
// hours were not.
const (
	DemandLeaseName = "vicinity-demand"
	DemandFreshFor  = time.Hour
	// DemandFreshForText is DemandFreshFor for the middle of a sentence. Manifests and documents contain it, too; a test
	// compares them.
	DemandFreshForText = "an hour"
)

// ServiceDemand is the demand for the Service with the same name.
type ServiceDemand struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Zones are the shares of demand of the nodes of each zone. A missing zone has no demand.
	Zones []ZoneDemand `json:"zones"`
	// EffectiveNodes is the number of nodes with equal demand that would be as concentrated as the nodes that connect
	// (Kish's effective sample size), rounded down to a power of two. 0 means that it is unknown.
	EffectiveNodes int32 `json:"effectiveNodes,omitempty"`
	// Averaged is set if the demand changed to and fro with the plans made for it: the shares are the mean of up to two
	// hours.
	Averaged bool `json:"averaged,omitempty"`
	// NodesReporting of NodesTotal nodes with a proxy have reported their counts.
	NodesReporting int32 `json:"nodesReporting"`
	NodesTotal     int32 `json:"nodesTotal"`
	// ConnectionsPerMinute is the rate of new connections to the Service in the last minutes.
	ConnectionsPerMinute int64 `json:"connectionsPerMinute"`
	// ObservedAt is the time of the measurement.
	ObservedAt metav1.Time `json:"observedAt"`
}

// ZoneDemand is the share of demand of the nodes of one zone. Zone is empty for nodes without a zone.
type ZoneDemand struct {
	Zone      string `json:"zone"`
	DemandPPM uint32 `json:"demandPPM"` // new connections, of PPM
	// OpenPPM is the share of open connections, of PPM. If it is 0 for all zones, they are distributed like new ones.
	OpenPPM uint32 `json:"openPPM,omitempty"`
	// Assumed is set if a proxy in the zone never reported: DemandPPM is at least the share of the assumed demand.
	Assumed bool `json:"assumed,omitempty"`
}

// ServiceDemandList is a list of ServiceDemands.
type ServiceDemandList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []ServiceDemand `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (d *ServiceDemand) DeepCopyObject() runtime.Object { return d.DeepCopy() }

// DeepCopy returns a deep copy.
func (d *ServiceDemand) DeepCopy() *ServiceDemand {
	copied := *d
	copied.ObjectMeta = *d.ObjectMeta.DeepCopy()
	copied.Zones = append([]ZoneDemand(nil), d.Zones...)
	return &copied
}

// DeepCopyObject implements runtime.Object.
func (l *ServiceDemandList) DeepCopyObject() runtime.Object {
	copied := &ServiceDemandList{TypeMeta: l.TypeMeta, ListMeta: *l.DeepCopy()}
	for i := range l.Items {
		copied.Items = append(copied.Items, *l.Items[i].DeepCopy())
	}
	return copied
}
