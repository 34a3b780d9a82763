package convert

import (
	"net/netip"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Kinds are the kinds that the proxy reads, in the order in which they are listed; those that are watched on demand
// come last. To add one, describe it here, write a function that converts it, and add a field to model.Change and
// model.Cluster.
var Kinds = []*Kind{Services, EndpointSlices, ServiceCIDRs, Nodes, ServiceDemands}

// Services are the Services of this proxy that have a ClusterIP, and for DNS also headless ones with topology keys.
// Those of other proxies are requested from an API server, too: a watch that selects by label reports an object whose
// label changes as deleted, with the previous version. A Service that another proxy takes over would look like a
// deleted one.
var Services = describe(
	Kind{
		Name: ServiceKind, Group: corev1.SchemeGroupVersion, Resource: "services", AddToScheme: corev1.AddToScheme,
		Select: func(view View) Selector {
			if view.WithHeadless {
				return Selector{} // topology keys are annotations, which no selector can match
			}
			return Selector{Fields: fields.OneTermNotEqualSelector("spec.clusterIP", corev1.ClusterIPNone).String()}
		},
		Settings:        serviceSettings,
		IgnoredSettings: ignoredServiceSettings,
		ForOtherProxy: func(object Object, view View) bool {
			return isForOtherProxy(object.(*corev1.Service), view.ServiceProxyName)
		},
	},
	Service,
	func(change *model.Change) *map[model.ObjectName]*model.Service { return &change.Services }, fullName,
)

// EndpointSlices are those of Services that have a ClusterIP, regardless of the proxy that serves them: the
// EndpointSlice controller copies the labels of a Service to its slices, but only after the Service has them. For DNS
// they are all slices.
var EndpointSlices = describe(
	Kind{
		Name: EndpointSliceKind, Group: discoveryv1.SchemeGroupVersion, Resource: "endpointslices", AddToScheme: discoveryv1.AddToScheme,
		Select: func(view View) Selector {
			if view.WithHeadless {
				return Selector{}
			}
			return Selector{Labels: "!" + corev1.IsHeadlessService}
		},
		Complete:        func(object Object) { namePorts(object.(*discoveryv1.EndpointSlice)) },
		IsSame:          isSameSlice,
		Settings:        sliceSettings,
		IgnoredSettings: ignoredSliceSettings,
	},
	EndpointSlice,
	func(change *model.Change) *map[model.ObjectName]*model.EndpointSlice { return &change.Slices }, fullName,
)

// ServiceCIDRs are the ranges from which ClusterIPs are allocated.
var ServiceCIDRs = describe(
	Kind{
		Name: ServiceCIDRKind, Group: networkingv1.SchemeGroupVersion, Resource: "servicecidrs", AddToScheme: networkingv1.AddToScheme,
		IsClusterScoped: true,
		Optional: &Optional{
			Missing:   "this cluster has no ServiceCIDRs (added in Kubernetes 1.33); packets to unassigned ClusterIPs are not dropped",
			Forbidden: "listing ServiceCIDRs is forbidden; until it is allowed, packets to unassigned ClusterIPs are not dropped",
		},
	},
	func(object *networkingv1.ServiceCIDR, _ View) ([]netip.Prefix, field.ErrorList) {
		return ServiceCIDR(object)
	},
	func(change *model.Change) *map[string][]netip.Prefix { return &change.ServiceCIDRs }, plainName,
)

// Nodes are only this node from an API server, and all Nodes from a folder.
var Nodes = describe(
	Kind{
		Name: NodeKind, Group: corev1.SchemeGroupVersion, Resource: "nodes", AddToScheme: corev1.AddToScheme, IsClusterScoped: true,
		Select: func(view View) Selector {
			return Selector{Fields: fields.OneTermEqualSelector(metav1.ObjectNameField, view.Node).String()}
		},
		Settings:        nodeSettings,
		IgnoredSettings: ignoredNodeSettings,
	},
	nodeInView, nodesOf, plainName,
)

// OtherNodes are the names and labels of all other nodes. The API server has validated them, and we only compare them.
var OtherNodes = describe(
	Kind{
		Name: NodeKind, Group: corev1.SchemeGroupVersion, Resource: "nodes", IsClusterScoped: true, IsMetadataOnly: true,
		Select: func(view View) Selector {
			return Selector{Fields: fields.OneTermNotEqualSelector(metav1.ObjectNameField, view.Node).String()}
		},
	},
	labelsOf, nodesOf, plainName,
)

// NodesByDemotionReason are, for each demotion reason that a label of a Node causes, the metadata of the nodes with
// that label, including this one; nil for other reasons. An API server sends nothing about nodes without the label. Its
// watch reports a node that gets the label as added, and one that loses it as deleted.
var NodesByDemotionReason = func() (kinds [model.NumDemotionReasons]*Kind) {
	for why := range kinds {
		if reason := model.DemotionReason(why); reason.Label() != "" {
			kinds[reason] = nodesForDemotionReason(reason)
		}
	}
	return kinds
}()

func nodesForDemotionReason(reason model.DemotionReason) *Kind {
	settings := slices.DeleteFunc(slices.Clone(nodeSettings), func(s Setting) bool { return s.Key != reason.Label() })
	return describe(
		Kind{
			Name: NodeKind, Group: corev1.SchemeGroupVersion, Resource: "nodes", IsClusterScoped: true, IsMetadataOnly: true,
			Select: func(View) Selector { return Selector{Labels: reason.Label()} },
			Optional: &Optional{
				Missing:   "this API server has no Nodes, so none is " + reason.String(),
				Forbidden: "listing Nodes by label is forbidden; no node is " + reason.String() + " until it is allowed",
			},
			Settings:        settings,
			IgnoredSettings: ignoredOtherNodeSettings(settings),
		},
		labelsOf, nodesOf, plainName,
	)
}

// labelsOf returns the name and the labels of a node.
func labelsOf(node *metav1.PartialObjectMetadata, _ View) (*model.Node, field.ErrorList) {
	return &model.Node{Name: node.Name, Labels: node.Labels}, nil
}

func nodesOf(change *model.Change) *map[string]*model.Node { return &change.Nodes }

// namePorts sets port names as the API server does: a port without a name gets the empty one, and belongs to the
// Service port without a name.
func namePorts(slice *discoveryv1.EndpointSlice) {
	for i := range slice.Ports {
		if slice.Ports[i].Name == nil {
			slice.Ports[i].Name = new(string)
		}
	}
}

// isSameSlice compares the fields that affect traffic: a new TriggeredAt alone is no reason to process a slice again.
func isSameSlice(a, b any) bool {
	before, _ := a.(*model.EndpointSlice)
	after, _ := b.(*model.EndpointSlice)
	if before == nil || after == nil {
		return before == after
	}
	normalized := *after
	normalized.TriggeredAt = before.TriggeredAt
	return reflect.DeepEqual(before, &normalized)
}
