package convert

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// webDemand is the demand of webService, which each case changes.
func webDemand() *v1alpha1.ServiceDemand {
	return &v1alpha1.ServiceDemand{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Zones: []v1alpha1.ZoneDemand{{Zone: "", DemandPPM: 1}, {Zone: "zone-a", DemandPPM: 199_999},
			{Zone: "zone-b", DemandPPM: 800_000}},
		NodesReporting: 198, NodesTotal: 200, ConnectionsPerMinute: 30_012, ObservedAt: metav1.Unix(1_800_000_000, 0),
	}
}

func TestServiceDemandConversion(t *testing.T) {
	want := &model.Demand{
		Zones:      map[string]uint32{"": 1, "zone-a": 199_999, "zone-b": 800_000},
		ObservedAt: time.Unix(1_800_000_000, 0).UTC(), NodesReporting: 198, NodesTotal: 200, ConnectionsPerMinute: 30_012,
	}
	got, errs := ServiceDemand(webDemand())
	if diff := cmp.Diff(want, got); diff != "" || len(errs) > 0 {
		t.Errorf("errors %v (-want +got):\n%s", errs, diff)
	}
}

// TestServiceDemandOfOpenConnections also covers zones that are assumed, and the concentration of nodes.
func TestServiceDemandOfOpenConnections(t *testing.T) {
	object := webDemand()
	object.EffectiveNodes = 4
	object.Zones[2].OpenPPM, object.Zones[2].Assumed = 700_000, true
	object.Zones[0].OpenPPM, object.Zones[0].Assumed = 300_000, true
	got, errs := ServiceDemand(object)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	want := &model.Demand{Open: map[string]uint32{"": 300_000, "zone-b": 700_000}, AssumedZones: []string{"", "zone-b"}, EffectiveNodes: 4}
	got = &model.Demand{Open: got.Open, AssumedZones: got.AssumedZones, EffectiveNodes: got.EffectiveNodes}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("demand (-want +got):\n%s", diff)
	}
	object.Zones[0].OpenPPM, object.EffectiveNodes = 300_001, -1
	if _, errs := ServiceDemand(object); len(errs) != 1 || !strings.Contains(errs[0].Error(), "effectiveNodes") {
		t.Errorf("errors %v, want one about effectiveNodes", errs)
	}
	object.EffectiveNodes = 0
	if _, errs := ServiceDemand(object); len(errs) != 1 || !strings.Contains(errs[0].Error(), "1000001: the sum must not be greater") {
		t.Errorf("errors %v, want one about the sum of open connections", errs)
	}
}

// TestServiceDemandAtItsLimitsIsAccepted uses the maximum number of zones.
func TestServiceDemandAtItsLimitsIsAccepted(t *testing.T) {
	full := webDemand()
	full.Zones = nil
	for i := range v1alpha1.MaxZones {
		full.Zones = append(full.Zones, v1alpha1.ZoneDemand{Zone: fmt.Sprint("zone-", i), DemandPPM: v1alpha1.PPM / v1alpha1.MaxZones})
	}
	got, errs := ServiceDemand(full)
	if len(errs) > 0 || len(got.Zones) != v1alpha1.MaxZones {
		t.Errorf("ServiceDemand() = %v, %v", got, errs)
	}
	none := webDemand()
	none.Zones = nil
	if got, errs := ServiceDemand(none); len(errs) > 0 || len(got.Zones) > 0 {
		t.Errorf("without zones: %v, %v", got, errs)
	}
}

func TestInvalidServiceDemandIsRejected(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1alpha1.ServiceDemand)
		want   []string
	}{
		"a sum of more than one": {
			func(d *v1alpha1.ServiceDemand) { d.Zones[1].DemandPPM = 200_000 },
			[]string{`zones: Invalid value: 1000001: the sum must not be greater than 1000000, the demand of all zones`},
		},
		"a sum of more than one that overflows 32 bits": {
			func(d *v1alpha1.ServiceDemand) { d.Zones[0].DemandPPM, d.Zones[1].DemandPPM = 1<<32-1, 1<<32-1 },
			[]string{`zones: Invalid value: 8590734590: the sum must not be greater than 1000000, the demand of all zones`},
		},
		"a zone twice": {
			func(d *v1alpha1.ServiceDemand) { d.Zones[2].Zone = "zone-a" },
			[]string{`zones[2].zone: Duplicate value: "zone-a"`},
		},
		"too many zones": {
			func(d *v1alpha1.ServiceDemand) { d.Zones = make([]v1alpha1.ZoneDemand, v1alpha1.MaxZones+1) },
			[]string{`zones: Too many: 513: must have at most 512 items`},
		},
		"an invalid zone name": {
			func(d *v1alpha1.ServiceDemand) { d.Zones[1].Zone = "a b" },
			[]string{`zones[1].zone: Invalid value: "a b": a valid label`},
		},
		"negative counts": {
			func(d *v1alpha1.ServiceDemand) {
				d.NodesReporting, d.NodesTotal, d.ConnectionsPerMinute = -1, -2, -3
			},
			[]string{
				`nodesReporting: Invalid value: -1: must not be negative`, `nodesTotal: Invalid value: -2: must not be negative`,
				`connectionsPerMinute: Invalid value: -3: must not be negative`,
			},
		},
		"no time, and invalid names": {
			func(d *v1alpha1.ServiceDemand) { d.ObservedAt, d.Namespace, d.Name = metav1.Time{}, "", "Web" },
			[]string{
				`metadata.namespace: Required value`, `metadata.name: Invalid value: "Web": a lowercase RFC 1123 label`, `observedAt: Required value`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			given := webDemand()
			test.change(given)
			got, errs := ServiceDemand(given)
			if got != nil || len(errs) != len(test.want) {
				t.Fatalf("ServiceDemand() = %v, errors %q, want %q", got, texts(errs), test.want)
			}
			for i, text := range texts(errs) {
				if !strings.HasPrefix(text, test.want[i]) {
					t.Errorf("error %q, want %q", text, test.want[i])
				}
			}
		})
	}
}

// FuzzConvertServiceDemand decodes any JSON as a ServiceDemand and converts it.
func FuzzConvertServiceDemand(f *testing.F) {
	seed := marshalled(f, webDemand())
	for _, replace := range [][2]string{
		{"", ""}, {"199999", "4294967295"}, {"zone-a", "zone-b"}, {"30012", "-1"}, {`"zone-b"`, "null"},
	} {
		f.Add([]byte(strings.ReplaceAll(seed, replace[0], replace[1])))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var object v1alpha1.ServiceDemand
		if json.Unmarshal(text, &object) != nil {
			return
		}
		got, errs := ServiceDemand(&object)
		if (got == nil) != (len(errs) > 0) {
			t.Fatalf("ServiceDemand() = %v and errors %v", got, errs)
		}
		if got == nil {
			return
		}
		sum := uint64(0)
		for _, demand := range got.Zones {
			sum += uint64(demand)
		}
		if sum > v1alpha1.PPM || len(got.Zones) > v1alpha1.MaxZones {
			t.Errorf("%v exceeds the limits", got)
		}
	})
}
