package forecast

import (
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/endpointslice/topologycache"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// The EndpointSlice controller gives each zone a share of the endpoints equal to its share of the processors. Among
// zones with an equal deficit or excess it selects the first one in a Go map. So there are several valid results.
// Forecasts of the same objects must be the same: here zones are in the order of their names.

// overloadThreshold is the controller's overloadThreshold: if an endpoint would get that much more than others, the
// controller sets no hints.
const overloadThreshold = 0.2

// cpuShares returns each zone's share of all processors, over the nodes that the controller counts. It is
// meaningful only if the controller sets hints: then each of those nodes has a zone.
func cpuShares(nodes []*corev1.Node) map[string]float64 {
	shares, total := map[string]float64{}, 0.0
	for _, node := range nodes {
		if isControlPlane(node) || !isReady(node) {
			continue
		}
		processors := float64(node.Status.Allocatable.Cpu().MilliValue())
		shares[node.Labels[string(policy.Zone)]] += processors
		total += processors
	}
	for zone := range shares {
		shares[zone] /= total
	}
	return shares
}

func isControlPlane(node *corev1.Node) bool {
	_, hasLabel := node.Labels[policy.ControlPlaneLabel]
	_, hasOldLabel := node.Labels["node-role.kubernetes.io/master"]
	return hasLabel || hasOldLabel
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// rebalance reassigns the hints of slices that the controller rewrote, by its rules but deterministically. Other slices
// keep theirs.
func (c hintController) rebalance(updated, unchanged []*discoveryv1.EndpointSlice) {
	hinted, ready := map[string]int{}, 0
	for endpoint := range readyIn(unchanged) {
		ready++
		for _, zone := range endpoint.Hints.ForZones {
			hinted[zone.Name]++
		}
	}
	for endpoint := range readyIn(updated) {
		ready++
		hinted[*endpoint.Zone]++
		endpoint.Hints = hintFor(*endpoint.Zone)
	}
	giving, receiving := c.exchange(hinted, ready)
	for endpoint := range readyIn(updated) {
		if len(giving) == 0 || len(receiving) == 0 {
			return
		}
		if from := *endpoint.Zone; giving[from] > 0 {
			to := slices.Sorted(maps.Keys(receiving))[0]
			endpoint.Hints = hintFor(to)
			decrement(giving, from)
			decrement(receiving, to)
		}
	}
}

// exchange returns how many endpoints zones give to others, and how many they receive.
func (c hintController) exchange(hinted map[string]int, ready int) (giving, receiving map[string]int) {
	over, under := map[string]float64{}, map[string]float64{}
	for zone, share := range c.cpuShares {
		expected := share * float64(ready)
		expected = max(expected, math.Ceil(expected*(1/(1+overloadThreshold))))
		switch count := float64(hinted[zone]); {
		case count > expected:
			over[zone] = count - expected
		case count < expected:
			under[zone] = expected - count
		}
	}
	giving, receiving = map[string]int{}, map[string]int{}
	for len(over) > 0 && len(under) > 0 {
		from, to := largestZone(over), largestZone(under)
		if gives, takes := over[from], under[to]; gives < 1 && takes < 1 || gives < 0.5 || takes < 0.5 {
			break
		}
		giving[from]++
		receiving[to]++
		over[from]--
		under[to]--
	}
	return giving, receiving
}

// largestZone returns the zone with the largest number, the first of those by name.
func largestZone(numbers map[string]float64) (zone string) {
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		if zone == "" || numbers[name] > numbers[zone]+roundingError {
			zone = name
		}
	}
	return zone
}

// roundingError is less than any real difference between zones, and more than the floating-point error between equal ones.
const roundingError = 1e-9

func decrement(numbers map[string]int, zone string) {
	if numbers[zone]--; numbers[zone] == 0 {
		delete(numbers, zone)
	}
}

func hintFor(zone string) *discoveryv1.EndpointHints {
	return &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
}

// readyIn yields the ready endpoints of slices, in their order.
func readyIn(list []*discoveryv1.EndpointSlice) func(yield func(*discoveryv1.Endpoint) bool) {
	return func(yield func(*discoveryv1.Endpoint) bool) {
		for _, slice := range list {
			for i := range slice.Endpoints {
				if endpoint := &slice.Endpoints[i]; topologycache.EndpointReady(*endpoint) && !yield(endpoint) {
					return
				}
			}
		}
	}
}
