package v1alpha1

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func TestTopologySliceCopySharesNothing(t *testing.T) {
	original := func() *TopologySlice {
		return &TopologySlice{
			ObjectMeta: metav1.ObjectMeta{Name: "nodes-1", Labels: map[string]string{"a": "b"}},
			Keys:       []string{"zone"},
			Nodes:      []NodeTopology{{Name: "node-1", Labels: map[string]string{"zone": "a"}}, {Name: "node-2"}},
		}
	}
	list := &TopologySliceList{Items: []TopologySlice{*original()}}
	copied := list.DeepCopyObject().(*TopologySliceList)
	if diff := cmp.Diff(list, copied); diff != "" {
		t.Errorf("copy (-want +got):\n%s", diff)
	}
	slice := &copied.Items[0]
	slice.Labels["a"], slice.Keys[0], slice.Nodes[0].Name, slice.Nodes[0].Labels["zone"] = "x", "x", "x", "x"
	if diff := cmp.Diff(original(), &list.Items[0]); diff != "" {
		t.Errorf("original after a change of the copy (-want +got):\n%s", diff)
	}
}

// TestTheTopologySliceSchemaSetsTheSameLimits compares the names and limits in the CRD with those in this package.
func TestTheTopologySliceSchemaSetsTheSameLimits(t *testing.T) {
	text, err := os.ReadFile("../../../../manifests/webhook/components/topology-slices/topologyslices.yaml")
	if err != nil {
		t.Fatal(err)
	}
	type list struct {
		MaxItems int `json:"maxItems"`
	}
	var definition struct {
		Spec struct {
			Group    string
			Names    struct{ Kind, Plural string }
			Versions []struct {
				Name   string
				Schema struct {
					OpenAPIV3Schema struct{ Properties struct{ Keys, Nodes list } }
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &definition); err != nil {
		t.Fatal(err)
	}
	spec := definition.Spec
	got := []any{spec.Group, spec.Versions[0].Name, spec.Names.Kind, spec.Names.Plural}
	if diff := cmp.Diff([]any{SchemeGroupVersion.Group, SchemeGroupVersion.Version, TopologySliceKind, TopologySliceResource},
		got); diff != "" || len(spec.Versions) != 1 {
		t.Errorf("names (-want +got):\n%s%d versions", diff, len(spec.Versions))
	}
	properties := spec.Versions[0].Schema.OpenAPIV3Schema.Properties
	if properties.Keys.MaxItems != MaxKeys || properties.Nodes.MaxItems != MaxNodes {
		t.Errorf("the schema allows %d keys and %d nodes, want %d and %d", properties.Keys.MaxItems, properties.Nodes.MaxItems, MaxKeys, MaxNodes)
	}
}
