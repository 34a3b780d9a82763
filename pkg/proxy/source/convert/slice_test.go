package convert

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

func TestEndpointSliceDefaults(t *testing.T) {
	given := webSlice()
	given.Ports = append(given.Ports,
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
		Name:              model.ObjectName{Namespace: "default", Name: "web-abc"},
		Service:           model.ObjectName{Namespace: "default", Name: "web"},
		Family:            model.IPv4,
		MultiAddressCount: 1,
		Ports:             []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: 8080}, {Protocol: model.UDP, Port: 53}},
		Endpoints: []model.SliceEndpoint{
			{Addr: addrs("10.244.0.5")[0], Endpoint: model.Endpoint{Ready: true, Serving: true}},
			{Addr: addrs("10.244.0.6")[0], Endpoint: model.Endpoint{
				Node: "n1", Zone: "a", Terminating: true, HintNodes: []string{"n1"}, HintZones: []string{"a", ""}}},
		},
	}
	got, errs := EndpointSlice(given, View{})
	if diff := cmp.Diff(want, got, equateValues); diff != "" || len(errs) > 0 {
		t.Errorf("EndpointSlice() (-want +got):\n%s%v", diff, errs)
	}
}

func TestEndpointSliceThatIsNotServedIsNil(t *testing.T) {
	for name, change := range map[string]func(*discoveryv1.EndpointSlice){
		"a slice of a headless Service":      func(s *discoveryv1.EndpointSlice) { s.Labels[corev1.IsHeadlessService] = "" },
		"a slice without a Service":          func(s *discoveryv1.EndpointSlice) { s.Labels = nil },
		"a slice with an empty service name": func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelServiceName] = "" },
	} {
		t.Run(name, func(t *testing.T) {
			given := webSlice()
			change(given)
			if got, errs := EndpointSlice(given, View{}); got != nil || len(errs) > 0 {
				t.Errorf("EndpointSlice() = %v, %v; want nothing", got, errs)
			}
		})
	}
}

func TestFQDNSliceIsOnlyCounted(t *testing.T) {
	given := webSlice()
	given.AddressType = discoveryv1.AddressTypeFQDN
	given.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"db.example.com"}}, {Addresses: []string{"not a name"}}}
	want := webSliceModel()
	want.Ports, want.Endpoints, want.FQDNCount = nil, nil, 2
	wantSkipped(t, given, want, nil)
}

func TestInvalidEndpointSliceIsRejected(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*discoveryv1.EndpointSlice)
		want   []string
	}{
		"unknown address type": {func(s *discoveryv1.EndpointSlice) { s.AddressType = "IP" },
			[]string{`addressType: Unsupported value: "IP": supported values: "IPv4", "IPv6", "FQDN"`}},
		"no address type": {func(s *discoveryv1.EndpointSlice) { s.AddressType = "" }, []string{`addressType: Required value`}},
		"too many endpoints": {
			func(s *discoveryv1.EndpointSlice) { s.Endpoints = make([]discoveryv1.Endpoint, 1001) },
			[]string{`endpoints: Too many: 1001: must have at most 1000 items`},
		},
		"too many ports": {
			func(s *discoveryv1.EndpointSlice) { s.Ports = make([]discoveryv1.EndpointPort, 20001) },
			[]string{`ports: Too many: 20001: must have at most 20000 items`},
		},
		"no valid port": {func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = new(int32(70000)) },
			[]string{`ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive`}},
		"no valid endpoint, among other problems": {func(s *discoveryv1.EndpointSlice) {
			s.Endpoints[0].Addresses[0] = "127.0.0.1"
			s.Ports = append(s.Ports, s.Ports[0])
		}, []string{`ports[1].name: Duplicate value: "http"`,
			`endpoints[0].addresses[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`}},
		"no names": {func(s *discoveryv1.EndpointSlice) { s.Namespace, s.Name = "", "" },
			[]string{`metadata.namespace: Required value`, `metadata.name: Required value`}},
	} {
		t.Run(name, func(t *testing.T) {
			given := webSlice()
			test.change(given)
			got, errs := EndpointSlice(given, View{})
			if got != nil {
				t.Errorf("EndpointSlice() = %v and errors", got)
			}
			if diff := cmp.Diff(test.want, texts(errs)); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

// Each case changes a second port of the slice. The first one must remain.
func TestInvalidPortIsSkipped(t *testing.T) {
	const outOfRange = `must be between 1 and 65535, inclusive`
	for name, test := range map[string]struct {
		port discoveryv1.EndpointPort
		want []string
	}{
		"port of more than 16 bits": {discoveryv1.EndpointPort{Name: new("b"), Port: new(int32(70000))},
			[]string{`ports[1].port: Invalid value: 70000: ` + outOfRange}},
		"negative port": {discoveryv1.EndpointPort{Name: new("b"), Port: new(int32(-1))},
			[]string{`ports[1].port: Invalid value: -1: ` + outOfRange}},
		"port 0": {discoveryv1.EndpointPort{Name: new("b"), Port: new(int32(0))},
			[]string{`ports[1].port: Invalid value: 0: ` + outOfRange}},
		"port without a number": {discoveryv1.EndpointPort{Name: new("b")},
			[]string{`ports[1].port: Required value: a port without a number does not mean all ports`}},
		"port without a name": {discoveryv1.EndpointPort{Port: new(int32(70000))}, []string{`ports[1].name: Required value`}},
		"unknown protocol": {discoveryv1.EndpointPort{Name: new("b"), Port: new(int32(1)), Protocol: new(corev1.Protocol("ICMP"))},
			[]string{`ports[1].protocol: Unsupported value: "ICMP": supported values: "TCP", "UDP", "SCTP"`}},
		"second port with the same name": {discoveryv1.EndpointPort{Name: new("http"), Port: new(int32(1))},
			[]string{`ports[1].name: Duplicate value: "http"`}},
		"several problems at once": {discoveryv1.EndpointPort{Name: new("b"), Port: new(int32(0)), Protocol: new(corev1.Protocol("x"))},
			[]string{`ports[1].protocol: Unsupported value: "x": supported values: "TCP", "UDP", "SCTP"`,
				`ports[1].port: Invalid value: 0: ` + outOfRange}},
	} {
		t.Run(name, func(t *testing.T) {
			given := webSlice()
			given.Ports = append(given.Ports, test.port)
			wantSkipped(t, given, webSliceModel(), test.want)
		})
	}
}

func TestManySkippedPartsAreCounted(t *testing.T) {
	given := webSlice()
	for range 999 {
		given.Endpoints = append(given.Endpoints, discoveryv1.Endpoint{Addresses: []string{"127.0.0.1"}})
	}
	got, errs := EndpointSlice(given, View{})
	if len(errs) > 0 || len(got.Endpoints) != 1 || len(got.Findings) != maxSkipped+1 ||
		got.Findings[maxSkipped].Sentence() != "and 979 more" {
		t.Errorf("EndpointSlice() = %v, %v; want one endpoint, %d sentences and the number of the rest", got, errs, maxSkipped)
	}
}

func TestSkippedFindingIsOneShortLine(t *testing.T) {
	given := webSlice()
	given.Endpoints = append(given.Endpoints, discoveryv1.Endpoint{Addresses: []string{"\n\x1b" + strings.Repeat("x", 5000)}})
	got, errs := EndpointSlice(given, View{})
	if len(errs) > 0 || len(got.Findings) != 1 || len(got.Findings[0].Reason) > sanitize.MaxShort+len("...") ||
		strings.ContainsAny(got.Findings[0].Sentence(), "\n\x1b") {
		t.Errorf("EndpointSlice() = %v, %v; want one short line", got, errs)
	}
}

// wantSkipped converts a slice and asserts the result and the skipped parts.
func wantSkipped(t *testing.T, given *discoveryv1.EndpointSlice, want *model.EndpointSlice, skipped []string) {
	t.Helper()
	want.Findings = skippedOf(want.Name, skipped...)
	for i := range want.Findings {
		want.Findings[i].Kind = EndpointSliceKind
	}
	got, errs := EndpointSlice(given, View{})
	if diff := cmp.Diff(want, got, equateValues); diff != "" || len(errs) > 0 {
		t.Errorf("EndpointSlice() (-want +got):\n%s%v", diff, errs)
	}
}

func TestEndpointSliceMayHaveNoPortsOrNoEndpoints(t *testing.T) {
	given, want := webSlice(), webSliceModel()
	given.Ports, want.Ports = nil, nil
	wantSkipped(t, given, want, nil)
	given, want = webSlice(), webSliceModel()
	given.Endpoints, want.Endpoints = nil, nil
	wantSkipped(t, given, want, nil)
}

func TestLargeEndpointSliceIsAccepted(t *testing.T) {
	given := webSlice()
	given.Ports, given.Endpoints = nil, nil
	for i := range 100 {
		given.Ports = append(given.Ports, discoveryv1.EndpointPort{Name: new(fmt.Sprintf("p%d", i)), Port: new(int32(i + 1))})
	}
	for i := range 1000 {
		given.Endpoints = append(given.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.1.%d.%d", i/250, i%250)}})
	}
	got, errs := EndpointSlice(given, View{})
	if len(errs) > 0 || len(got.Endpoints) != 1000 || len(got.Ports) != 100 {
		t.Errorf("EndpointSlice() = %v, %v; want all endpoints and ports", got, errs)
	}
}

func TestEndpointSliceTriggerTime(t *testing.T) {
	for name, test := range map[string]struct {
		annotations map[string]string
		want        time.Time
	}{
		"from the controller's annotation": {
			map[string]string{"endpoints.kubernetes.io/last-change-trigger-time": "2026-11-21T09:00:00.25+01:00"},
			time.Date(2026, 11, 21, 8, 0, 0, 250_000_000, time.UTC)},
		"zero without the annotation": {nil, time.Time{}},
		"zero if the annotation is not a time": {
			map[string]string{"endpoints.kubernetes.io/last-change-trigger-time": "yesterday"}, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			given := webSlice()
			given.Annotations = test.annotations
			got, errs := EndpointSlice(given, View{})
			if len(errs) > 0 || got.TriggeredAt != test.want {
				t.Errorf("TriggeredAt = %v, want %v; errors %v", got.TriggeredAt, test.want, errs)
			}
		})
	}
}
