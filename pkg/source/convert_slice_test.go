package source

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

func TestEndpointSliceIsReadWithTheDefaultsOfTheAPI(t *testing.T) {
	given := webSlice()
	given.Ports = append(given.Ports,
		discoveryv1.EndpointPort{Port: new(int32(1))},
		discoveryv1.EndpointPort{Name: new("any")},
		discoveryv1.EndpointPort{Name: new("zero"), Port: new(int32(0))},
		discoveryv1.EndpointPort{Name: new(""), Port: new(int32(53)), Protocol: new(corev1.ProtocolUDP)})
	given.Endpoints = append(given.Endpoints, discoveryv1.Endpoint{
		Addresses:  []string{"10.244.0.6", "10.244.0.7"},
		NodeName:   new("n1"),
		Zone:       new("a"),
		Conditions: discoveryv1.EndpointConditions{Ready: new(false), Serving: new(false), Terminating: new(true)},
		Hints: &discoveryv1.EndpointHints{
			ForNodes: []discoveryv1.ForNode{{Name: "n1"}}, ForZones: []discoveryv1.ForZone{{Name: "a"}, {Name: ""}}},
	})
	want := &model.EndpointSlice{
		Name:    model.ObjectName{Namespace: "default", Name: "web-abc"},
		Service: model.ObjectName{Namespace: "default", Name: "web"},
		Family:  model.IPv4,
		Ports:   []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: 8080}, {Protocol: model.UDP, Port: 53}},
		Endpoints: []model.SliceEndpoint{
			{Addr: addrs("10.244.0.5")[0], Endpoint: model.Endpoint{Ready: true, Serving: true}},
			{Addr: addrs("10.244.0.6")[0], Endpoint: model.Endpoint{
				Node: "n1", Zone: "a", Terminating: true, HintNodes: []string{"n1"}, HintZones: []string{"a", ""}}},
		},
	}
	got, errs := EndpointSlice(given)
	if diff := cmp.Diff(want, got, equateValues); diff != "" || len(errs) > 0 {
		t.Errorf("EndpointSlice() (-want +got):\n%s%v", diff, errs)
	}
}

func TestEndpointSliceThatIsNotServedIsNil(t *testing.T) {
	for name, change := range map[string]func(*discoveryv1.EndpointSlice){
		"a headless Service's":           func(s *discoveryv1.EndpointSlice) { s.Labels[corev1.IsHeadlessService] = "" },
		"nobody's":                       func(s *discoveryv1.EndpointSlice) { s.Labels = nil },
		"one with an empty service name": func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelServiceName] = "" },
		"one of names":                   func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeFQDN },
	} {
		t.Run(name, func(t *testing.T) {
			given := webSlice()
			change(given)
			if got, errs := EndpointSlice(given); got != nil || len(errs) > 0 {
				t.Errorf("EndpointSlice() = %v, %v; want nothing", got, errs)
			}
		})
	}
}

func TestEndpointSliceThatCannotBeIsRefusedWithTheFieldAndTheReason(t *testing.T) {
	address := func(texts ...string) func(*discoveryv1.EndpointSlice) {
		return func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = texts }
	}
	hints := func(hints discoveryv1.EndpointHints) func(*discoveryv1.EndpointSlice) {
		return func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Hints = &hints }
	}
	const dnsSubdomain = `a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must ` +
		`start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is ` +
		`'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`
	for name, test := range map[string]struct {
		change func(*discoveryv1.EndpointSlice)
		want   []string
	}{
		"port that 16 bits would turn into another": {
			func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = new(int32(70000)) },
			[]string{`ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive`},
		},
		"negative port": {
			func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = new(int32(-1)) },
			[]string{`ports[0].port: Invalid value: -1: must be between 1 and 65535, inclusive`},
		},
		"unknown protocol": {
			func(s *discoveryv1.EndpointSlice) { s.Ports[0].Protocol = new(corev1.Protocol("ICMP")) },
			[]string{`ports[0].protocol: Unsupported value: "ICMP": supported values: "TCP", "UDP", "SCTP"`},
		},
		"two ports of one name": {
			func(s *discoveryv1.EndpointSlice) { s.Ports = append(s.Ports, s.Ports[0]) },
			[]string{`ports[1].name: Duplicate value: "http"`},
		},
		"loopback": {address("127.0.0.1"),
			[]string{`endpoints[0].addresses[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`}},
		"link-local": {address("169.254.1.1"),
			[]string{`endpoints[0].addresses[0]: Invalid value: "169.254.1.1": may not be in the link-local range (169.254.0.0/16, fe80::/10)`}},
		"multicast": {address("224.0.0.251"),
			[]string{`endpoints[0].addresses[0]: Invalid value: "224.0.0.251": may not be in the multicast range (224.0.0.0/4, ff00::/8)`}},
		"unspecified": {address("0.0.0.0"),
			[]string{`endpoints[0].addresses[0]: Invalid value: "0.0.0.0": may not be unspecified (0.0.0.0 or ::)`}},
		"a later address of another family": {address("10.0.0.1", "fd00::1"),
			[]string{"endpoints[0].addresses[1]: Invalid value: \"fd00::1\": must be an IPv4 address, as `addressType` says"}},
		"no address": {address(), []string{`endpoints[0].addresses: Required value: must contain at least 1 address`}},
		"too many addresses": {address(make([]string, 101)...),
			[]string{`endpoints[0].addresses: Too many: 101: must have at most 100 items`}},
		"a name for an address": {address("db.example.com"),
			[]string{`endpoints[0].addresses[0]: Invalid value: "db.example.com": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`}},
		"unknown address type": {func(s *discoveryv1.EndpointSlice) { s.AddressType = "IP" },
			[]string{`addressType: Unsupported value: "IP": supported values: "IPv4", "IPv6", "FQDN"`}},
		"no address type": {func(s *discoveryv1.EndpointSlice) { s.AddressType = "" }, []string{`addressType: Required value`}},
		"node name that is none": {func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].NodeName = new("N 1") },
			[]string{`endpoints[0].nodeName: Invalid value: "N 1": ` + dnsSubdomain}},
		"too many endpoints": {
			func(s *discoveryv1.EndpointSlice) { s.Endpoints = make([]discoveryv1.Endpoint, 1001) },
			[]string{`endpoints: Too many: 1001: must have at most 1000 items`},
		},
		"too many ports": {
			func(s *discoveryv1.EndpointSlice) { s.Ports = make([]discoveryv1.EndpointPort, 20001) },
			[]string{`ports: Too many: 20001: must have at most 20000 items`},
		},
		"hint for no node": {hints(discoveryv1.EndpointHints{ForNodes: []discoveryv1.ForNode{{Name: ""}}}),
			[]string{`endpoints[0].hints.forNodes[0].name: Invalid value: "": ` + dnsSubdomain}},
		"hint for one zone twice": {hints(discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "a"}, {Name: "a"}}}),
			[]string{`endpoints[0].hints.forZones[1].name: Duplicate value: "a"`}},
		"hints for too many zones": {hints(discoveryv1.EndpointHints{ForZones: make([]discoveryv1.ForZone, 9)}),
			[]string{`endpoints[0].hints.forZones: Too many: 9: must have at most 8 items`}},
	} {
		t.Run(name, func(t *testing.T) {
			given := webSlice()
			test.change(given)
			got, errs := EndpointSlice(given)
			if got != nil {
				t.Errorf("EndpointSlice() = %v besides errors", got)
			}
			if diff := cmp.Diff(test.want, texts(errs)); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEndpointSliceTakesAThousandEndpointsAndAHundredPorts(t *testing.T) {
	given := webSlice()
	given.Ports, given.Endpoints = nil, nil
	for i := range 100 {
		given.Ports = append(given.Ports, discoveryv1.EndpointPort{Name: new(fmt.Sprintf("p%d", i)), Port: new(int32(i + 1))})
	}
	for i := range 1000 {
		given.Endpoints = append(given.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.1.%d.%d", i/250, i%250)}})
	}
	got, errs := EndpointSlice(given)
	if len(errs) > 0 || len(got.Endpoints) != 1000 || len(got.Ports) != 100 {
		t.Errorf("EndpointSlice() = %v, %v; want all of it", got, errs)
	}
}
