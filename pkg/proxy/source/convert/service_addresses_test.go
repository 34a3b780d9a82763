package convert

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// ingressOf returns the status of a load balancer with addresses that state no mode.
func ingressOf(ips ...string) []corev1.LoadBalancerIngress {
	var ingress []corev1.LoadBalancerIngress
	for _, ip := range ips {
		ingress = append(ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	return ingress
}

func TestServiceAddresses(t *testing.T) {
	external := func(ips ...string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.ExternalIPs = ips }
	}
	ingress := func(entries ...corev1.LoadBalancerIngress) func(*corev1.Service) {
		return func(s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
			s.Status.LoadBalancer.Ingress = entries
		}
	}
	const loopback = `may not be in the loopback range (127.0.0.0/8, ::1/128)`
	checkServices(t, map[string]serviceCase{
		"external IPs are kept in their order": {
			external("192.0.2.2", "192.0.2.1"),
			func(s *model.Service) { s.ExternalIPs = addrs("192.0.2.2", "192.0.2.1") },
		},
		"an external IP of a family without a ClusterIP is skipped silently": {
			external("2001:db8::1", "192.0.2.1"),
			func(s *model.Service) { s.ExternalIPs = addrs("192.0.2.1") },
		},
		"with ClusterIPs of both families, external IPs of both are used": {
			func(s *corev1.Service) {
				s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, "fd00::a")
				s.Spec.ExternalIPs = []string{"2001:db8::1", "192.0.2.1"}
			},
			func(s *model.Service) {
				s.ClusterIPs, s.ExternalIPs = addrs("10.96.0.10", "fd00::a"), addrs("2001:db8::1", "192.0.2.1")
			},
		},
		"several spellings of an external IP are one": {
			external("192.0.2.1", "192.0.2.1", "192.000.002.001", "::ffff:192.0.2.1"),
			func(s *model.Service) { s.ExternalIPs = addrs("192.0.2.1") },
		},
		"an empty external IP is skipped": {external("", " "), func(*model.Service) {}},
		"an invalid external IP is skipped, and the others are served": {
			external("127.0.0.1", "192.0.2.1", "169.254.169.254", "0.0.0.0", "224.0.0.251", "255.255.255.255", "::1", "192.0.2.300"),
			func(s *model.Service) {
				s.ExternalIPs = addrs("192.0.2.1")
				s.Findings = skippedOf(s.Name,
					`spec.externalIPs[0]: Invalid value: "127.0.0.1": `+loopback,
					`spec.externalIPs[2]: Invalid value: "169.254.169.254": may not be in the link-local range (169.254.0.0/16, fe80::/10)`,
					`spec.externalIPs[3]: Invalid value: "0.0.0.0": may not be unspecified (0.0.0.0 or ::)`,
					`spec.externalIPs[4]: Invalid value: "224.0.0.251": may not be in the multicast range (224.0.0.0/4, ff00::/8)`,
					`spec.externalIPs[5]: Invalid value: "255.255.255.255": may not be the broadcast address (255.255.255.255)`,
					`spec.externalIPs[6]: Invalid value: "::1": `+loopback,
					`spec.externalIPs[7]: Invalid value: "192.0.2.300": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`,
				)
			},
		},
		"external traffic policy Local applies although the only external IP is skipped": {
			func(s *corev1.Service) {
				s.Spec.ExternalIPs = []string{"127.0.0.1"}
				s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			},
			func(s *model.Service) {
				s.ExternalTrafficLocal = true
				s.Findings = skippedOf(s.Name, `spec.externalIPs[0]: Invalid value: "127.0.0.1": `+loopback)
			},
		},
		"ingress IPs without a mode and with mode VIP are served": {
			ingress(corev1.LoadBalancerIngress{IP: "192.0.2.1"},
				corev1.LoadBalancerIngress{IP: "192.0.2.2", IPMode: new(corev1.LoadBalancerIPModeVIP)}),
			func(s *model.Service) { s.LoadBalancerIPs = addrs("192.0.2.1", "192.0.2.2") },
		},
		"ingress in mode Proxy or with only a name is ignored": {
			ingress(corev1.LoadBalancerIngress{Hostname: "lb.example.com"},
				corev1.LoadBalancerIngress{IP: "192.0.2.1", IPMode: new(corev1.LoadBalancerIPModeProxy)}),
			func(*model.Service) {},
		},
		"ingress with an unknown mode is skipped": {
			ingress(corev1.LoadBalancerIngress{IP: "192.0.2.1", IPMode: new(corev1.LoadBalancerIPMode("vip"))}),
			func(s *model.Service) {
				s.Findings = skippedOf(s.Name, `status.loadBalancer.ingress[0].ipMode: Unsupported value: "vip": supported values: "VIP", "Proxy"`)
			},
		},
		"an ingress IP of a family without a ClusterIP is skipped silently": {
			ingress(ingressOf("2001:db8::1")...), func(*model.Service) {},
		},
		"an invalid ingress IP is skipped, and the others are served": {
			ingress(ingressOf("127.0.0.1", "192.0.2.1", "lb.example.com")...),
			func(s *model.Service) {
				s.LoadBalancerIPs = addrs("192.0.2.1")
				s.Findings = skippedOf(s.Name,
					`status.loadBalancer.ingress[0].ip: Invalid value: "127.0.0.1": `+loopback,
					`status.loadBalancer.ingress[2].ip: Invalid value: "lb.example.com": `+
						`must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`,
				)
			},
		},
		"an ingress IP is served regardless of the type, as in kube-proxy": {
			func(s *corev1.Service) { s.Status.LoadBalancer.Ingress = ingressOf("192.0.2.1") },
			func(s *model.Service) { s.LoadBalancerIPs = addrs("192.0.2.1") },
		},
		"leading zeros and IPv4-mapped addresses are read as in kube-proxy": {
			func(s *corev1.Service) {
				s.Spec.ClusterIP, s.Spec.ClusterIPs = "010.096.0.010", []string{"010.096.0.010"}
				s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
				s.Spec.ExternalIPs = []string{"192.000.002.010"}
				s.Status.LoadBalancer.Ingress = ingressOf("::ffff:192.0.2.11")
			},
			func(s *model.Service) { s.ExternalIPs, s.LoadBalancerIPs = addrs("192.0.2.10"), addrs("192.0.2.11") },
		},
	})
}

// TestWithoutExternalIPs asserts that the rest of the Service is unchanged. For the meaning of
// externalTrafficPolicy the Service still counts as one with external IPs, as in kube-proxy.
func TestWithoutExternalIPs(t *testing.T) {
	given, want := webService(), webModel()
	given.Spec.ExternalIPs = []string{"192.0.2.7", "", "2001:db8::1", "no address\x1b"}
	given.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	given.Status.LoadBalancer.Ingress = ingressOf("192.0.2.7")
	want.ExternalTrafficLocal, want.LoadBalancerIPs = true, addrs("192.0.2.7")
	const why = " is not served: the feature gate AllowServiceExternalIPs of the proxy is off"
	want.Findings = skippedOf(want.Name,
		`spec.externalIPs[0]: Forbidden: "192.0.2.7"`+why,
		`spec.externalIPs[2]: Forbidden: "2001:db8::1"`+why,
		`spec.externalIPs[3]: Forbidden: "no address\x1b"`+why,
	)
	got, errs := Service(given, View{WithoutExternalIPs: true})
	if diff := cmp.Diff(want, got, equateValues); diff != "" || len(errs) > 0 {
		t.Errorf("Service() rejected: %v; (-want +got):\n%s", errs, diff)
	}
}
