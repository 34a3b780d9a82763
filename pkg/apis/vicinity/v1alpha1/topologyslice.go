package v1alpha1

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// The names of the resource.
const (
	TopologySliceKind     = "TopologySlice"
	TopologySliceResource = "topologyslices"
)

// Limits of a slice. The schema in manifests/webhook/components/topology-slices sets them, too.
const (
	MaxNodes = 500
	MaxKeys  = 64
)

// TopologyLeaseName is the name of the publisher's Lease, in its own namespace.
const TopologyLeaseName = "vicinity-topology"

// TopologySlice describes some of a cluster's nodes.
type TopologySlice struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Keys are the labels that this slice covers: a node below without a value for one of them does not have the label.
	// The slice has no information about other labels.
	Keys []string `json:"keys"`
	// Nodes are the described nodes. If a node is briefly in several slices, the slice with the first name in sort order
	// counts.
	Nodes []NodeTopology `json:"nodes"`
}

// NodeTopology is the topology of a node.
type NodeTopology struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
}

// TopologySliceList is a list of TopologySlices.
type TopologySliceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []TopologySlice `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (s *TopologySlice) DeepCopyObject() runtime.Object { return s.DeepCopy() }

// DeepCopy returns a deep copy.
func (s *TopologySlice) DeepCopy() *TopologySlice {
	copied := &TopologySlice{TypeMeta: s.TypeMeta, ObjectMeta: *s.ObjectMeta.DeepCopy()}
	copied.Keys = append([]string(nil), s.Keys...)
	for _, node := range s.Nodes {
		copied.Nodes = append(copied.Nodes, node.deepCopy())
	}
	return copied
}

func (n NodeTopology) deepCopy() NodeTopology {
	return NodeTopology{Name: n.Name, Labels: maps.Clone(n.Labels)}
}

// DeepCopyObject implements runtime.Object.
func (l *TopologySliceList) DeepCopyObject() runtime.Object {
	copied := &TopologySliceList{TypeMeta: l.TypeMeta, ListMeta: *l.DeepCopy()}
	for i := range l.Items {
		copied.Items = append(copied.Items, *l.Items[i].DeepCopy())
	}
	return copied
}
