package convert

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/promise"
)

// FuzzConvertSlice decodes any JSON as an EndpointSlice and converts it.
func FuzzConvertSlice(f *testing.F) {
	full := webSlice()
	full.Endpoints[0].NodeName, full.Endpoints[0].Zone = new("n1"), new("zone-a")
	full.Endpoints[0].Hostname = new("web-0")
	full.Endpoints[0].Hints = &discoveryv1.EndpointHints{
		ForNodes: []discoveryv1.ForNode{{Name: "n1"}}, ForZones: []discoveryv1.ForZone{{Name: "zone-a"}}}
	seed := marshalled(f, full)
	for _, replace := range [][2]string{
		{"", ""}, {"web-0", "web.0"}, {"8080", "70000"}, {"10.244.0.5", "::ffff:127.0.0.1"}, {`"n1"`, `""`}, {"zone-a", ""},
		{"zone-a", "a b"}, {"8080", "null"},
	} {
		f.Add([]byte(strings.ReplaceAll(seed, replace[0], replace[1])))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var slice discoveryv1.EndpointSlice
		if json.Unmarshal(text, &slice) != nil {
			return
		}
		got, errs := EndpointSlice(&slice, View{WithHeadless: true})
		if got != nil && len(errs) > 0 {
			t.Errorf("EndpointSlice() = %v and errors %v", got, errs)
		}
		promise.CheckSlice(t, got)
	})
}

// FuzzConvertService decodes any JSON as a Service and converts it.
func FuzzConvertService(f *testing.F) {
	full := loadBalancerService("10.0.0.0/8", " 10.1.0.0/16", "fd00::/8")
	full.Spec.ClusterIPs = append(full.Spec.ClusterIPs, "fd00::a")
	full.Spec.ExternalIPs = []string{"192.0.2.7", "2001:db8::7"}
	full.Spec.ExternalTrafficPolicy, full.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, 32000
	full.Spec.Ports[0].NodePort = 30080
	seed := marshalled(f, full)
	for _, replace := range [][2]string{
		{"", ""}, {"32000", "97536"}, {"30080", "-1"}, {"192.0.2.7", "127.0.0.1"}, {"2001:db8::7", "::ffff:0:0"}, {"fd00::/8", "::/0"},
		{"192.0.2.1", "255.255.255.255"}, {"10.0.0.0/8", "::ffff:0.0.0.0/96"}, {" 10.1.0.0/16", "010.01.0.7/016"}, {"10.96.0.10", "::1"},
	} {
		f.Add([]byte(strings.ReplaceAll(seed, replace[0], replace[1])))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var service corev1.Service
		if json.Unmarshal(text, &service) != nil {
			return
		}
		got, errs := Service(&service, View{})
		if got != nil && len(errs) > 0 {
			t.Errorf("Service() = %v and errors %v", got, errs)
		}
		promise.CheckService(t, got)
	})
}

// FuzzConvertNode decodes any JSON as a Node and converts it.
func FuzzConvertNode(f *testing.F) {
	for _, text := range []string{
		`{"metadata":{"name":"n1","labels":{"a/b":"c"}},"spec":{"podCIDRs":["10.1.0.0/24","fd00::/64"]},` +
			`"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.1"},{"type":"ExternalIP","address":"2001:db8::1"}]}}`,
		`{"metadata":{"name":"n1"},"spec":{"podCIDR":"::ffff:10.0.0.7/100"},"status":{"addresses":[` +
			`{"type":"InternalIP","address":"n1"},{"type":"InternalIP","address":"::ffff:0:0"},{"type":"InternalIP","address":"fe80::1%eth0"}]}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var node corev1.Node
		if json.Unmarshal(text, &node) != nil {
			return
		}
		got, errs := Node(&node)
		if got != nil && len(errs) > 0 {
			t.Errorf("Node() = %v and errors %v", got, errs)
		}
		promise.CheckNode(t, got)
	})
}

// FuzzConvertServiceCIDR converts a ServiceCIDR with any name and up to three ranges.
func FuzzConvertServiceCIDR(f *testing.F) {
	f.Add("kubernetes", "10.96.0.0/12", "fd00:96::/108", "")
	f.Add("kubernetes", "10.96.0.0/12", "10.0.0.0/16", "")
	f.Add("a.b", "::ffff:10.96.0.0/108", "0.0.0.0/0", "::/0")
	f.Add("", "", "010.0.0.0/8", "10.0.0.1/8")
	f.Fuzz(func(t *testing.T, name, first, second, third string) {
		for count := range 4 {
			given := serviceCIDR([]string{first, second, third}[:count]...)
			given.Name = name
			got, errs := ServiceCIDR(given)
			if (got == nil) == (len(errs) == 0) {
				t.Errorf("ServiceCIDR() = %v, %v; want exactly one of them", got, errs)
			}
			promise.CheckServiceCIDR(t, got)
		}
	})
}

func marshalled(f *testing.F, object any) string {
	f.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		f.Fatal(err)
	}
	return string(text)
}

// FuzzNameRules asserts that isSimple of each rule accepts only names that the library accepts.
func FuzzNameRules(f *testing.F) {
	for _, name := range []string{"a", "-", "a.b", "a..b", "a.-b", "a-.b", ".a", "a.", "a--b", "A", "a_b", strings.Repeat("a", 64)} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		for _, rule := range []nameRule{subdomain, labelValue, dnsLabel} {
			if rejected := rule.check(name); rule.isSimple(name) && len(rejected) > 0 {
				t.Errorf("%q: %q", name, rejected)
			}
		}
	})
}

func TestIsSimpleName(t *testing.T) {
	for name, want := range map[string]bool{
		"worker-7": true, "ip-10-0-0-17.eu-west-1.compute.internal": true, "eu-west-1a": true, "1": true, "a--b": true,
		"": false, "Zone": false, "a_b": false, "a..b": false, "a.-b": false, "a-": false, ".a": false, "-a": false, "a-.b": false,
		strings.Repeat("a", 63): true, strings.Repeat("a", 64): false,
	} {
		if got := isSimpleName(name); got != want {
			t.Errorf("%q: got %t, want %t", name, got, want)
		}
	}
}
