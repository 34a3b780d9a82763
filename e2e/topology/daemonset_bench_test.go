package topology_test

import (
	"context"
	"fmt"
	"os/exec"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// BenchmarkADaemonSetsSlices: what EndpointSlices over the proxies' own pods would cost, which name each node and its
// zone without a publisher: by the real EndpointSlice controller, while the DaemonSet is rolled out. The pods are objects
// alone.
func BenchmarkADaemonSetsSlices(b *testing.B) {
	s, count := newTown(b), measuredNodes(b)
	controller := exec.CommandContext(b.Context(), api.Programs.Path(binaries.Kubernetes, "kube-controller-manager"),
		"--kubeconfig", site.Kubeconfig(b, api.AdminConfig()), "--controllers=endpointslice-controller", "--leader-elect=false",
		"--secure-port=0", "--kube-api-qps=1000", "--kube-api-burst=2000")
	controller.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must.Succeed(b, controller.Start())
	b.Cleanup(func() { _, _ = controller.Process.Kill(), controller.Wait() })

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}} // which another controller would make
	_, err := s.admin.CoreV1().ServiceAccounts(metav1.NamespaceSystem).Create(b.Context(), account, metav1.CreateOptions{})
	must.Succeed(b, err)
	service := objects.Service(metav1.NamespaceSystem, "proxies")
	service.Spec.ClusterIP = corev1.ClusterIPNone
	_, err = s.admin.CoreV1().Services(metav1.NamespaceSystem).Create(b.Context(), service, metav1.CreateOptions{})
	must.Succeed(b, err)
	s.all(0, count, func(ctx context.Context, i int) error { return s.runPod(ctx, i, 0) })
	s.awaitEndpoints(count)
	b.ReportMetric(s.rollOut(count, 10, 1), "MB/rollout-by-10%")
	b.ReportMetric(s.rollOut(count, 1, 2), "MB/rollout-by-1%")
	b.ReportMetric(0, "ns/op")
}

// proxiesSlices are the EndpointSlices over the proxies.
var proxiesSlices = metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=proxies"}

// awaitEndpoints waits until the EndpointSlices have that many ready endpoints.
func (s *town) awaitEndpoints(count int) {
	s.b.Helper()
	wait.Until(s.b, "every pod is an endpoint", func() bool {
		time.Sleep(time.Second)
		list, err := s.admin.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).List(s.b.Context(), proxiesSlices)
		must.Succeed(s.b, err)
		ready := 0
		for _, slice := range list.Items {
			for _, endpoint := range slice.Endpoints {
				if *endpoint.Conditions.Ready {
					ready++
				}
			}
		}
		return ready == count
	})
}

// rollOut replaces all pods by those of a generation, some percent at once, and returns how many MB a watch of the slices
// has received.
func (s *town) rollOut(count, percent, generation int) float64 {
	s.b.Helper()
	var c counted
	client, err := kubernetes.NewForConfig(c.client())
	must.Succeed(s.b, err)
	of := proxiesSlices
	list, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).List(s.b.Context(), of)
	must.Succeed(s.b, err)
	of.ResourceVersion = list.ResourceVersion
	watching, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).Watch(s.b.Context(), of)
	must.Succeed(s.b, err)
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
	before, spent := c.received.Load(), s.apiServerTime()
	for first := 0; first < count; first += max(1, count*percent/100) {
		last := min(count, first+max(1, count*percent/100))
		s.all(first, last, func(ctx context.Context, i int) error {
			at := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
			return s.admin.CoreV1().Pods(metav1.NamespaceSystem).Delete(ctx, podName(i, generation-1), at)
		})
		time.Sleep(time.Second) // the node pulls the image
		s.all(first, last, func(ctx context.Context, i int) error { return s.runPod(ctx, i, generation) })
		time.Sleep(time.Second)
	}
	s.awaitEndpoints(count)
	time.Sleep(2 * time.Second)
	received, took := float64(c.received.Load()-before)/1e6, s.apiServerTime()-spent
	watching.Stop()
	s.b.Logf("a rollout of %d pods, %d %% at once: %d updates of slices, %.1f MB for each proxy, %.1f s of the API server's processor time",
		count, percent, <-events, received, took)
	return received
}

func podName(node, generation int) string { return fmt.Sprintf("proxies-%04d-%d", node, generation) }

// runPod creates a pod on a node, and makes it ready as a kubelet does.
func (s *town) runPod(ctx context.Context, node, generation int) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: podName(node, generation), Labels: map[string]string{"app": "proxies"}},
		Spec: corev1.PodSpec{
			NodeName: s.nodes[node].Name, HostNetwork: true,
			Containers: []corev1.Container{{Name: "proxy", Image: "proxy"}},
		},
	}
	made, err := s.admin.CoreV1().Pods(metav1.NamespaceSystem).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	address := fmt.Sprintf("10.1.%d.%d", node/250, node%250+1)
	made.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}}, HostIP: address,
		HostIPs:    []corev1.HostIP{{IP: address}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	_, err = s.admin.CoreV1().Pods(metav1.NamespaceSystem).UpdateStatus(ctx, made, metav1.UpdateOptions{})
	return err
}
