package forecast

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/endpointslice/topologycache"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
)

// zonedNodes returns ready nodes in up to four zones, with a few processors each.
func zonedNodes(random *rand.Rand) []*corev1.Node {
	var nodes []*corev1.Node
	for zone := range 2 + random.IntN(3) {
		for i := range 1 + random.IntN(2) {
			node := objects.Node(fmt.Sprint("node-", zone, i), map[string]string{string(policy.Zone): fmt.Sprint("zone-", zone)})
			node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(2+2*random.IntN(2)), resource.DecimalSI)}
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			if random.IntN(8) == 0 {
				node.Labels[policy.ControlPlaneLabel] = ""
			}
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// zonedSlices returns one or two slices of a Service; some have hints.
func zonedSlices(random *rand.Rand) []*discoveryv1.EndpointSlice {
	var list []*discoveryv1.EndpointSlice
	for sliceIndex := range 1 + random.IntN(2) {
		slice := objects.Slice("shop", fmt.Sprint("web-", sliceIndex), "web")
		slice.Labels[discoveryv1.LabelManagedBy] = managedByController
		hasHints := random.IntN(3) == 0
		for i := range 2 + random.IntN(6) {
			endpoint := discoveryv1.Endpoint{
				Addresses: []string{fmt.Sprintf("10.0.%d.%d", sliceIndex, i)}, Zone: new(fmt.Sprint("zone-", random.IntN(3))),
				Conditions: discoveryv1.EndpointConditions{Ready: new(random.IntN(6) > 0)},
			}
			if hasHints {
				endpoint.Hints = hintFor(fmt.Sprint("zone-", random.IntN(3)))
			}
			slice.Endpoints = append(slice.Endpoints, endpoint)
		}
		list = append(list, slice)
	}
	return list
}

// hintsIn formats the hints of slices, independently of their order.
func hintsIn(list []*discoveryv1.EndpointSlice) string {
	var lines []string
	for endpoint := range readyIn(list) {
		line := endpoint.Addresses[0]
		if endpoint.Hints != nil {
			line += fmt.Sprint(endpoint.Hints.ForZones)
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return fmt.Sprint(lines)
}

// TestAutoIsOneOfTheControllersResults: the controller's own package gives several results for the same objects, at
// random. The forecast gives one of them, and always the same.
func TestAutoIsOneOfTheControllersResults(t *testing.T) {
	random := rand.New(rand.NewPCG(34, 7))
	service := objects.Service("shop", "web", objects.Annotated(policy.TopologyModeAnnotation, policy.ModeAuto))
	hinted, ambiguous := 0, 0
	for round := range 2000 {
		nodes, endpointSlices := zonedNodes(random), zonedSlices(random)
		controller := newHintController(nodes)
		list, noHintsReason := controller.hint(service, endpointSlices)
		got := hintsIn(list)
		if noHintsReason == "" {
			hinted++
		}
		results := map[string]bool{}
		for try := 0; try < 20 || try < 5000 && !results[got]; try++ {
			cache := topologycache.NewTopologyCache()
			cache.SetNodes(logr.Discard(), nodes)
			sliceInfo := &topologycache.SliceInfo{ServiceKey: "shop/web", AddressType: discoveryv1.AddressTypeIPv4,
				Unchanged: slices.Clone(endpointSlices)}
			_, updated, _ := cache.AddHints(logr.Discard(), sliceInfo)
			results[hintsIn(slices.Concat(updated, sliceInfo.Unchanged))] = true
			if list, _ := newHintController(nodes).hint(service, endpointSlices); hintsIn(list) != got {
				t.Fatalf("round %d: %s, and then %s", round, got, hintsIn(list))
			}
		}
		if len(results) > 1 {
			ambiguous++
		}
		if !results[got] {
			t.Fatalf("round %d: %s is not one of the controller's results: %v", round, got, results)
		}
	}
	if hinted < 200 || ambiguous < 50 {
		t.Errorf("only %d of 2,000 results have hints, and only in %d rounds the controller has several results", hinted, ambiguous)
	}
}

// TestAForecastIsTheSameEachTime: two forecasts of the same objects and the same measurement are equal.
func TestAForecastIsTheSameEachTime(t *testing.T) {
	random := rand.New(rand.NewPCG(34, 8))
	for round := range 50 {
		clusterObjects := convert.Objects{Nodes: zonedNodes(random)}
		byService, traffic := map[string]Weights{"shop/web-0": {}}, Traffic{}
		for i := range 4 {
			service := objects.Service("shop", fmt.Sprint("web-", i), func(s *corev1.Service) { s.Spec.ClusterIP = fmt.Sprint("10.96.0.", i+1) })
			clusterObjects.Services = append(clusterObjects.Services, service)
			for _, slice := range zonedSlices(random) {
				slice.Name, slice.Labels[discoveryv1.LabelServiceName] = service.Name+slice.Name, service.Name
				clusterObjects.Slices = append(clusterObjects.Slices, slice)
			}
			traffic["shop/"+service.Name] = random.Float64()
		}
		demand := Weights{}
		for _, node := range clusterObjects.Nodes {
			demand[node.Name], byService["shop/web-0"][node.Name] = random.Float64(), random.Float64()
		}
		var first string
		for range 5 {
			cluster := NewCluster(clusterObjects, convert.View{})
			measurement, err := newMeasurement("demand.json", demand, byService, cluster)
			if err != nil {
				t.Fatal(err)
			}
			report, _ := Compute(cluster, Options{Now: time.Unix(0, 0), Bounds: []uint64{120}, Demand: measurement})
			report.EstimateCost(traffic, 0.01)
			text, err := json.Marshal(report)
			if err != nil {
				t.Fatal(err)
			}
			if first == "" {
				first = string(text)
			}
			if string(text) != first {
				t.Fatalf("round %d: two forecasts of the same objects differ:\n%s\n%s", round, first, text)
			}
		}
	}
}
