package forecast

import (
	"cmp"
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// changeOf returns the objects in the form that proxies convert them to.
func changeOf(t *testing.T, objects convert.Objects) model.Change {
	t.Helper()
	var change model.Change
	put := func(kind *convert.Kind, object convert.Object) {
		value, errs := kind.Convert(object, convert.View{WithHeadless: true})
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		kind.Apply(&change, model.ObjectName{Namespace: object.GetNamespace(), Name: object.GetName()}, value)
	}
	change.Demotions = map[model.DemotionKey]*model.Demotion{}
	for _, node := range objects.Nodes {
		put(convert.Nodes, node)
		change.Demotions[model.DemotionKey{Node: node.Name}] = model.Evacuated.FromLabels(node.Labels)
	}
	for _, service := range objects.Services {
		put(convert.Services, service)
	}
	for _, slice := range objects.Slices {
		put(convert.EndpointSlices, slice)
	}
	change.AllNodes = new(true)
	return change
}

// average is the mean of the results of explain on all nodes for the ClusterIP of a Service.
type average struct {
	demand, refused float64
	onlyEvacuated   float64
	byKey, loads    map[string]float64
}

func averageOverNodes(t *testing.T, objects convert.Objects, service model.ObjectName, demand func(node string) float64) average {
	t.Helper()
	state, sums := changeOf(t, objects), average{byKey: map[string]float64{}, loads: map[string]float64{}}
	for _, node := range objects.Nodes {
		if demand(node.Name) == 0 {
			continue
		}
		cluster := model.NewCluster(node.Name)
		cluster.Apply(state)
		ports := explain.Clients{}.Ports(cluster, explain.Query{Service: service})
		if len(ports) == 0 {
			t.Fatalf("explain lacks %s", service)
		}
		port, nodeDemand := &ports[0], demand(node.Name)
		choice := &port.Cluster
		if port.Local != nil {
			choice = port.Local
		}
		sums.demand += nodeDemand
		if port.Outcome != "balance" && port.Outcome != "answer" {
			sums.refused += nodeDemand
			continue
		}
		if choice.Reason == "OnlyEvacuated" {
			sums.onlyEvacuated += nodeDemand
		}
		for _, share := range choice.Shares {
			sums.byKey[share.Key] += nodeDemand * share.Share
		}
		totalSlots := 0
		for _, slots := range choice.Slots {
			totalSlots += slots
		}
		for endpoint, slots := range choice.Slots {
			sums.loads[endpoint] += nodeDemand * float64(slots) / float64(totalSlots)
		}
	}
	return sums
}

// TestAForecastIsTheAverageOfExplain: forecast and the average of explain are equal, apart from rounding. With a load
// bound only the shares of keys are compared, because slots are rounded. Another test covers the expected loads that
// explain prints (selection/simulate).
func TestAForecastIsTheAverageOfExplain(t *testing.T) {
	compared := map[string]int{}
	for seed := range uint64(3000) {
		generator := newGenerator(seed)
		objects := generator.cluster()
		report, rejected := Compute(NewCluster(objects, convert.View{}), Options{Now: time.Now(), OnlyNow: true})
		if len(rejected) > 0 {
			t.Fatal(rejected)
		}
		if len(report.Services)+len(report.NotServed) != len(objects.Services) {
			t.Fatalf("seed %d: %d served and %d not served, of %d Services", seed, len(report.Services), len(report.NotServed),
				len(objects.Services))
		}
		for i := range report.Services {
			service := &report.Services[i]
			compared[compareService(t, seed, objects, service)]++
			if listed := shareOfEvacuated(report, service.Service); listed != service.Projections[0].evacuated {
				t.Errorf("seed %d, %s: OnlyEvacuated has the share %v, want %v", seed, service.Service, listed, service.Projections[0].evacuated)
			} else if listed > 0 {
				compared["only evacuated"]++
			}
		}
		if t.Failed() {
			return
		}
	}
	for _, kind := range []string{"plain", "keys", "bound", "local", "headless", "only evacuated"} {
		if compared[kind] < 200 {
			t.Errorf("compared only %d Services of kind %s", compared[kind], kind)
		}
	}
}

// shareOfEvacuated returns the report's share of a Service with only evacuated endpoints; 0 if it is not listed.
func shareOfEvacuated(report Report, service string) float64 {
	for _, entry := range report.OnlyEvacuated {
		if entry.Service == service {
			return entry.Share
		}
	}
	return 0
}

// compareService compares one Service, and returns its kind.
func compareService(t *testing.T, seed uint64, objects convert.Objects, got *Service) string {
	t.Helper()
	var service *corev1.Service
	for _, candidate := range objects.Services {
		if "shop/"+candidate.Name == got.Service {
			service = candidate
		}
	}
	_, hasKeys := service.Annotations[policy.TopologyKeysAnnotation]
	_, isBound := service.Annotations[policy.MaxLoadAnnotation]
	isLocal := service.Spec.InternalTrafficPolicy != nil
	if got.Headless && !hasKeys {
		return "headless without keys" // explain has no decision about them
	}
	want := averageOverNodes(t, objects, model.ObjectName{Namespace: "shop", Name: service.Name}, demandByNode(objects, service))
	now := &got.Projections[0]
	expectEqual := func(what string, got, want float64) {
		if math.Abs(got-want) > 1e-8 { // a report has nine digits
			t.Errorf("seed %d, %s, %s: %v, explain: %v", seed, service.Name, what, got, want)
		}
	}
	expectEqual("refused", now.Refused, want.refused/want.demand)
	if want.refused == want.demand {
		return "refused"
	}
	expectEqual("only evacuated", now.evacuated, want.onlyEvacuated/want.demand)
	for _, key := range now.Keys {
		expectEqual(key.Key, key.Share, want.byKey[key.Key]/want.demand)
	}
	if isBound && !isLocal {
		return "bound"
	}
	used, sum := 0, 0.0
	for i, load := range now.Loads {
		sum += load
		if load > 0 {
			used++
		}
		expectEqual(got.Endpoints[i].Address, load*meanConnections(now.Loads, got.Endpoints, want.loads), want.loads[got.Endpoints[i].Address])
	}
	if used != len(want.loads) {
		t.Errorf("seed %d, %s: %d endpoints are used, explain: %d", seed, service.Name, used, len(want.loads))
	}
	switch {
	case isLocal:
		return "local"
	case got.Headless:
		return "headless"
	case hasKeys:
		return "keys"
	}
	return "plain"
}

// meanConnections returns the number of connections of a load of 1, which is the mean.
func meanConnections(loads []float64, endpoints []Endpoint, want map[string]float64) float64 {
	sum, all := 0.0, 0.0
	for i := range endpoints {
		sum += loads[i]
		all += want[endpoints[i].Address]
	}
	return all / sum
}

// demandByNode returns a node's demand on a Service: by its label, or by the named clients.
func demandByNode(objects convert.Objects, service *corev1.Service) func(node string) float64 {
	byLabel, byClients, labelSum := map[string]float64{}, map[string]float64{}, 0.0
	for _, node := range objects.Nodes {
		weight := 1.0
		if label, has := node.Labels[policy.DemandLabel]; has {
			demand, _ := policy.ParseDemand(label)
			weight = float64(demand)
		}
		byLabel[node.Name] = weight
		labelSum += weight
	}
	if labelSum == 0 {
		for node := range byLabel {
			byLabel[node] = 1
		}
	}
	if service.Annotations[policy.ClientsAnnotation] == "" || service.Annotations[policy.MaxLoadAnnotation] == "" {
		return func(node string) float64 { return byLabel[node] }
	}
	for _, slice := range objects.Slices {
		for _, endpoint := range slice.Endpoints {
			_, isKnown := byLabel[*endpoint.NodeName]
			if slice.Labels[discoveryv1.LabelServiceName] == "web-0" && *endpoint.Conditions.Ready && isKnown {
				byClients[*endpoint.NodeName]++
			}
		}
	}
	if len(byClients) == 0 {
		return func(node string) float64 { return byLabel[node] }
	}
	return func(node string) float64 { return cmp.Or(byClients[node], 0) }
}
