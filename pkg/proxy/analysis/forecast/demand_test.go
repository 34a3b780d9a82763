package forecast

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
)

func TestWeightsAreReadFromQueries(t *testing.T) {
	const none = "not the result of an instant query"
	for name, test := range map[string]struct {
		text string
		want Weights
		err  string
	}{
		"the API of Prometheus": {
			`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"node":"node-1"},"value":[1763900000.1,"2.5"]},` +
				`{"metric":{"zone":"zone-b"},"value":[1763900000.1,"4"]}]}}`,
			Weights{"node-1": 2.5, "zone-b": 4}, "",
		},
		"promtool": {
			`[{"metric":{"topology_kubernetes_io_zone":"zone-b","pod":"a"},"value":[1763900000,"1"]},` +
				`{"metric":{"topology_kubernetes_io_zone":"zone-b","pod":"b"},"value":[1763900000,"2"]}]`,
			Weights{"zone-b": 3}, "",
		},
		"a matrix":           {`{"status":"success","data":{"resultType":"matrix","result":[]}}`, nil, "use an instant query"},
		"a query that fails": {`{"status":"error","error":"parse error"}`, nil, "the query failed: parse error"},
		"nothing found":      {`[]`, nil, "the query has no results"},
		"no label":           {`[{"metric":{"pod":"a"},"value":[1,"2"]}]`, nil, "sample 1 has none of the labels node, zone"},
		"no number":          {`[{"metric":{"node":"a"},"value":[1,"x"]}]`, nil, "sample 1: x is not a number"},
		"not a number":       {`[{"metric":{"node":"a"},"value":[1,"NaN"]}]`, nil, "a: NaN is not a weight"},
		"negative":           {`[{"metric":{"node":"a"},"value":[1,"-1"]}]`, nil, "a: -1 is not a weight"},
		"infinite":           {`[{"metric":{"node":"a"},"value":[1,"+Inf"]}]`, nil, "a: +Inf is not a weight"},
		"a sum that is too large": {
			`[{"metric":{"pod":"a","node":"n"},"value":[1,"1e308"]},{"metric":{"pod":"b","node":"n"},"value":[1,"1e308"]}]`, nil,
			"n: 1e+308 is not a weight",
		},
		"a mapping":          {`{"node-1": 3}`, nil, none},
		"a mapping, in YAML": {"node-1: 3\n", nil, none},
		"a plain string":     {"hello\n", nil, none},
		"empty":              {"", nil, none},
		"truncated JSON":     {`{"status":"success"`, nil, none},
	} {
		samples, err := ParseSamples([]byte(test.text))
		var got Weights
		if err == nil {
			got, err = weightsOf(samples)
		}
		matches := err == nil && test.err == "" || err != nil && test.err != "" && strings.Contains(err.Error(), test.err)
		if diff := cmp.Diff(test.want, got); diff != "" || !matches {
			t.Errorf("%s: error %v, want %q (-want +got):\n%s", name, err, test.err, diff)
		}
	}
}

func TestAZonesWeightIsSharedByItsNodes(t *testing.T) {
	var objects convert.Objects
	for name, zone := range map[string]string{"a1": "a", "a2": "a", "b1": "b", "b2": "b", "c1": ""} {
		labels := map[string]string{string(policy.Zone): zone}
		objects.Nodes = append(objects.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	}
	cluster := NewCluster(objects, convert.View{})
	sharesOf := func(weights Weights) (map[string]float64, error) {
		m, err := newMeasurement("demand.json", weights, map[string]Weights{"shop/web": weights}, cluster)
		if err != nil {
			return nil, err
		}
		if diff := cmp.Diff(m.byNode, m.nodeSharesOn("shop/web")); diff != "" {
			t.Errorf("%v: the shares of the demand on a Service differ (-all Services +one):\n%s", weights, diff)
		}
		return m.byNode, nil
	}
	got, err := sharesOf(Weights{"a": 4, "b": 3, "b2": 5})
	if diff := cmp.Diff(map[string]float64{"a1": 2. / 12, "a2": 2. / 12, "b1": 3. / 12, "b2": 5. / 12}, got); diff != "" || err != nil {
		t.Errorf("error %v, shares (-want +got):\n%s", err, diff)
	}
	if got, err = sharesOf(Weights{"a": 5e-324}); err != nil || got["a1"] != 0.5 {
		t.Errorf("the smallest positive weight, for two nodes: got %v, error %v", got, err)
	}
	if got, err = sharesOf(Weights{"a": 1, "x": 1}); err != nil || got["a1"] != 0.5 {
		t.Errorf("with demand of an unknown node: got %v, error %v", got, err)
	}
	cluster.nodes = append(cluster.nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
	for _, bad := range []Weights{{"b": 1}, {"x": 1}, {"": 1}, {"a": 0}, {"a": 0, "x": 1}, {"a": 1e308, "c1": 1e308}} {
		if got, err := sharesOf(bad); err == nil {
			t.Errorf("%v is accepted: %v", bad, got)
		}
	}
}

// TestMeasuredServiceHasItsDemand: a Service with measured demand of its own has that demand, and others have the
// demand on all Services. A load bound that is planned without the measurement does not hold for this demand; the
// report also has one that would hold.
func TestMeasuredServiceHasItsDemand(t *testing.T) {
	const text = `[{"metric":{"node":"a1","namespace":"shop","service":"web"},"value":[1,"3"]},` +
		`{"metric":{"instance":"b1","namespace":"shop","service":"web"},"value":[1,"1"]},` +
		`{"metric":{"node":"b1","namespace":"","service":""},"value":[1,"36"]}]`
	samples, err := ParseSamples([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	setZoneKeys := func(service *corev1.Service) {
		service.Annotations[policy.TopologyKeysAnnotation] = string(policy.Zone) + ", " + string(policy.AnyNode)
		service.Spec.ClusterIP = "10.96.0.10"
	}
	sliceOn := func(name string, nodes ...string) *discoveryv1.EndpointSlice {
		slice := objects.Slice("shop", name, name)
		for i, node := range nodes {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.0.0.%d", i+1)}, NodeName: &node})
		}
		return slice
	}
	cluster := NewCluster(convert.Objects{
		Nodes: []*corev1.Node{
			objects.Node("a1", map[string]string{string(policy.Zone): "a"}), objects.Node("b1", map[string]string{string(policy.Zone): "b"}),
		},
		Services: []*corev1.Service{objects.Service("shop", "other", setZoneKeys), objects.Service("shop", "web", setZoneKeys)},
		Slices:   []*discoveryv1.EndpointSlice{sliceOn("web", "a1", "b1", "b1", "b1"), sliceOn("other", "a1")},
	}, convert.View{})
	demand, err := NewMeasurement("demand.json", samples, cluster)
	if err != nil {
		t.Fatal(err)
	}
	report, rejected := Compute(cluster, Options{Now: time.Now(), Bounds: []uint64{120}, Demand: demand})
	if len(rejected) > 0 || len(report.Services) != 2 {
		t.Fatalf("%+v, rejected: %v", report, rejected)
	}
	other, web := &report.Services[0], &report.Services[1]
	if got := other.projection(Now).Zone; math.Abs(got-3./40) > 1e-6 {
		t.Errorf("a share of %v of shop/other stays in the zone, want 3/40, the zone's share of the demand", got)
	}
	for setting, want := range map[string]float64{Now: 3, "120%": 1.8, "120% measured": 1.2} {
		if got := web.projection(setting).Busiest.Load; math.Abs(got-want) > 0.01 {
			t.Errorf("%s: the expected load of the busiest endpoint is %v times the mean, want %v", setting, got, want)
		}
	}
	// Without a measurement there is nothing to compare.
	if report, _ := Compute(cluster, Options{Now: time.Now(), Bounds: []uint64{120}}); len(report.Settings) != 6 {
		t.Errorf("the report has a bound with measured demand, although there is none")
	}
}

// TestAServiceHasTheDemandOfItsServiceDemand: nodes have the demand of the ServiceDemand, by zone. A Service with the
// setting "measured" is planned with it, and a load bound is compared with both plans.
func TestAServiceHasTheDemandOfItsServiceDemand(t *testing.T) {
	setZoneKeysAndBound := func(service *corev1.Service) {
		service.Annotations[policy.TopologyKeysAnnotation] = string(policy.Zone) + ", " + string(policy.AnyNode)
		service.Annotations[policy.MaxLoadAnnotation] = "120%"
		service.Spec.ClusterIP = "10.96.0.10"
	}
	slice := objects.Slice("shop", "web", "web")
	for i, node := range []string{"a1", "a2", "b1", "b1", "b1"} {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.0.0.%d", i+1)}, NodeName: &node})
	}
	zoneLabels := func(zone string) map[string]string { return map[string]string{string(policy.Zone): zone} }
	cluster := NewCluster(convert.Objects{
		Nodes: []*corev1.Node{objects.Node("a1", zoneLabels("a")), objects.Node("a2", zoneLabels("a")),
			objects.Node("b1", zoneLabels("b")), objects.Node("x", nil)},
		Services: []*corev1.Service{objects.Service("shop", "web", setZoneKeysAndBound)}, Slices: []*discoveryv1.EndpointSlice{slice},
	}, convert.View{})
	cluster.demands = map[model.ObjectName]*model.Demand{
		{Namespace: "shop", Name: "web"}: {
			Zones: map[string]uint32{"a": 800_000, "b": 100_000, "": 100_000},
		},
	}
	for name, test := range map[string]struct {
		cluster Cluster
		want    map[string]float64
	}{
		// Two nodes of four have a default demand of 0.5, and the two endpoints of their zone may take 0.48 of it. Measured:
		// 0.8.
		"measured": {cluster, map[string]float64{Now: 1.92, "120%": 1.92, "120% measured": 1.2}},
		"assumed":  {cluster.WithoutMeasuredDemand(), map[string]float64{Now: 1.2, "120%": 1.2}},
	} {
		report, rejected := Compute(test.cluster, Options{Now: time.Now(), Bounds: []uint64{120}})
		if len(rejected) > 0 || len(report.Services) != 1 {
			t.Fatalf("%s: %+v, rejected: %v", name, report, rejected)
		}
		for setting, want := range test.want {
			if got := report.Services[0].projection(setting).Busiest.Load; math.Abs(got-want) > 0.01 {
				t.Errorf("%s, %s: the expected load of the busiest endpoint is %v times the mean, want %v", name, setting, got, want)
			}
		}
		_, wantMeasured := test.want["120% measured"]
		hasNote := slices.ContainsFunc(report.Notes, func(note string) bool { return strings.Contains(note, "planned with measured demand") })
		if (report.Services[0].projection("120% measured") != nil) != wantMeasured || hasNote != wantMeasured {
			t.Errorf("%s: has a bound with measured demand: %t, or wrong notes: %q", name, !wantMeasured, report.Notes)
		}
	}
}
