package convert

import (
	"net/netip"
	"reflect"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// ProxySlices are the EndpointSlices of the headless Service over the proxies' own pods. A proxy runs on each node, so
// they list the nodes and their zones without a publisher. Together with NodesWithDemand and ControlPlaneNodes they
// replace OtherNodes; package nodes puts the nodes that they list into a change.
var ProxySlices = &Kind{
	Name: EndpointSliceKind, Group: discoveryv1.SchemeGroupVersion, Resource: "endpointslices", AddToScheme: discoveryv1.AddToScheme,
	Select: func(view View) Selector {
		return Selector{Namespace: view.Proxies.Namespace, Labels: discoveryv1.LabelServiceName + "=" + view.Proxies.Name}
	},
	New: func() Object { return &discoveryv1.EndpointSlice{} },
	Convert: func(object Object, _ View) (any, field.ErrorList) {
		return ProxySlice(object.(*discoveryv1.EndpointSlice)), nil
	},
	IsSame: reflect.DeepEqual,
	Apply:  func(*model.Change, model.ObjectName, any) {},
}

// ProxyAddresses are the same slices, read for the addresses of the nodes.
var ProxyAddresses = func() *Kind {
	kind := *ProxySlices
	kind.Convert = func(object Object, _ View) (any, field.ErrorList) {
		return proxyAddresses(object.(*discoveryv1.EndpointSlice)), nil
	}
	return &kind
}()

// ProxySlice reads the nodes and zones of a slice's endpoints, ready or not. The nodes' demand is in other objects.
func ProxySlice(slice *discoveryv1.EndpointSlice) *model.TopologySlice {
	converted := &model.TopologySlice{Nodes: make(map[string]*model.Node, len(slice.Endpoints))}
	converted.Keys = append(append(converted.Keys, policy.Zone), policy.DemandLabels[:]...)
	for i := range slice.Endpoints {
		if node := nodeOf(&slice.Endpoints[i]); node != nil {
			converted.Nodes[node.Name] = node
		}
	}
	return converted
}

// proxyAddresses reads the nodes of a slice's endpoints, ready or not, with their addresses and zones.
func proxyAddresses(slice *discoveryv1.EndpointSlice) []*model.Node {
	var nodes []*model.Node
	for i := range slice.Endpoints {
		node := nodeOf(&slice.Endpoints[i])
		if node == nil || len(slice.Endpoints[i].Addresses) == 0 {
			continue
		}
		addr, rejected := readAddress(nil, slice.Endpoints[i].Addresses[0])
		if len(rejected) == 0 && !addr.IsUnspecified() && !addr.IsMulticast() && !addr.IsLoopback() {
			node.Addresses = []netip.Addr{addr}
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// nodeOf returns the node of an endpoint, with its zone; nil if the slice does not state the node.
func nodeOf(endpoint *discoveryv1.Endpoint) *model.Node {
	if endpoint.NodeName == nil {
		return nil
	}
	node := &model.Node{Name: *endpoint.NodeName, Labels: map[string]string{}}
	if endpoint.Zone != nil {
		node.Labels[string(policy.Zone)] = *endpoint.Zone
	}
	return node
}

// NodesWithDemand and ControlPlaneNodes are the metadata of the few nodes that may have more or less demand than
// others: an API server that selects them by their labels sends nothing about the rest.
var (
	NodesWithDemand   = labelledNodes(policy.DemandLabel)
	ControlPlaneNodes = labelledNodes(policy.ControlPlaneLabel)
)

// labelledNodes returns the kind of the nodes with a label, with the labels that state their demand.
func labelledNodes(label string) *Kind {
	return describe(
		Kind{
			Name: NodeKind, Group: Nodes.Group, Resource: Nodes.Resource, IsClusterScoped: true, IsMetadataOnly: true,
			Select: func(View) Selector { return Selector{Labels: label} },
		},
		func(node *metav1.PartialObjectMetadata, _ View) (*model.Node, field.ErrorList) {
			labels := map[string]string{}
			for _, key := range policy.DemandLabels {
				if value, ok := node.Labels[string(key)]; ok {
					labels[string(key)] = value
				}
			}
			return &model.Node{Name: node.Name, Labels: labels}, nil
		},
		nodesOf, plainName,
	)
}
