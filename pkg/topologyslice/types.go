package topologyslice

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The names of the resource in the API.
const (
	Kind     = "TopologySlice"
	Resource = "topologyslices"
)

// Group is the API group of the resource, with the served version.
var Group = schema.GroupVersion{Group: "vicinity.dev", Version: "v1alpha1"}

// Limits of a slice. The schema in manifests/webhook/components/topology-slices sets them, too.
const (
	MaxNodes = 500
	MaxKeys  = 64
)

// LeaseName is the name of the publisher's Lease, in its own namespace.
const LeaseName = "vicinity-topology"

// TopologySlice describes some of a cluster's nodes.
type TopologySlice struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Keys are the labels that this slice covers: a node below without a value for one of them does not have the label.
	// The slice has no information about other labels.
	Keys []string `json:"keys"`
	// Nodes are the described nodes. If a node is briefly in several slices, the slice with the first name in sort order
	// counts.
	Nodes []Node `json:"nodes"`
}

// Node is the topology of a node.
type Node struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
}

// List is a list of TopologySlices, called TopologySliceList in the API.
type List struct {
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

func (n Node) deepCopy() Node {
	return Node{Name: n.Name, Labels: maps.Clone(n.Labels)}
}

// DeepCopyObject implements runtime.Object.
func (l *List) DeepCopyObject() runtime.Object {
	copied := &List{TypeMeta: l.TypeMeta, ListMeta: *l.DeepCopy()}
	for i := range l.Items {
		copied.Items = append(copied.Items, *l.Items[i].DeepCopy())
	}
	return copied
}

// AddToScheme registers the types.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypeWithName(Group.WithKind(Kind), &TopologySlice{})
	scheme.AddKnownTypeWithName(Group.WithKind(Kind+"List"), &List{})
	metav1.AddToGroupVersion(scheme, Group)
	return nil
}
