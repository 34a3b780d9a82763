package convert

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Each case inserts an endpoint with these addresses before the endpoint of webSlice, which must remain.
func TestInvalidEndpointIsSkipped(t *testing.T) {
	for name, test := range map[string]struct {
		addresses []string
		want      string
	}{
		"loopback": {[]string{"127.0.0.1"},
			`[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`},
		"link-local": {[]string{"169.254.1.1"},
			`[0]: Invalid value: "169.254.1.1": may not be in the link-local range (169.254.0.0/16, fe80::/10)`},
		"multicast": {[]string{"224.0.0.251"},
			`[0]: Invalid value: "224.0.0.251": may not be in the multicast range (224.0.0.0/4, ff00::/8)`},
		"broadcast": {[]string{"255.255.255.255"},
			`[0]: Invalid value: "255.255.255.255": may not be the broadcast address (255.255.255.255)`},
		"unspecified": {[]string{"0.0.0.0"}, `[0]: Invalid value: "0.0.0.0": may not be unspecified (0.0.0.0 or ::)`},
		"IPv4-mapped loopback": {[]string{"::ffff:127.0.0.1"},
			`[0]: Invalid value: "::ffff:127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`},
		"the other family": {[]string{"fd00::1"}, "[0]: Invalid value: \"fd00::1\": must be an IPv4 address to match `addressType`"},
		"no address":       {nil, `: Required value: must contain at least 1 address`},
		"a host name": {[]string{"db.example.com"},
			`[0]: Invalid value: "db.example.com": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`},
	} {
		t.Run(name, func(t *testing.T) {
			given := webSlice()
			given.Endpoints = append([]discoveryv1.Endpoint{{Addresses: test.addresses}}, given.Endpoints...)
			wantSkipped(t, given, webSliceModel(), []string{"endpoints[0].addresses" + test.want})
		})
	}
}

// Each case changes the only endpoint of webSlice, which must remain.
func TestEndpointServesDespiteInvalidNames(t *testing.T) {
	const dnsSubdomain = `a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must ` +
		`start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is ` +
		`'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`
	const labelValue = `a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start ` +
		`and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is ` +
		`'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`
	hints := func(hints discoveryv1.EndpointHints) discoveryv1.Endpoint { return discoveryv1.Endpoint{Hints: &hints} }
	zones := func(names ...string) discoveryv1.Endpoint {
		var list []discoveryv1.ForZone
		for _, name := range names {
			list = append(list, discoveryv1.ForZone{Name: name})
		}
		return hints(discoveryv1.EndpointHints{ForZones: list})
	}
	for name, test := range map[string]struct {
		given   discoveryv1.Endpoint
		want    model.Endpoint
		leftOut []string
	}{
		"a node with an invalid name is unknown": {discoveryv1.Endpoint{NodeName: new("N 1")}, model.Endpoint{},
			[]string{`endpoints[0].nodeName: Invalid value: "N 1": ` + dnsSubdomain}},
		"a node without a name is unknown": {discoveryv1.Endpoint{NodeName: new("")}, model.Endpoint{}, nil},
		"a zone with an invalid name is unknown": {discoveryv1.Endpoint{Zone: new("a\nb")}, model.Endpoint{},
			[]string{`endpoints[0].zone: Invalid value: "a\nb": ` + labelValue}},
		"a zone may be any label value":         {discoveryv1.Endpoint{Zone: new("Zone_A.1")}, model.Endpoint{Zone: "Zone_A.1"}, nil},
		"a hint for the empty zone is a hint":   {zones(""), model.Endpoint{HintZones: []string{""}}, nil},
		"a hint for one zone twice is one hint": {zones("a", "b", "a"), model.Endpoint{HintZones: []string{"a", "b"}}, nil},
		"a hint with an invalid zone is ignored": {zones("a", "a b"), model.Endpoint{HintZones: []string{"a"}},
			[]string{`endpoints[0].hints.forZones[1].name: Invalid value: "a b": ` + labelValue}},
		"a hint with an empty node name is ignored": {hints(discoveryv1.EndpointHints{ForNodes: []discoveryv1.ForNode{{Name: ""}, {Name: "n1"}}}),
			model.Endpoint{HintNodes: []string{"n1"}},
			[]string{`endpoints[0].hints.forNodes[0].name: Invalid value: "": ` + dnsSubdomain}},
		"eight hints are kept": {zones("a", "b", "c", "d", "e", "f", "g", "h"),
			model.Endpoint{HintZones: []string{"a", "b", "c", "d", "e", "f", "g", "h"}}, nil},
		"too many hints are all ignored": {zones("a", "b", "c", "d", "e", "f", "g", "h", "i"), model.Endpoint{},
			[]string{`endpoints[0].hints.forZones: Too many: 9: must have at most 8 items`}},
		"additional addresses are counted and not read": {
			discoveryv1.Endpoint{Addresses: []string{"10.244.0.5", "fd00::1", "x", ""}}, model.Endpoint{}, nil},
		"leading zeros are decimal":     {discoveryv1.Endpoint{Addresses: []string{"010.244.000.005"}}, model.Endpoint{}, nil},
		"an address may be IPv4-mapped": {discoveryv1.Endpoint{Addresses: []string{"::ffff:10.244.0.5"}}, model.Endpoint{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			given, want := webSlice(), webSliceModel()
			if test.given.Addresses == nil {
				test.given.Addresses = given.Endpoints[0].Addresses
			}
			if len(test.given.Addresses) > 1 {
				want.MultiAddressCount = 1
			}
			given.Endpoints[0] = test.given
			test.want.Ready, test.want.Serving = true, true
			want.Endpoints[0].Endpoint = test.want
			wantSkipped(t, given, want, test.leftOut)
		})
	}
}
