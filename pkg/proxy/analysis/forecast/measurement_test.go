package forecast

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// measure returns a random measurement of a cluster: by node or zone, of some Services, and of names that do not exist.
func (g clusterGenerator) measure(t *testing.T, cluster Cluster) *Measurement {
	t.Helper()
	all, byService := Weights{}, map[string]Weights{}
	add := func(service, location string) {
		weight := float64(g.IntN(5)) / 4
		if all[location] += weight; service == "" {
			return
		}
		if byService[service] == nil {
			byService[service] = Weights{}
		}
		byService[service][location] += weight
	}
	locations := []string{"zone-0", "zone-2"}
	if g.oneIn(2) {
		locations = nil
		for _, node := range cluster.nodes {
			if !g.oneIn(4) {
				locations = append(locations, node.Name)
			}
		}
	}
	if g.oneIn(4) {
		locations = append(locations, "gone")
	}
	services := []string{"", "shop/gone"}
	for _, service := range cluster.services {
		if !g.oneIn(4) {
			services = append(services, nameOf(service).String())
		}
	}
	for _, location := range locations {
		for _, service := range services {
			add(service, location)
		}
	}
	m, err := newMeasurement("demand.json", all, byService, cluster)
	if err != nil {
		return nil
	}
	return m
}

// moveToNamespaces moves some Services of a cluster to another namespace.
func (g clusterGenerator) moveToNamespaces(objects convert.Objects) convert.Objects {
	for _, service := range objects.Services {
		if !g.oneIn(2) {
			continue
		}
		for _, slice := range objects.Slices {
			if slice.Labels[discoveryv1.LabelServiceName] == service.Name {
				slice.Namespace = "ops"
			}
		}
		service.Namespace = "ops"
	}
	return objects
}

// TestASelectionIsTheSumOfItsServices: the selection's shares and bytes are sums, with a measurement and without. The
// forecast of each Service is the same as in a forecast of all.
func TestASelectionIsTheSumOfItsServices(t *testing.T) {
	byDemand, priced, withoutBytes := 0, 0, 0
	for seed := range uint64(300) {
		generator := newGenerator(seed)
		cluster := NewCluster(generator.moveToNamespaces(generator.hintedCluster()), convert.View{})
		options := Options{Now: time.Unix(0, 0), Bounds: []uint64{120}}
		if !generator.oneIn(4) {
			options.Demand = generator.measure(t, cluster)
		}
		traffic := Traffic{"": generator.Float64(), "shop/gone": generator.Float64()}
		for _, service := range cluster.services {
			if !generator.oneIn(3) {
				traffic[nameOf(service).String()] = generator.Float64()
			}
		}
		all, _ := Compute(cluster, options)
		all.EstimateCost(traffic, 0.01)
		crossing := all.Settings[0].OtherZones * traffic[""] * month
		serviceName := nameOf(cluster.services[generator.IntN(len(cluster.services))])
		for _, only := range []model.ObjectName{{Namespace: "shop"}, {Namespace: "ops"}, serviceName} {
			options.Only = explain.Query{Service: only}
			report, _ := Compute(cluster, options)
			report.EstimateCost(traffic, 0.01)
			sums, weights, bytes, cost := make([]Shares, len(report.Settings)), 0.0, 0.0, make([]float64, len(report.Settings))
			for i := range report.Services {
				service := &report.Services[i]
				serviceIndex := slices.IndexFunc(all.Services, func(s Service) bool { return s.Service == service.Service })
				if diff := cmp.Diff(all.Services[serviceIndex], *service, cmpopts.IgnoreFields(Service{}, "Weight"),
					cmpopts.IgnoreUnexported(Service{}, Projection{})); diff != "" {
					t.Fatalf("seed %d: %s is different in a forecast of %+v (-all +selected):\n%s", seed, service.Service, only, diff)
				}
				weights += service.Weight
				bytes += traffic[service.Service] * month
				for s := range service.Projections {
					sums[s].add(&service.Projections[s].Shares, service.Weight)
					cost[s] += traffic[service.Service] * month * service.Projections[s].OtherZones
				}
				if measurement := options.Demand; measurement != nil && measurement.byService[service.Service].sum() > 0 &&
					service.Weight != 1/float64(len(report.Services)) {
					byDemand++
				}
			}
			if len(report.Services) == 0 {
				continue
			}
			if bytes == 0 {
				withoutBytes++
			}
			if !isAbout(weights, 1) || math.Abs(report.BytesInMonth-bytes) > 1e-3 {
				t.Errorf("seed %d: %+v: the sum of the weights is %v, want 1; the report has %v bytes, want %v", seed, only, weights,
					report.BytesInMonth, bytes)
			}
			for s, total := range report.Settings {
				for i, part := range total.pointers() {
					if !isAbout(*part, *sums[s].pointers()[i]) {
						t.Errorf("seed %d: %+v, %s: the total is %+v, want the sum %+v", seed, only, total.Setting, total.Shares, sums[s])
					}
				}
				if math.Abs(report.Costs[s].Bytes-cost[s]) > 1e-3 {
					t.Errorf("seed %d: %+v, %s: %v bytes, want %v", seed, only, total.Setting, report.Costs[s].Bytes, cost[s])
				}
			}
			if only.Name == "" {
				crossing += report.Costs[0].Bytes
				priced++
			}
		}
		if len(all.Services) > 0 && math.Abs(all.Costs[0].Bytes-crossing) > 1e-3 {
			t.Errorf("seed %d: all Services have %v bytes to other zones, and the sum of the namespaces is %v", seed, all.Costs[0].Bytes, crossing)
		}
		if t.Failed() {
			return
		}
	}
	if byDemand < 100 || priced < 200 || withoutBytes < 20 {
		t.Errorf("tested only %d Services weighted by demand, %d selections with a cost, %d without bytes", byDemand, priced, withoutBytes)
	}
}

// TestTotalsAreWeightedByDemand: 3 of 4 connections are to shop/api, which keeps all of them in the zone.
func TestTotalsAreWeightedByDemand(t *testing.T) {
	f := forecaster{demand: &Measurement{byService: map[string]Weights{"shop/api": {"a": 2, "b": 4}, "shop/web": {"zone-a": 2}}}}
	services := []Service{{Service: "shop/api"}, {Service: "shop/other"}, {Service: "shop/web"}}
	weights := func() (list []float64) {
		f.setWeights(services)
		for i := range services {
			list = append(list, services[i].Weight)
		}
		return list
	}
	if diff := cmp.Diff([]float64{0.75, 0, 0.25}, weights()); diff != "" {
		t.Errorf("weights (-want +got):\n%s", diff)
	}
	services = services[1:2]
	if diff := cmp.Diff([]float64{1}, weights()); diff != "" {
		t.Errorf("weights without measured demand on the Service (-want +got):\n%s", diff)
	}
	f.demand = nil
	services = []Service{{Service: "shop/api"}, {Service: "shop/web"}}
	if diff := cmp.Diff([]float64{0.5, 0.5}, weights()); diff != "" {
		t.Errorf("weights without a measurement (-want +got):\n%s", diff)
	}
}

// TestMissingPartsOfAMeasurementAreReported checks that the report has their number or share.
func TestMissingPartsOfAMeasurementAreReported(t *testing.T) {
	cluster := NewCluster(newGenerator(1).cluster(), convert.View{})
	cluster.nodes = cluster.nodes[:0]
	for i, zone := range []string{"a", "a", "a", "b", "", ""} {
		node := newGenerator(1).cluster().Nodes[0].DeepCopy()
		node.Name, node.Labels = fmt.Sprint("node-", i), map[string]string{string(policy.Zone): zone}
		cluster.nodes = append(cluster.nodes, node)
	}
	const zero = ": the forecast does not include their connections. For a Node without connections, the value is 0."
	for name, test := range map[string]struct {
		all       Weights
		byService map[string]Weights
		only      explain.Query
		want      []string
	}{
		"nothing is missing": {Weights{"a": 1, "b": 1, "node-4": 0, "node-5": 1}, nil, explain.Query{}, nil},
		"Nodes without a zone": {Weights{"a": 1, "b": 1}, nil, explain.Query{}, []string{
			"demand.json lacks 2 of 6 Nodes (node-4, node-5)" + zero,
		}},
		"Nodes": {Weights{"node-3": 1}, nil, explain.Query{}, []string{
			"demand.json lacks 5 of 6 Nodes (node-0, node-1, node-2 and 2 more)" + zero,
		}},
		"a name of neither a Node nor a zone": {Weights{"a": 1, "b": 1, "node-4": 1, "node-5": 0, "node-9": 1}, nil, explain.Query{}, []string{
			"25 % of the demand in demand.json is omitted, because there is no Node and no zone of this name: node-9.",
		}},
		"Services": {
			Weights{"a": 6, "b": 2, "node-4": 0, "node-5": 0},
			map[string]Weights{"shop/web": {"a": 5}, "shop/gone": {"a": 1}, "ops/gone": {"b": 2}, "ops/silent": {"b": 0}}, explain.Query{}, []string{
				"38 % of the demand on Services in demand.json is omitted, because they do not exist or are not served: ops/gone, shop/gone.",
			},
		},
		"Services of a selection": {
			Weights{"a": 6, "b": 2, "node-4": 0, "node-5": 0},
			map[string]Weights{"shop/web": {"a": 4}, "shop/gone": {"a": 2}, "ops/gone": {"b": 2}},
			explain.Query{Service: model.ObjectName{Namespace: "shop"}}, []string{
				"33 % of the demand on these Services in demand.json is omitted, because they do not exist or are not served: shop/gone.",
			},
		},
	} {
		m, err := newMeasurement("demand.json", test.all, test.byService, cluster)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := append(m.missingParts(), m.missingServices(test.only, []Service{{Service: "shop/web"}})...)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestAdviceKeepsTheBound: after the advice was followed, with the ServiceDemand that it may need, the new forecast
// keeps the bound and equals the promised projection.
func TestAdviceKeepsTheBound(t *testing.T) {
	advised, missed := map[string]int{}, 0
	for seed := range uint64(1000) {
		generator := newGenerator(seed)
		cluster := NewCluster(generator.hintedCluster(), convert.View{})
		options := Options{Now: time.Unix(0, 0), Bounds: []uint64{120}, Demand: generator.measure(t, cluster)}
		if options.Demand == nil {
			continue
		}
		report, _ := Compute(cluster, options)
		for i := range report.Services {
			service := &report.Services[i]
			namespace, name, _ := strings.Cut(service.Service, "/")
			object := cluster.Service(model.ObjectName{Namespace: namespace, Name: name})
			parsed, _ := convert.Service(object, cluster.view)
			now, bound := &service.Projections[0], uint64(120)
			if now.PlannedWith != "" {
				bound = parsed.Topology.MaxLoad
			}
			if isMissed := now.PlannedWith != "" && !now.keepsBound(bound); isMissed {
				missed++
				if !slices.ContainsFunc(service.Causes, func(generator Problem) bool { return generator.Code == boundMissed }) {
					t.Errorf("seed %d: %s misses its bound, and no cause is reported", seed, service.Service)
				}
				if then := service.asMeasured; service.Advice == nil && then != nil && then.keepsBound(bound) && then.Refused <= now.Refused {
					t.Errorf("seed %d: %s misses its bound, and there is no advice, although measured demand keeps it: %+v", seed, service.Service, then)
				}
			}
			if service.Advice == nil {
				continue
			}
			after, err := cluster.Apply([]Change{replaceService{patched(t, object, service.Advice.Patch)}})
			if err != nil {
				t.Fatal(err)
			}
			promised := service.projection(service.Advice.Setting)
			if service.Advice.Setting == policy.Measured {
				promised = service.asMeasured
				if row := service.projection("120%" + measuredSuffix); row != nil && row.Note == "" && bound == 120 && row.Shares != promised.Shares {
					t.Errorf("seed %d: %s: the advice promises %+v, and the projection is %+v", seed, service.Service, promised, row)
				}
			}
			if strings.Contains(service.Advice.Patch, policy.DemandSourceAnnotation) {
				after.demands = map[model.ObjectName]*model.Demand{nameOf(object): options.Demand.serviceDemand(service.Service)}
			}
			then := options
			then.Only = explain.Query{Service: nameOf(object)}
			followed, _ := Compute(after, then)
			got := &followed.Services[0].Projections[0]
			if !got.keepsBound(bound) || got.Shares != promised.Shares || got.Busiest.Load != promised.Busiest.Load {
				t.Errorf("seed %d: %s: %s\n%spromised %+v, got %+v", seed, service.Service, service.Advice.Sentence, service.Advice.Patch, promised,
					got)
			}
			if again := followed.Services[0].Advice; again != nil && again.Setting == service.Advice.Setting {
				t.Errorf("seed %d: %s is advised again: %s", seed, again.Setting, again.Sentence)
			}
			advised[service.Advice.Setting]++
		}
		if t.Failed() {
			return
		}
	}
	if missed < 30 || advised["120%"] < 5 || advised["120%"+measuredSuffix] < 30 ||
		advised[policy.Measured] < 10 || advised[policy.PreferSameZone] < 10 {
		t.Errorf("too few cases: advice %v, %d missed bounds", advised, missed)
	}
}
