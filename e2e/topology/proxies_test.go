package topology_test

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/apiserver"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// proxyService is the Service of the proxies in the manifests.
var proxyService = model.ObjectName{Namespace: metav1.NamespaceSystem, Name: "vicinity-proxy"}

// proxySlices selects its EndpointSlices.
var proxySlices = metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + proxyService.Name}

// installProxyService applies the Service, and runs the real EndpointSlice controller. Pods are only objects.
func installProxyService(t testing.TB) {
	t.Helper()
	_, err := api.Shell(t.Context(), "kubectl apply -f manifests/service.yaml")
	must.Succeed(t, err)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}} // another controller would create it
	_, err = api.Admin.CoreV1().ServiceAccounts(metav1.NamespaceSystem).Create(t.Context(), account, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		must.Succeed(t, err)
	}
	controller := exec.CommandContext(context.WithoutCancel(t.Context()), api.Programs.Path(binaries.Kubernetes, "kube-controller-manager"),
		"--kubeconfig", site.Kubeconfig(t, api.AdminConfig()), "--controllers=endpointslice-controller", "--leader-elect=false",
		"--secure-port=0", "--kube-api-qps=1000", "--kube-api-burst=2000")
	controller.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must.Succeed(t, controller.Start())
	t.Cleanup(func() {
		_, _ = controller.Process.Kill(), controller.Wait()
		ctx := context.WithoutCancel(t.Context())
		immediately, all := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, metav1.ListOptions{}
		must.Succeed(t, api.Admin.CoreV1().Pods(metav1.NamespaceSystem).DeleteCollection(ctx, immediately, all))
		must.Succeed(t, api.Admin.CoreV1().Services(proxyService.Namespace).Delete(ctx, proxyService.Name, metav1.DeleteOptions{}))
		must.Succeed(t, api.Admin.DiscoveryV1().EndpointSlices(proxyService.Namespace).DeleteCollection(ctx, immediately, proxySlices))
	})
}

// proxyPod returns the name of a proxy's pod.
func proxyPod(node, generation int) string {
	return fmt.Sprintf("vicinity-proxy-%04d-%d", node, generation)
}

// runProxy creates a proxy's pod on a node, and makes it ready as a kubelet does.
func runProxy(ctx context.Context, admin kubernetes.Interface, node, generation int) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: proxyPod(node, generation), Labels: map[string]string{"app.kubernetes.io/name": "vicinity-proxy"}},
		Spec: corev1.PodSpec{
			NodeName: fmt.Sprintf("node-%04d", node), HostNetwork: true,
			Containers: []corev1.Container{{Name: "proxy", Image: "proxy"}},
		},
	}
	created, err := admin.CoreV1().Pods(metav1.NamespaceSystem).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	address := fmt.Sprintf("10.1.%d.%d", node/250, node%250+1)
	created.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}}, HostIP: address,
		HostIPs:    []corev1.HostIP{{IP: address}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	_, err = admin.CoreV1().Pods(metav1.NamespaceSystem).UpdateStatus(ctx, created, metav1.UpdateOptions{})
	return err
}

// nodesWithProxy returns the nodes that have a ready proxy according to the EndpointSlices.
func nodesWithProxy(t testing.TB) map[string]bool {
	t.Helper()
	list, err := api.Admin.DiscoveryV1().EndpointSlices(proxyService.Namespace).List(t.Context(), proxySlices)
	must.Succeed(t, err)
	nodes := map[string]bool{}
	for _, slice := range list.Items {
		for _, endpoint := range slice.Endpoints {
			if *endpoint.Conditions.Ready {
				nodes[*endpoint.NodeName] = true
			}
		}
	}
	return nodes
}

// labels returns the other nodes' labels that a proxy knows, as text.
func (v *proxyView) labels() string {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	var all []string
	for _, name := range slices.Sorted(maps.Keys(v.nodes)) {
		if name != "node-0000" {
			all = append(all, fmt.Sprint(name, v.nodes[name].Labels))
		}
	}
	return strings.Join(all, "\n")
}

// zoneLabels returns the labels that createNodes sets on the other nodes of fewNodes, restricted to those that a load
// bound by zone needs.
func zoneLabels() map[string]map[string]string {
	nodes := map[string]map[string]string{}
	for i := 1; i < fewNodes; i++ {
		nodes[fmt.Sprintf("node-%04d", i)] = map[string]string{string(policy.Zone): "zone-" + string(rune('a'+i%3))}
	}
	return nodes
}

func topologyText(nodes map[string]map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		all = append(all, fmt.Sprint(name, nodes[name]))
	}
	return strings.Join(all, "\n")
}

func createBounded(t testing.TB) {
	t.Helper()
	api.Create(t, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "bounded", Namespace: "default", Annotations: map[string]string{
			policy.TopologyKeysAnnotation: string(policy.Zone) + ", *", policy.MaxLoadAnnotation: "120%",
		}},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	})
}

// TestTheProxiesThemselvesReportInWhichZonesNodesAre covers clusters without a publisher in which no Service needs more
// than zones. The nodes' demand is the same as with Nodes as the source.
func TestTheProxiesThemselvesReportInWhichZonesNodesAre(t *testing.T) {
	install(t)
	proxy := proxyConfig(t)
	createNodes(t, 0, fewNodes)
	api.Kubectl(t, "label", "node", "node-0004", policy.ControlPlaneLabel+"=", policy.NoBalancersLabel+"=")
	installProxyService(t)
	for i := range fewNodes {
		must.Succeed(t, runProxy(t.Context(), api.Admin, i, 0))
	}
	wait.Until(t, "every proxy is an endpoint", func() bool { return len(nodesWithProxy(t)) == fewNodes })
	createBounded(t)
	v := newProxyView(t, proxy, apiserver.AutoTopology)
	wait.Until(t, "the bounded Service", func() bool { return v.serves("bounded") })
	want := zoneLabels()
	maps.Copy(want["node-0004"], map[string]string{policy.ControlPlaneLabel: "", policy.NoBalancersLabel: ""})
	if got := v.labels(); got != topologyText(want) {
		t.Errorf("nodes when the Service is served:\n%s\nwant\n%s", got, topologyText(want))
	}
	wait.Equal(t, "topology source", model.TopologyFromProxies, v.source) // it reports the source once it uses it

	// The demand of a node changes.
	api.Kubectl(t, "label", "node", "node-0005", policy.DemandLabel+"=7")
	want["node-0005"][policy.DemandLabel] = "7"
	wait.Equal(t, "a node with a demand", topologyText(want), v.labels)
	api.Kubectl(t, "label", "node", "node-0005", policy.DemandLabel+"-")
	delete(want["node-0005"], policy.DemandLabel)
	wait.Equal(t, "the demand was removed", topologyText(want), v.labels)

	// A rollout deletes pods and creates others. No node is lost during that time.
	for i := 1; i < 4; i++ {
		api.Kubectl(t, "--namespace", "kube-system", "delete", "pod", proxyPod(i, 0), "--force", "--grace-period=0")
	}
	wait.Until(t, "three proxies fewer", func() bool { return len(nodesWithProxy(t)) == fewNodes-3 })
	// The controller updates a node's zone with the next change of any proxy's pod.
	api.Kubectl(t, "label", "node", "node-0006", string(policy.Zone)+"=zone-z", "--overwrite")
	want["node-0006"][string(policy.Zone)] = "zone-z"
	createNodes(t, fewNodes, fewNodes+1)
	must.Succeed(t, runProxy(t.Context(), api.Admin, fewNodes, 0))
	want["node-0030"] = map[string]string{string(policy.Zone): "zone-a"}
	wait.Equal(t, "another node, and a node in another zone", topologyText(want), v.labels)
	for i := 1; i < 4; i++ {
		must.Succeed(t, runProxy(t.Context(), api.Admin, i, 1))
	}
	wait.Until(t, "as many proxies as nodes", func() bool { return len(nodesWithProxy(t)) == fewNodes+1 })

	// A Service needs racks, which the proxies' slices do not have. It waits until Nodes are listed; other Services do not
	// wait.
	createServiceWithKeys(t, "racked", rack+", *")
	wait.Until(t, "the Service with racks", func() bool {
		isServed, racks := v.serves("racked"), v.racks()
		if isServed && racks != racksText(withNewNode(expectedRacks())) {
			t.Fatalf("the Service is served before all racks are known; known racks: %s", racks)
		}
		return isServed
	})
	wait.Equal(t, "topology source with racks", model.TopologyFromNodes, v.source)
	if removed := v.takeRemoved(); len(removed) > 0 {
		t.Errorf("lost nodes: %q, want none", removed)
	}
}

func withNewNode(racks map[string]string) map[string]string {
	racks["0030"] = "rack-3"
	return racks
}

// TestTooFewProxiesReportNothing checks that Nodes are watched if many nodes have no proxy.
func TestTooFewProxiesReportNothing(t *testing.T) {
	install(t)
	proxy := proxyConfig(t)
	createNodes(t, 0, fewNodes)
	installProxyService(t)
	for i := range fewNodes - 4 {
		must.Succeed(t, runProxy(t.Context(), api.Admin, i, 0))
	}
	wait.Until(t, "every proxy is an endpoint", func() bool { return len(nodesWithProxy(t)) == fewNodes-4 })
	createBounded(t)
	v := newProxyView(t, proxy, apiserver.AutoTopology)
	wait.Until(t, "the bounded Service", func() bool { return v.serves("bounded") })
	if got := v.labels(); got != topologyText(zoneLabels()) {
		t.Errorf("nodes:\n%s\nwant\n%s", got, topologyText(zoneLabels()))
	}
	wait.Equal(t, "topology source", model.TopologyFromNodes, v.source)
}
