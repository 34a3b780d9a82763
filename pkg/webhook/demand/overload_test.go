package demand

import (
	"errors"
	"fmt"
	"math"
	"slices"
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
		got := overloadOf(topology, labelsOf(c.nodes...), endpointsIn(slicesOf(c.endpoints...)), c.shares)
		if math.Abs(got.Load-c.load) > 0.01 || got.Zone != c.zone || got.Load > 0 && got.Limit != 1.2 {
			t.Errorf("%s: %+v, want a load of %.2f in zone %q", name, got, c.load, c.zone)
		}
	}
	if got := overloadOf(policy.Topology{}, labelsOf(1), endpointsIn(slicesOf(1)), map[string]float64{"a": 1}); got != (Overload{}) {
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

// TestOverloadChecks checks which Services are checked, and that each round lists the endpoints of a few.
func TestOverloadChecks(t *testing.T) {
	const count = 25
	api := fake.NewClientset(&slicesOf(3, 3)[0])
	var checker overloadChecker
	checker.slices = api.DiscoveryV1()
	services := map[string]*corev1.Service{}
	newRound := func() Round {
		round := Round{Services: map[string]Report{}}
		for number := range count {
			services[fmt.Sprintf("shop/web-%02d", number)] = service(fmt.Sprintf("web-%02d", number), "1")
		}
		for name := range services {
			round.Services[name] = Report{
				Decision: Decision{Shares: map[string]float64{"a": 1}, ConnectionsPerMinute: 6000}, MaxSkew: 2, MostSkewedZone: "a",
			}
		}
		return round
	}
	services["shop/web"] = service("web", "1")
	check := func(now time.Time, round Round) []string {
		t.Helper()
		api.ClearActions()
		err := checker.check(t.Context(), now, round, services, (&Options{}).topologyOf, labelsOf(2, 2))
		if err != nil {
			t.Fatal(err)
		}
		var listed []string
		for _, action := range api.Actions() {
			listed = append(listed, action.(clienttesting.ListAction).GetListRestrictions().Labels.String())
		}
		slices.Sort(listed)
		return listed
	}
	all := map[string]bool{}
	for number := range 3 {
		listed := check(midnight.Add(time.Duration(number)*time.Minute), newRound())
		if len(listed) != maxChecksPerRound {
			t.Errorf("round %d lists the endpoints of %d Services, want %d", number, len(listed), maxChecksPerRound)
		}
		for _, selector := range listed {
			all[selector] = true
		}
	}
	round := newRound()
	check(midnight.Add(time.Hour), round)
	if len(all) != count+1 || round.Services["shop/web"].Overload != (Overload{Load: 2, Limit: 1.2, Zone: "a"}) {
		t.Errorf("%d Services were checked, want %d; shop/web: %+v", len(all), count+1, round.Services["shop/web"].Overload)
	}
	// Little skew, or few connections.
	round = newRound()
	for name, report := range round.Services {
		if report.MaxSkew = 1.25; name == "shop/web" {
			report.MaxSkew, report.ConnectionsPerMinute = 2, 100
		}
		round.Services[name] = report
	}
	if listed := check(midnight.Add(2*time.Hour), round); len(listed) > 0 || len(checker.checked) > 0 || round.Services["shop/web"].Overload.Ratio() != 0 {
		t.Errorf("listed %v, %d results remain, shop/web: %+v", listed, len(checker.checked), round.Services["shop/web"].Overload)
	}
	api.PrependReactor("list", "endpointslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("forbidden")
	})
	err := checker.check(t.Context(), midnight.Add(3*time.Hour), newRound(), services, (&Options{}).topologyOf, labelsOf(2, 2))
	if err == nil || !strings.Contains(err.Error(), "list the EndpointSlices of Service shop/web") {
		t.Errorf("error %v, want the denied list", err)
	}
}
