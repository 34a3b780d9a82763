package convert

import (
	"reflect"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// TopologySlices describe all nodes, if they are published: they replace OtherNodes, and package nodes puts the nodes
// that they list into a change. Wrong content selects a farther endpoint, but never one that is not ready or not the
// Service's.
var TopologySlices = &Kind{
	Name: v1alpha1.TopologySliceKind, Group: v1alpha1.SchemeGroupVersion, Resource: v1alpha1.TopologySliceResource,
	AddToScheme:     v1alpha1.AddToScheme,
	IsClusterScoped: true,
	New:             func() Object { return &v1alpha1.TopologySlice{} },
	Convert: func(object Object, _ View) (any, field.ErrorList) {
		return TopologySlice(object.(*v1alpha1.TopologySlice)), nil
	},
	IsSame: reflect.DeepEqual,
	Apply:  func(*model.Change, model.ObjectName, any) {},
}

// TopologySlice converts a TopologySlice, which its schema has validated. Labels that its keys do not list are ignored.
func TopologySlice(slice *v1alpha1.TopologySlice) *model.TopologySlice {
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
