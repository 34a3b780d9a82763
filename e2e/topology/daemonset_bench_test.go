package topology_test

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/received"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// BenchmarkADaemonSetsSlices measures the cost of EndpointSlices for the proxies' own pods, which contain each node and
// its zone without a publisher. The real EndpointSlice controller writes them while the DaemonSet is rolled out. The
// pods are only objects.
func BenchmarkADaemonSetsSlices(b *testing.B) {
	c, count := newSimulatedCluster(b), measuredNodes(b)
	installProxyService(b)
	c.forEachNode(0, count, func(ctx context.Context, i int) error { return runProxy(ctx, c.admin, i, 0) })
	c.waitForEndpoints(count)
	b.ReportMetric(c.rollOut(count, 10, 1), "MB/rollout-by-10%")
	b.ReportMetric(c.rollOut(count, 1, 2), "MB/rollout-by-1%")
	b.ReportMetric(0, "ns/op")
}

// waitForEndpoints waits until the EndpointSlices have count ready endpoints.
func (c *simulatedCluster) waitForEndpoints(count int) {
	c.b.Helper()
	wait.Until(c.b, "every pod is an endpoint", func() bool {
		time.Sleep(time.Second)
		return len(nodesWithProxy(c.b)) == count
	})
}

// rollOut replaces all pods by those of a generation, some percent at a time. It returns how many MB a watch of the
// slices received.
func (c *simulatedCluster) rollOut(count, percent, generation int) float64 {
	c.b.Helper()
	var bytes received.Bytes
	client, err := kubernetes.NewForConfig(bytes.Wrap(adminConfig()))
	must.Succeed(c.b, err)
	options := proxySlices
	list, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).List(c.b.Context(), options)
	must.Succeed(c.b, err)
	options.ResourceVersion = list.ResourceVersion
	watching, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).Watch(c.b.Context(), options)
	must.Succeed(c.b, err)
	events := make(chan int, 1)
	go func() {
		n := 0
		for event := range watching.ResultChan() {
			if event.Type != watch.Bookmark {
				n++
			}
		}
		events <- n
	}()
	before, spent := bytes.Load(), c.apiServerTime()
	for first := 0; first < count; first += max(1, count*percent/100) {
		last := min(count, first+max(1, count*percent/100))
		c.forEachNode(first, last, func(ctx context.Context, i int) error {
			immediately := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
			return c.admin.CoreV1().Pods(metav1.NamespaceSystem).Delete(ctx, proxyPod(i, generation-1), immediately)
		})
		time.Sleep(time.Second) // time to pull the image
		c.forEachNode(first, last, func(ctx context.Context, i int) error { return runProxy(ctx, c.admin, i, generation) })
		time.Sleep(time.Second)
	}
	c.waitForEndpoints(count)
	time.Sleep(2 * time.Second)
	megabytes, took := float64(bytes.Load()-before)/1e6, c.apiServerTime()-spent
	watching.Stop()
	c.b.Logf("a rollout of %d pods, %d %% at once: %d updates of slices, %.1f MB for each proxy, %.1f s of the API server's CPU time",
		count, percent, <-events, megabytes, took)
	return megabytes
}
