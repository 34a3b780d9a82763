package overload

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// labelsOf returns the labels of nodes, given the number of nodes of zones a, b, and so on.
func labelsOf(zones ...int) map[string]map[string]string {
	labels := map[string]map[string]string{}
	for zone, count := range zones {
		for i := range count {
			labels[fmt.Sprintf("%c-%d", 'a'+zone, i)] = map[string]string{string(policy.Zone): string(rune('a' + zone))}
		}
	}
	return labels
}

// slicesOf returns EndpointSlices of shop/web with endpoints on the first node of zones a, b, and so on.
func slicesOf(endpoints ...int) []discoveryv1.EndpointSlice {
	slice := discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for zone, count := range endpoints {
		for i := range count {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{fmt.Sprintf("10.0.%d.%d", zone, i)}, NodeName: new(fmt.Sprintf("%c-0", 'a'+zone)),
			})
		}
	}
	return []discoveryv1.EndpointSlice{slice}
}

// TestOverload checks what a bound that is planned with assumed demand results in. In a cluster of two equal zones no
// zone can have more than twice its assumed share.
func TestOverload(t *testing.T) {
	keys := []policy.Key{policy.Zone, policy.AnyNode}
	for name, c := range map[string]struct {
		nodes, endpoints []int
		keys             []policy.Key
		shares           map[string]float64
		load             float64
		zone             string
	}{
		"two equal zones, one of them":   {[]int{2, 2}, []int{3, 3}, keys, map[string]float64{"a": 1}, 2, "a"},
		"two equal zones, as assumed":    {[]int{2, 2}, []int{3, 3}, keys, map[string]float64{"a": 0.5, "b": 0.5}, 1, "a"},
		"few endpoints, 80 % of clients": {[]int{2, 2, 2}, []int{6, 1, 1}, keys, map[string]float64{"a": 0.1, "b": 0.8, "c": 0.1}, 2.88, "b"},
		"only any node":                  {[]int{2, 2}, []int{3, 3}, keys[1:], map[string]float64{"a": 1}, 1, "a"},
		"no endpoints":                   {[]int{2, 2}, nil, keys, map[string]float64{"a": 1}, 0, ""},
		"a zone without nodes":           {[]int{2, 2}, []int{3, 3}, keys, map[string]float64{"z": 1}, 0, ""},
	} {
		topology := policy.Topology{Keys: c.keys, MaxLoad: 120}
		got := Demand{Topology: topology, Shares: c.shares}.check(labelsOf(c.nodes...), endpointsIn(slicesOf(c.endpoints...)))
		if math.Abs(got.Load-c.load) > 0.01 || got.Zone != c.zone || got.Load > 0 && got.Limit != 1.2 {
			t.Errorf("%s: %+v, want a load of %.2f in zone %q", name, got, c.load, c.zone)
		}
	}
	if got := (Demand{Shares: map[string]float64{"a": 1}}).check(labelsOf(1), endpointsIn(slicesOf(1))); got != (Result{}) {
		t.Errorf("without a bound: %+v", got)
	}
}

func TestEndpointsAreReadyAndOfOneFamily(t *testing.T) {
	all := slicesOf(4)
	all[0].Endpoints[0].Conditions.Ready = new(false)
	all[0].Endpoints[1].Conditions.Ready = new(true)
	all[0].Endpoints[2].Addresses = []string{"invalid"}
	all[0].Endpoints[3].Zone = new("z")
	sameForOtherPort, ipv6 := all[0].DeepCopy(), all[0].DeepCopy()
	ipv6.AddressType = discoveryv1.AddressTypeIPv6
	var got []string
	for _, endpoint := range endpointsIn(append(all, *sameForOtherPort, *ipv6)) {
		got = append(got, endpoint.Addr.Addr().String()+" "+endpoint.Node+" "+endpoint.Zone)
	}
	if strings.Join(got, ", ") != "10.0.0.1 a-0 , 10.0.0.3 a-0 z" {
		t.Errorf("endpoints: %q", got)
	}
}

// TestChecksPerCallAreLimited checks that each call lists the endpoints of some Services, in turns.
func TestChecksPerCallAreLimited(t *testing.T) {
	const count = 25
	api := fake.NewClientset(&slicesOf(3, 3)[0])
	checker, demands := Checker{Slices: api.DiscoveryV1()}, map[string]Demand{}
	add := func(name string) {
		demands["shop/"+name] = Demand{
			Service:  &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}},
			Topology: policy.Topology{Keys: []policy.Key{policy.Zone, policy.AnyNode}, MaxLoad: 120}, Shares: map[string]float64{"a": 1},
		}
	}
	for number := range count {
		add(fmt.Sprintf("web-%02d", number))
	}
	add("web")
	all := map[string]bool{}
	for number := range 3 {
		api.ClearActions()
		results, err := checker.Check(t.Context(), time.Unix(int64(number), 0), demands, labelsOf(2, 2))
		if err != nil || len(results) != len(demands) || len(api.Actions()) != maxChecks {
			t.Errorf("call %d: %d results after %d lists, error %v; want %d after %d", number, len(results), len(api.Actions()), err,
				len(demands), maxChecks)
		}
		for _, action := range api.Actions() {
			all[action.(clienttesting.ListAction).GetListRestrictions().Labels.String()] = true
		}
		if got := results["shop/web"]; got != (Result{Load: 2, Limit: 1.2, Zone: "a"}) {
			t.Errorf("call %d: %+v", number, got)
		}
	}
	if len(all) != len(demands) {
		t.Errorf("%d Services were checked, want %d", len(all), len(demands))
	}
	api.PrependReactor("list", "endpointslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("forbidden")
	})
	clear(demands)
	add("web")
	add("db")
	results, err := checker.Check(t.Context(), time.Unix(9, 0), demands, labelsOf(2, 2))
	if err == nil || !strings.Contains(err.Error(), "list the EndpointSlices of Service shop/db: forbidden") || len(checker.checked) != 2 {
		t.Errorf("error %v, %d results are kept; want the denied list, and 2", err, len(checker.checked))
	}
	if results["shop/web"].Load != 2 || results["shop/db"].Ratio() != 0 {
		t.Errorf("results %+v, want the last one of web, and none of db", results)
	}
}
