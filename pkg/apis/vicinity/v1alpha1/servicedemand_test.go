package v1alpha1

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func TestServiceDemandCopySharesNothing(t *testing.T) {
	original := func() *ServiceDemand {
		return &ServiceDemand{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"a": "b"}},
			Zones:      []ZoneDemand{{Zone: "a", DemandPPM: 1}, {Zone: "b", DemandPPM: 2}},
		}
	}
	list := &ServiceDemandList{Items: []ServiceDemand{*original()}}
	copied := list.DeepCopyObject().(*ServiceDemandList)
	if diff := cmp.Diff(list, copied); diff != "" {
		t.Errorf("copy (-want +got):\n%s", diff)
	}
	demand := &copied.Items[0]
	demand.Labels["a"], demand.Zones[0].DemandPPM = "x", 7
	if diff := cmp.Diff(original(), &list.Items[0]); diff != "" {
		t.Errorf("original after a change of the copy (-want +got):\n%s", diff)
	}
}

// TestTheServiceDemandSchemaSetsTheSameLimits compares the names and limits in the CRD with those in this package.
func TestTheServiceDemandSchemaSetsTheSameLimits(t *testing.T) {
	text, err := os.ReadFile("../../../../manifests/webhook/components/demand/servicedemands.yaml")
	if err != nil {
		t.Fatal(err)
	}
	type list struct {
		MaxItems int `json:"maxItems"`
		Items    struct {
			Properties struct {
				Asks struct{ Minimum, Maximum int } `json:"demandPPM"`
			}
		}
	}
	var definition struct {
		Spec struct {
			Group    string
			Names    struct{ Kind, Plural string }
			Versions []struct {
				Name   string
				Schema struct {
					OpenAPIV3Schema struct{ Properties struct{ Zones list } }
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &definition); err != nil {
		t.Fatal(err)
	}
	spec := definition.Spec
	got := []any{spec.Group, spec.Versions[0].Name, spec.Names.Kind, spec.Names.Plural}
	if diff := cmp.Diff([]any{SchemeGroupVersion.Group, SchemeGroupVersion.Version, ServiceDemandKind, ServiceDemandResource},
		got); diff != "" || len(spec.Versions) != 1 {
		t.Errorf("names (-want +got):\n%s%d versions", diff, len(spec.Versions))
	}
	zones := spec.Versions[0].Schema.OpenAPIV3Schema.Properties.Zones
	if demand := zones.Items.Properties.Asks; zones.MaxItems != MaxZones || demand.Maximum != PPM || demand.Minimum != 0 {
		t.Errorf("the schema allows %d zones with a demand of %d to %d, want %d with 0 to 1000000", zones.MaxItems, demand.Minimum,
			demand.Maximum, MaxZones)
	}
}
