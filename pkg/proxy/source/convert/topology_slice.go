package convert

import (
	"reflect"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/topologyslice"
)

// TopologySlices describe all nodes, if somebody publishes them: they replace OtherNodes, and enter a change as such.
// Wrong content leads to a farther endpoint, but never to one that is not ready or not the Service's.
var TopologySlices = &Kind{
	Name: topologyslice.Kind, Group: topologyslice.Group, Resource: topologyslice.Resource, AddToScheme: topologyslice.AddToScheme,
	IsClusterScoped: true,
	New:             func() Object { return &topologyslice.TopologySlice{} },
	Convert: func(object Object, _ View) (any, field.ErrorList) {
		slice := object.(*topologyslice.TopologySlice)
		if _, isAgain := slice.Labels[topologyslice.EvacuatedLabel]; isAgain {
			return nil, nil // other slices have its nodes, too
		}
		return TopologySlice(slice), nil
	},
	IsSame: reflect.DeepEqual,
	Note:   func(*model.Change, model.ObjectName, any) {},
}

// DrainingNodes are the nodes that somebody publishes as being evacuated, each with the condition of its Node that says so, slice
// by slice.
var DrainingNodes = &Kind{
	Name: topologyslice.Kind, Group: topologyslice.Group, Resource: topologyslice.Resource, AddToScheme: topologyslice.AddToScheme,
	IsClusterScoped: true,
	Select:          func(View) Selector { return Selector{Labels: topologyslice.EvacuatedLabel} },
	Optional: &Optional{
		Missing:   "this cluster has no TopologySlices, so none of them evacuates a node",
		Forbidden: "TopologySlices may not be listed; starting without: none of them evacuates a node until they may",
	},
	New: func() Object { return &topologyslice.TopologySlice{} },
	Convert: func(object Object, _ View) (any, field.ErrorList) {
		conditions := map[string]string{}
		for _, node := range object.(*topologyslice.TopologySlice).Nodes {
			if node.Evacuated != "" {
				conditions[node.Name] = node.Evacuated
			}
		}
		if len(conditions) == 0 {
			return nil, nil
		}
		return conditions, nil
	},
	IsSame: reflect.DeepEqual,
	Note:   func(*model.Change, model.ObjectName, any) {},
}

// TopologySlice turns a TopologySlice into a value of the model. Its schema has checked it. Labels that its keys do not
// name are ignored.
func TopologySlice(slice *topologyslice.TopologySlice) *model.TopologySlice {
	described := &model.TopologySlice{Nodes: make(map[string]*model.Node, len(slice.Nodes))}
	for _, key := range slice.Keys {
		described.Keys = append(described.Keys, policy.Key(key))
	}
	for _, node := range slice.Nodes {
		labels := map[string]string{}
		for _, key := range slice.Keys {
			if value, has := node.Labels[key]; has {
				labels[key] = value
			}
		}
		described.Nodes[node.Name] = &model.Node{Name: node.Name, Labels: labels}
	}
	return described
}
