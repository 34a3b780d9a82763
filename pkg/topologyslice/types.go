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

// Group is that of the resource, with the version that is served.
var Group = schema.GroupVersion{Group: "vicinity.dev", Version: "v1alpha1"}

// Limits of a slice that the schema in manifests/topology-slices sets, too.
const (
	MaxNodes = 500
	MaxKeys  = 64
)

// LeaseName is the Lease of the publisher, in its own namespace.
const LeaseName = "vicinity-topology"

// TopologySlice describes some of a cluster's nodes.
type TopologySlice struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Keys are the labels that this slice knows of: a node below that has no value for one of them has no such label.
	// It says nothing about other labels.
	Keys []string `json:"keys"`
	// Nodes are the nodes. If a node is in several slices, as may happen for a moment, the slice whose name comes first
	// counts.
	Nodes []Node `json:"nodes"`
}

// Node is what proxies learn about a node.
type Node struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
}

// List is a list of them, called TopologySliceList in the API.
type List struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []TopologySlice `json:"items"`
}

// DeepCopyObject is part of runtime.Object.
func (s *TopologySlice) DeepCopyObject() runtime.Object { return s.DeepCopy() }

// DeepCopy returns a copy that shares nothing.
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
	scheme.AddKnownTypeWithName(Group.WithKind(Kind), &TopologySlice{})
	scheme.AddKnownTypeWithName(Group.WithKind(Kind+"List"), &List{})
	metav1.AddToGroupVersion(scheme, Group)
	return nil
}
