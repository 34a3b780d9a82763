package convert_test

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// addressesFrom returns every other address, beginning with first.
func addressesFrom(first string, count int) []string {
	var list []string
	addr := netip.MustParseAddr(first)
	for range count {
		list = append(list, addr.String())
		addr = addr.Next().Next() // so that the ranges of adjoining addresses are not merged
	}
	return list
}

// The excess is skipped and reported.
func TestExcessPartsOfServiceAreSkipped(t *testing.T) {
	type counts struct{ ports, external, balanced, ranges, reported int }
	for title, test := range map[string]struct {
		ports, external, balanced, ranges4, ranges6 int
		nodePorts                                   bool
		families                                    int
		want                                        counts
	}{
		"an ordinary Service": {
			ports: 3, external: 2, balanced: 2, ranges4: 3, families: 2, nodePorts: true, want: counts{3, 2, 2, 3, 0},
		},
		"8,191 external IPs of one port": {ports: 1, external: 8191, families: 1, want: counts{1, 8191, 0, 0, 0}},
		"one external IP more":           {ports: 1, external: 8192, families: 1, want: counts{1, 8191, 0, 0, 1}},
		"external IPs are skipped before load balancer IPs": {ports: 1000, external: 10, balanced: 5, families: 1,
			want: counts{1000, 2, 5, 0, 1}},
		"load balancer IPs before ports": {ports: 8000, external: 1, balanced: 1, families: 1, want: counts{8000, 0, 0, 0, 2}},
		"ports": {ports: 5000, external: 5, families: 2, nodePorts: true,
			want: counts{2048, 0, 0, 0, 2}},
		"ranges, in each family": {
			ports: 1, balanced: 1, ranges4: 9000, ranges6: 10, families: 2, nodePorts: true, want: counts{1, 0, 1, 8202, 1},
		},
	} {
		t.Run(title, func(t *testing.T) {
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "large"}}
			service.Spec.Type = corev1.ServiceTypeClusterIP
			service.Spec.ClusterIPs = []string{"10.96.0.1", "fd00:96::1"}[:test.families]
			service.Spec.ClusterIP = service.Spec.ClusterIPs[0]
			if test.balanced > 0 || test.nodePorts {
				service.Spec.Type = corev1.ServiceTypeLoadBalancer
			}
			for i := range test.ports {
				port := corev1.ServicePort{Name: fmt.Sprint("p", i), Port: int32(1 + i)}
				if test.nodePorts {
					port.NodePort = int32(20000 + i)
				}
				service.Spec.Ports = append(service.Spec.Ports, port)
			}
			service.Spec.ExternalIPs = addressesFrom("198.18.0.0", test.external)
			for _, ip := range addressesFrom("203.0.113.0", test.balanced) {
				service.Status.LoadBalancer.Ingress = append(service.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
			}
			for _, ip := range addressesFrom("20.0.0.1", test.ranges4) {
				service.Spec.LoadBalancerSourceRanges = append(service.Spec.LoadBalancerSourceRanges, ip+"/32")
			}
			for _, ip := range addressesFrom("2001:db8::1", test.ranges6) {
				service.Spec.LoadBalancerSourceRanges = append(service.Spec.LoadBalancerSourceRanges, ip+"/128")
			}
			converted, errs := convert.Service(service, convert.View{})
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			got := counts{len(converted.Ports), len(converted.ExternalIPs), len(converted.LoadBalancerIPs), len(converted.SourceRanges),
				len(converted.Findings)}
			if got != test.want {
				t.Errorf("got %+v, want %+v: %v", got, test.want, converted.Findings)
			}
		})
	}
}
