package convert

import (
	"reflect"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/topologyslice"
)

// TopologySlices describe all nodes, if they are published: they replace OtherNodes, and package nodes puts the nodes
// that they list into a change. Wrong content selects a farther endpoint, but never one that is not ready or not the
// Service's.
var TopologySlices = &Kind{
	Name: topologyslice.Kind, Group: topologyslice.Group, Resource: topologyslice.Resource, AddToScheme: topologyslice.AddToScheme,
	IsClusterScoped: true,
	New:             func() Object { return &topologyslice.TopologySlice{} },
	Convert: func(object Object, _ View) (any, field.ErrorList) {
		return TopologySlice(object.(*topologyslice.TopologySlice)), nil
	},
	IsSame: reflect.DeepEqual,
	Apply:  func(*model.Change, model.ObjectName, any) {},
}

// TopologySlice converts a TopologySlice, which its schema has validated. Labels that its keys do not list are ignored.
func TopologySlice(slice *topologyslice.TopologySlice) *model.TopologySlice {
	converted := &model.TopologySlice{Nodes: make(map[string]*model.Node, len(slice.Nodes))}
	for _, key := range slice.Keys {
		converted.Keys = append(converted.Keys, policy.Key(key))
	}
	for _, node := range slice.Nodes {
		labels := map[string]string{}
		for _, key := range slice.Keys {
			if value, ok := node.Labels[key]; ok {
				labels[key] = value
			}
		}
		converted.Nodes[node.Name] = &model.Node{Name: node.Name, Labels: labels}
	}
	return converted
}
