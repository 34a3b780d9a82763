package model

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var (
	web     = ServicePort{Name: "web", Protocol: TCP, Port: 80}
	webPort = SlicePort{Name: "web", Protocol: TCP, Port: 8080}

	compareAddrs = cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{})
)

// entry returns a ready endpoint. The name of its node identifies it in the test.
func entry(addr, node string) SliceEndpoint {
	return SliceEndpoint{Addr: netip.MustParseAddr(addr), Endpoint: Endpoint{Node: node, Ready: true, Serving: true}}
}

func unready(e SliceEndpoint) SliceEndpoint { e.Ready = false; return e }

func notServing(e SliceEndpoint) SliceEndpoint { e.Serving = false; return e }

func terminating(e SliceEndpoint) SliceEndpoint { e.Terminating = true; return e }

func webSlice(endpoints ...SliceEndpoint) *EndpointSlice {
	return &EndpointSlice{Ports: []SlicePort{webPort}, Endpoints: endpoints}
}

func TestEndpointsMatchesPorts(t *testing.T) {
	metrics := SlicePort{Name: "metrics", Protocol: TCP, Port: 9090}
	tests := map[string]struct {
		slices []*EndpointSlice
		want   []string
	}{
		"no slices": {},
		"the port number is the slice's, not the Service's": {
			slices: []*EndpointSlice{webSlice(entry("10.0.0.1", "a"))},
			want:   []string{"10.0.0.1:8080"},
		},
		"two slices are merged": {
			slices: []*EndpointSlice{webSlice(entry("10.0.0.2", "a")), webSlice(entry("10.0.0.1", "a"))},
			want:   []string{"10.0.0.1:8080", "10.0.0.2:8080"},
		},
		"another port of the slice is ignored": {
			slices: []*EndpointSlice{{Ports: []SlicePort{metrics, webPort}, Endpoints: []SliceEndpoint{entry("10.0.0.1", "a")}}},
			want:   []string{"10.0.0.1:8080"},
		},
		"a slice without the port has no endpoints": {
			slices: []*EndpointSlice{{Ports: []SlicePort{metrics}, Endpoints: []SliceEndpoint{entry("10.0.0.1", "a")}}},
		},
		"a port with the same name and another protocol is ignored": {
			slices: []*EndpointSlice{{
				Ports:     []SlicePort{{Name: "web", Protocol: UDP, Port: 8080}},
				Endpoints: []SliceEndpoint{entry("10.0.0.1", "a")},
			}},
		},
		"each slice may have another port number": {
			slices: []*EndpointSlice{
				webSlice(entry("10.0.0.1", "a")),
				{Ports: []SlicePort{{Name: "web", Protocol: TCP, Port: 9999}}, Endpoints: []SliceEndpoint{entry("10.0.0.1", "a")}},
			},
			want: []string{"10.0.0.1:8080", "10.0.0.1:9999"},
		},
		"a slice of the other family is ignored": {
			slices: []*EndpointSlice{
				webSlice(entry("10.0.0.1", "a")),
				{Family: IPv6, Ports: []SlicePort{webPort}, Endpoints: []SliceEndpoint{entry("fd00::1", "a")}},
			},
			want: []string{"10.0.0.1:8080"},
		},
		"addresses are sorted numerically": {
			slices: []*EndpointSlice{webSlice(entry("10.0.0.10", "a"), entry("10.0.0.9", "a"))},
			want:   []string{"10.0.0.9:8080", "10.0.0.10:8080"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, endpoint := range endpointsOf(web, test.slices) {
				got = append(got, endpoint.Addr.String())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("endpoints differ (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDuplicateEntriesAreResolvedByPrecedence: each case has two or more entries for one address. The first entry must
// take precedence, whatever their order in slices.
func TestDuplicateEntriesAreResolvedByPrecedence(t *testing.T) {
	zoned := entry("10.0.0.1", "a")
	zoned.Zone = "z"
	hinted := entry("10.0.0.1", "a")
	hinted.HintZones = []string{"a"}
	tests := map[string][]SliceEndpoint{
		"an entry that is not terminating": {
			entry("10.0.0.1", "z"), terminating(entry("10.0.0.1", "a")),
		},
		"an entry that is not terminating, even if it is not ready yet": {
			notServing(unready(entry("10.0.0.1", "z"))), terminating(entry("10.0.0.1", "a")),
		},
		"a ready entry": {
			entry("10.0.0.1", "z"), unready(entry("10.0.0.1", "a")),
		},
		"a serving entry": {
			unready(entry("10.0.0.1", "z")), notServing(unready(entry("10.0.0.1", "a"))),
		},
		"a terminating entry that serves": {
			terminating(unready(entry("10.0.0.1", "z"))), terminating(notServing(unready(entry("10.0.0.1", "a")))),
		},
		"the lexically first node among equals": {
			entry("10.0.0.1", "a"), entry("10.0.0.1", "b"), entry("10.0.0.1", "c"),
		},
		"the lexically first zone among equals": {
			entry("10.0.0.1", "a"), zoned,
		},
		"the lexically first hints among equals": {
			entry("10.0.0.1", "a"), hinted,
		},
		"identical entries": {
			entry("10.0.0.1", "a"), entry("10.0.0.1", "a"),
		},
	}
	for name, entries := range tests {
		t.Run(name, func(t *testing.T) {
			want := []PortEndpoint{{Addr: netip.MustParseAddrPort("10.0.0.1:8080"), Endpoint: entries[0].Endpoint}}
			backwards := slices.Clone(entries)
			slices.Reverse(backwards)
			for _, order := range [][]SliceEndpoint{entries, backwards} {
				if diff := cmp.Diff(want, endpointsOf(web, []*EndpointSlice{webSlice(order...)}), compareAddrs); diff != "" {
					t.Errorf("in one slice, endpoints differ (-want +got):\n%s", diff)
				}
				var separate []*EndpointSlice
				for _, e := range order {
					separate = append(separate, webSlice(e))
				}
				if diff := cmp.Diff(want, endpointsOf(web, separate), compareAddrs); diff != "" {
					t.Errorf("in separate slices, endpoints differ (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestEndpointsDoesNotDependOnAnyOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		endpointSlices := randomSlices(random)
		want := endpointsOf(web, endpointSlices)
		if !slices.IsSortedFunc(want, func(a, b PortEndpoint) int { return a.Addr.Compare(b.Addr) }) {
			t.Fatalf("endpoints are not sorted: %v", want)
		}
		random.Shuffle(len(endpointSlices), func(i, j int) {
			endpointSlices[i], endpointSlices[j] = endpointSlices[j], endpointSlices[i]
		})
		for _, slice := range endpointSlices {
			random.Shuffle(len(slice.Ports), func(i, j int) { slice.Ports[i], slice.Ports[j] = slice.Ports[j], slice.Ports[i] })
			random.Shuffle(len(slice.Endpoints), func(i, j int) {
				slice.Endpoints[i], slice.Endpoints[j] = slice.Endpoints[j], slice.Endpoints[i]
			})
		}
		if diff := cmp.Diff(want, endpointsOf(web, endpointSlices), compareAddrs); diff != "" {
			t.Fatalf("endpoints depend on the order (-first +second):\n%s", diff)
		}
	}
}

// randomSlices uses so few addresses, nodes, zones and hints that most entries collide.
func randomSlices(random *rand.Rand) []*EndpointSlice {
	names := []string{"", "a", "b"}
	endpointSlices := make([]*EndpointSlice, 1+random.IntN(4))
	for i := range endpointSlices {
		slice := &EndpointSlice{Ports: []SlicePort{webPort, {Name: "web", Protocol: TCP, Port: 8081}}[:1+random.IntN(2)]}
		endpointSlices[i] = slice
		for range random.IntN(12) {
			endpoint := entry("10.0.0.0", names[random.IntN(3)])
			endpoint.Addr = netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(4))})
			endpoint.Zone = names[random.IntN(3)]
			endpoint.Ready, endpoint.Serving, endpoint.Terminating = random.IntN(2) == 0, random.IntN(2) == 0, random.IntN(2) == 0
			if random.IntN(2) == 0 {
				endpoint.HintZones = []string{names[random.IntN(3)]}
			}
			slice.Endpoints = append(slice.Endpoints, endpoint)
		}
	}
	return endpointSlices
}

func BenchmarkEndpoints(b *testing.B) {
	endpointSlices := []*EndpointSlice{webSlice(), webSlice()}
	for i := range 10 {
		endpoint := entry("10.0.0.1", "node-1")
		endpoint.Addr = netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
		slice := endpointSlices[i%2]
		slice.Endpoints = append(slice.Endpoints, endpoint)
	}
	b.ReportAllocs()
	for b.Loop() {
		if got := endpointsOf(web, endpointSlices); len(got) != 10 {
			b.Fatalf("got %d endpoints, want 10", len(got))
		}
	}
}

// TestEndpointsOfAServiceAreLimited: the ports of a Service share the limit of endpoints equally.
func TestEndpointsOfAServiceAreLimited(t *testing.T) {
	service := ObjectName{Namespace: "default", Name: "large"}
	var endpointSlices []*EndpointSlice
	addr := netip.MustParseAddr("10.64.0.1")
	for range 10 {
		slice := &EndpointSlice{Name: service, Service: service, Ports: []SlicePort{{Name: "a", Port: 1}, {Name: "b", Port: 2}}}
		for range 1000 {
			slice.Endpoints = append(slice.Endpoints, SliceEndpoint{Addr: addr})
			addr = addr.Next()
		}
		endpointSlices = append(endpointSlices, slice)
	}
	for ports, want := range map[int]int{1: 10_000, 3: 10_000, 4: MaxPortEndpoints / 4, 8: MaxPortEndpoints / 8, 1_000_000: 1} {
		for _, port := range []ServicePort{{Name: "a"}, {Name: "b"}} {
			endpoints, skipped := join(endpointSlices, ports).Endpoints(port, IPv4)
			if len(endpoints) != want || skipped != 10_000-want {
				t.Errorf("one port of %d has %d endpoints, and %d are skipped; want %d of 10,000", ports, len(endpoints), skipped, want)
			}
		}
	}
}

// TestSlicePortsAreLimited: further slices are skipped, because a change of one slice processes the ports of all.
func TestSlicePortsAreLimited(t *testing.T) {
	service := ObjectName{Namespace: "default", Name: "large"}
	var endpointSlices []*EndpointSlice
	for i := range 10 {
		slice := &EndpointSlice{Name: service, Service: service}
		slice.Endpoints = []SliceEndpoint{{Addr: netip.AddrFrom4([4]byte{10, 64, 0, byte(i)})}}
		for port := range 20_000 {
			slice.Ports = append(slice.Ports, SlicePort{Name: strconv.Itoa(port), Port: uint16(port)})
		}
		endpointSlices = append(endpointSlices, slice)
	}
	endpoints, _ := join(endpointSlices, 1).Endpoints(ServicePort{Name: "7"}, IPv4)
	if len(endpoints) != 3 {
		t.Errorf("a port has the endpoints of %d slices with 20,000 ports each, want three", len(endpoints))
	}
}

// TestHeadlessSlicesServeOnlyHeadlessServices: a slice with the label of headless Services serves only those.
func TestHeadlessSlicesServeOnlyHeadlessServices(t *testing.T) {
	slice := func(name, addr string, isHeadless bool) *EndpointSlice {
		return &EndpointSlice{
			Name: ObjectName{"t", name}, IsHeadless: isHeadless, Ports: []SlicePort{{Protocol: TCP, Port: 80}},
			Endpoints: []SliceEndpoint{{Addr: netip.MustParseAddr(addr), Endpoint: Endpoint{Ready: true}}},
		}
	}
	endpointSlices := []*EndpointSlice{slice("a", "10.0.0.1", true), slice("b", "10.0.0.2", false)}
	port := ServicePort{Protocol: TCP, Port: 80}
	for isHeadless, want := range map[bool]int{false: 1, true: 2} {
		service := &Service{IsHeadless: isHeadless, Ports: []ServicePort{port}}
		if endpoints, _ := JoinSlices(service, endpointSlices).Endpoints(port, IPv4); len(endpoints) != want {
			t.Errorf("headless %t: endpoints %v, want %d", isHeadless, endpoints, want)
		}
	}
	if len(endpointSlices) != 2 || endpointSlices[0].Name.Name != "a" {
		t.Error("JoinSlices modified its input")
	}
}

// endpointsOf returns the IPv4 endpoints of the only port of a Service.
func endpointsOf(port ServicePort, endpointSlices []*EndpointSlice) []PortEndpoint {
	endpoints, _ := join(endpointSlices, 1).Endpoints(port, IPv4)
	return endpoints
}
