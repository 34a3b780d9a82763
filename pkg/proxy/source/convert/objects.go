package convert

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Objects are objects of a cluster as its API server returns them, for evaluating the effect of changes to them.
type Objects struct {
	Nodes    []*corev1.Node
	Services []*corev1.Service
	Slices   []*discoveryv1.EndpointSlice
	// Demands are empty if the demand of Services is not measured, or if they may not be listed.
	Demands          []*v1alpha1.ServiceDemand
	DemandsForbidden bool
	// DemandState is whether Demands count. Unknown means that the publisher's Lease was not read, and that they count.
	DemandState model.DemandState
	// FolderInventory counts everything in a folder, including invalid objects and other kinds; nil if the objects are not
	// from a folder.
	FolderInventory Inventory
}

// ObjectKinds are the kinds of Objects.
var ObjectKinds = []*Kind{Nodes, Services, EndpointSlices, ServiceDemands}

// Add adds an object, without the parts that are not used: most of a Node of a real cluster is its list of images.
func (o *Objects) Add(object Object) {
	object.SetManagedFields(nil)
	switch object := object.(type) {
	case *corev1.Node:
		allocatable := corev1.ResourceList{}
		if cpu, known := object.Status.Allocatable[corev1.ResourceCPU]; known {
			allocatable[corev1.ResourceCPU] = cpu
		}
		o.Nodes = append(o.Nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: object.Name, Labels: object.Labels, UID: object.UID},
			Spec:       corev1.NodeSpec{PodCIDR: object.Spec.PodCIDR, PodCIDRs: object.Spec.PodCIDRs},
			Status:     corev1.NodeStatus{Allocatable: allocatable, Conditions: object.Status.Conditions, Addresses: object.Status.Addresses},
		})
	case *corev1.Service:
		o.Services = append(o.Services, object)
	case *discoveryv1.EndpointSlice:
		o.Slices = append(o.Slices, object)
	case *v1alpha1.ServiceDemand:
		o.Demands = append(o.Demands, object)
	}
}

// Inventory counts the objects, including those that are invalid or not read.
func (o *Objects) Inventory() Inventory {
	if o.FolderInventory != nil {
		return o.FolderInventory
	}
	counted := Inventory{}
	for kind, count := range map[*Kind]int{
		Nodes: len(o.Nodes), Services: len(o.Services), EndpointSlices: len(o.Slices), ServiceDemands: len(o.Demands),
	} {
		if count > 0 {
			counted[Type{kind.Group.String(), kind.Name}] = count
		}
	}
	return counted
}
