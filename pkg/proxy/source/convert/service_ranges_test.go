package convert

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/promise"
)

// loadBalancerService is a Service of type LoadBalancer with source ranges.
func loadBalancerService(ranges ...string) *corev1.Service {
	service := webService()
	service.Spec.Type = corev1.ServiceTypeLoadBalancer
	service.Spec.LoadBalancerSourceRanges = ranges
	service.Status.LoadBalancer.Ingress = ingressOf("192.0.2.1")
	return service
}

func TestSourceRanges(t *testing.T) {
	annotated := loadBalancerService()
	annotated.Annotations = map[string]string{corev1.AnnotationLoadBalancerSourceRangesKey: "10.0.0.0/8"}
	for name, test := range map[string]struct {
		given *corev1.Service
		want  []string
	}{
		"none": {loadBalancerService(), nil},
		"ranges are sorted by family and address": {
			loadBalancerService("fd00::/8", "192.0.2.0/24", "10.0.0.0/8"), []string{"10.0.0.0/8", "192.0.2.0/24", "fd00::/8"}},
		"white space around a range is ignored": {
			loadBalancerService(" 10.0.0.0/8\t", "\n192.0.2.0/24"), []string{"10.0.0.0/8", "192.0.2.0/24"}},
		"a range within another one is merged": {loadBalancerService("10.1.0.0/16", "10.0.0.0/8", "10.2.3.4/32"), []string{"10.0.0.0/8"}},
		"the same range twice is one":          {loadBalancerService("10.0.0.0/8", "10.0.0.0/8"), []string{"10.0.0.0/8"}},
		"adjacent ranges are merged":           {loadBalancerService("10.0.1.0/24", "10.0.0.0/24"), []string{"10.0.0.0/23"}},
		"adjacent ranges that form no range stay two": {loadBalancerService("10.0.1.0/24", "10.0.2.0/24"),
			[]string{"10.0.1.0/24", "10.0.2.0/24"}},
		"IPv6 ranges are merged too":                  {loadBalancerService("2001:db8:1::/48", "2001:db8::/48"), []string{"2001:db8::/47"}},
		"IPv4 and IPv6 ranges are not merged":         {loadBalancerService("255.0.0.0/8", "::/8"), []string{"255.0.0.0/8", "::/8"}},
		"bits beyond the prefix length are cleared":   {loadBalancerService("10.1.2.3/8"), []string{"10.0.0.0/8"}},
		"leading zeros are decimal":                   {loadBalancerService("010.000.000.000/08"), []string{"10.0.0.0/8"}},
		"an IPv4-mapped range is IPv4":                {loadBalancerService("::ffff:10.0.0.0/104"), []string{"10.0.0.0/8"}},
		"/0 opens its family":                         {loadBalancerService("0.0.0.0/0", "10.0.0.0/8"), nil},
		"/0 opens no other family":                    {loadBalancerService("0.0.0.0/0", "fd00::/8"), []string{"fd00::/8"}},
		"::/0 opens only IPv6":                        {loadBalancerService("::/0", "10.0.0.0/8"), []string{"10.0.0.0/8"}},
		"/0 of both families opens both":              {loadBalancerService("::/0", "0.0.0.0/0"), nil},
		"two halves of all addresses open the family": {loadBalancerService("128.0.0.0/1", "0.0.0.0/1"), nil},
		"IPv4-mapped /0 opens IPv4":                   {loadBalancerService("::ffff:0:0/96"), nil},
		"a range of a family without a ClusterIP":     {loadBalancerService("fd00::/8"), []string{"fd00::/8"}},
		"the legacy annotation is ignored":            {annotated, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, errs := Service(test.given, View{})
			if len(errs) > 0 {
				t.Fatalf("Service() rejected: %v", errs)
			}
			if diff := cmp.Diff(prefixes(test.want...), got.SourceRanges, equateValues); diff != "" || len(got.Findings) > 0 {
				t.Errorf("source ranges (-want +got):\n%sfindings: %v", diff, got.Findings)
			}
		})
	}
}

// Ranges of 256 addresses in each family often overlap and adjoin. The merged ranges must allow the same addresses.
func TestMergedSourceRangesMatchInput(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var given []netip.Prefix
		var texts []string
		for range random.IntN(12) {
			addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(256))})
			bits := 32
			if random.IntN(2) == 0 {
				addr, bits = netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(random.IntN(256))}), 128
			}
			prefix := netip.PrefixFrom(addr, bits-random.IntN(7))
			given, texts = append(given, prefix), append(texts, prefix.String())
		}
		service, errs := Service(loadBalancerService(texts...), View{})
		if len(errs) > 0 {
			t.Fatalf("%q: rejected: %v", texts, errs)
		}
		promise.CheckPrefixes(t, service.SourceRanges)
		for last := range 256 {
			for _, addr := range []netip.Addr{
				netip.AddrFrom4([4]byte{10, 0, 0, byte(last)}), netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(last)}),
			} {
				contains := func(prefix netip.Prefix) bool { return prefix.Contains(addr) }
				if want, got := slices.ContainsFunc(given, contains), slices.ContainsFunc(service.SourceRanges, contains); want != got {
					t.Fatalf("%q merged to %v: contains %s: %v, want %v", texts, service.SourceRanges, addr, got, want)
				}
			}
		}
	}
}

func TestInvalidSourceRangesRejectTheService(t *testing.T) {
	const invalidCIDR = `must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)`
	nodePort := loadBalancerService("10.0.0.0/8")
	nodePort.Spec.Type = corev1.ServiceTypeNodePort
	for name, test := range map[string]struct {
		given *corev1.Service
		want  []string
	}{
		"an address":  {loadBalancerService("10.0.0.1"), []string{`spec.loadBalancerSourceRanges[0]: Invalid value: "10.0.0.1": ` + invalidCIDR}},
		"white space": {loadBalancerService(" "), []string{`spec.loadBalancerSourceRanges[0]: Invalid value: "": ` + invalidCIDR}},
		"an invalid prefix length, among valid ranges": {loadBalancerService("10.0.0.0/8", "10.0.0.0/33", "::/0", "fd00::/129"), []string{
			`spec.loadBalancerSourceRanges[1]: Invalid value: "10.0.0.0/33": ` + invalidCIDR,
			`spec.loadBalancerSourceRanges[3]: Invalid value: "fd00::/129": ` + invalidCIDR}},
		"ranges on a Service of another type": {nodePort,
			[]string{"spec.loadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, errs := Service(test.given, View{})
			if diff := cmp.Diff(test.want, texts(errs)); diff != "" || got != nil {
				t.Errorf("Service() = %v, errors (-want +got):\n%s", got, diff)
			}
		})
	}
}

func TestHealthCheckNodePort(t *testing.T) {
	const notAllowed = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
	for name, test := range map[string]struct {
		typ     corev1.ServiceType
		policy  corev1.ServiceExternalTrafficPolicy
		given   int32
		want    uint16
		leftOut []string
	}{
		"used with externalTrafficPolicy Local": {
			corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal, 32000, 32000, nil},
		"optional": {corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal, 0, 0, nil},
		"skipped with externalTrafficPolicy Cluster": {
			corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyCluster, 32000, 0,
			[]string{"spec.healthCheckNodePort: Invalid value: 32000: " + notAllowed}},
		"skipped without a load balancer": {
			corev1.ServiceTypeNodePort, corev1.ServiceExternalTrafficPolicyLocal, 32000, 0,
			[]string{"spec.healthCheckNodePort: Invalid value: 32000: " + notAllowed}},
		"an invalid port is skipped, and the Service is served": {
			corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal, 97536, 0,
			[]string{"spec.healthCheckNodePort: Invalid value: 97536: must be between 1 and 65535, inclusive"}},
	} {
		t.Run(name, func(t *testing.T) {
			given := webService()
			given.Spec.Type, given.Spec.ExternalTrafficPolicy, given.Spec.HealthCheckNodePort = test.typ, test.policy, test.given
			got, errs := Service(given, View{})
			if len(errs) > 0 {
				t.Fatalf("Service() rejected: %v", errs)
			}
			skipped := skippedOf(got.Name, test.leftOut...)
			if diff := cmp.Diff(skipped, got.Findings, equateValues); diff != "" || got.HealthCheckNodePort != test.want {
				t.Errorf("port %d, want %d; skipped (-want +got):\n%s", got.HealthCheckNodePort, test.want, diff)
			}
		})
	}
}
