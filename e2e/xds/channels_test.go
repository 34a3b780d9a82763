package xds

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// TestAHundredChannelsOnThreeNodes opens channels, each with its own stream to the daemon of its node. The channels
// call the same servers as plain connections from the same pod, in the same shares: evenly. Zones have five, three and
// one servers.
func TestAHundredChannelsOnThreeNodes(t *testing.T) {
	s := newTestbedOf(t, 3, 0, 0, 0, 0, 0, 1, 1, 1, 2)
	kinds := []string{"kubernetes.io/hostname, *", "topology.kubernetes.io/zone", ""}
	const channels = 102 // 34 per node
	s.createServices(channels/len(s.nodes), kinds)
	replies := 0
	for i, node := range s.nodes {
		daemon := s.startOn(i, fmt.Sprintf("0.0.0.0:%d", xdsPort))
		pod, err := node.AddPod(fmt.Sprintf("client-%d", i))
		must.Succeed(t, err)
		c := startClient(t, fmt.Sprintf("dns:///%s:%d", xdsClusterIP, xdsPort), pod.Namespace)
		for k := range channels / len(s.nodes) {
			var want []endpoint
			for j := range s.servers {
				if kinds[k%len(kinds)] == "" || s.servers[j].node == i {
					want = append(want, s.endpointsOf(j)...)
				}
			}
			what := fmt.Sprintf("channel %d on node-%d", k, i+1)
			base := command{Channel: what, Target: fmt.Sprintf("xds:///web-%d.shop:80", k)}
			connect := base
			connect.Until, connect.Calls, connect.Timeout, connect.Wait = addrs(want), 10*len(want), 60_000, true
			if got := c.do(connect); got.Wrong != "" || len(got.Errors) > 0 || got.Last > 0 {
				t.Fatalf("%s: %s; errors %s, replies %s", what, got.Wrong, formatCounts(got.Errors), formatCounts(got.Answers))
			}
			base.Calls = 40 * len(want)
			got := c.do(base)
			checkEven(t, what, addrs(want), got.Answers)
			replies += base.Calls
			if k < len(kinds) {
				checkEven(t, what+", through the kernel", addrs(want), s.connectPlain(c, clusterIP(k), 60*len(want)))
			}
		}
		streams, err := daemon.Metric(metricsAddr, "vicinity_xds_streams")
		must.Succeed(t, err)
		rejected, err := daemon.Metric(metricsAddr, "vicinity_xds_responses_total", `result="nacked"`)
		must.Succeed(t, err)
		if streams != channels/3 || rejected > 0 {
			t.Errorf("node-%d has %v streams, and rejected %v responses, want %d and none", i+1, streams, rejected, channels/3)
		}
	}
	t.Logf("%d calls by %d channels", replies, channels)
}

func clusterIP(number int) string { return fmt.Sprintf("10.96.1.%d", 1+number) }

// createServices creates the given number of Services with all servers as endpoints. Their keys alternate.
func (tb *testbed) createServices(services int, keys []string) {
	var objects []runtime.Object
	for i := range tb.nodes {
		objects = append(objects, tb.node(fmt.Sprintf("node-%d", i+1), string(rune('a'+i)), ""))
	}
	for k := range services {
		name := fmt.Sprintf("web-%d", k)
		service := &corev1.Service{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"},
			Spec: corev1.ServiceSpec{
				ClusterIP: clusterIP(k), ClusterIPs: []string{clusterIP(k)},
				Ports: []corev1.ServicePort{{Name: "grpc", Protocol: corev1.ProtocolTCP, Port: 80}},
			},
		}
		if key := keys[k%len(keys)]; key != "" {
			service.Annotations = map[string]string{policy.TopologyKeysAnnotation: key}
		}
		objects = append(objects, service)
		for _, one := range tb.servers {
			slice := tb.slice(name, "shop", one.pod.IPv4, "grpc", serverPort, true)
			slice.Endpoints[0].NodeName = new(fmt.Sprintf("node-%d", one.node+1))
			slice.Endpoints[0].Zone = new(string(rune('a' + one.node)))
			objects = append(objects, slice)
		}
	}
	tb.write("node", objects...)
}

// connectPlain makes count plain connections to an address, and counts the servers that reply.
func (tb *testbed) connectPlain(c *client, clusterIP string, count int) map[string]int {
	counts := map[string]int{}
	for range count {
		got := c.do(command{Channel: "plain", Target: "passthrough:///" + clusterIP + ":80", Calls: 1, Timeout: 10_000, Close: true})
		for name := range got.Answers {
			counts[name]++
		}
	}
	return counts
}

// checkEven expects replies from exactly some servers, each with a count that is plausible for uniform random
// selection: the sum of squares exceeds the bound less than once in a million draws among nine.
func checkEven(t *testing.T, what string, want []string, counts map[string]int) {
	t.Helper()
	want = slices.Sorted(slices.Values(want))
	if got := slices.Sorted(maps.Keys(counts)); !slices.Equal(got, want) {
		t.Errorf("%s: replies from %s, want %s", what, strings.Join(got, " "), strings.Join(want, " "))
		return
	}
	sum, chi := 0, 0.0
	for _, count := range counts {
		sum += count
	}
	expected := float64(sum) / float64(len(want))
	for _, count := range counts {
		chi += (float64(count) - expected) * (float64(count) - expected) / expected
	}
	if chi > 43 {
		t.Errorf("%s: chi-square is %.1f, want at most 43: %s", what, chi, formatCounts(counts))
	}
}
