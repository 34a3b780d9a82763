//go:build e2e

package suites

import (
	"bytes"
	"context"
	"fmt"
	"io"

	. "github.com/onsi/ginkgo/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"sigs.k8s.io/yaml"
)

// After a failure and before cleanup, this hook logs the spec's objects in the API server, and the proxies' view of
// them on each node. The results of every test pod are already in the spec's output.
var _ = JustAfterEach(func(ctx SpecContext) {
	if CurrentSpecReport().Failed() && currentNamespace != "" {
		describe(ctx, GinkgoWriter, currentNamespace)
	}
})

// describe writes everything that explains which servers reply in a namespace. It writes errors instead of parts that
// it cannot get, and continues.
func describe(ctx context.Context, to io.Writer, namespace string) {
	services, err := kube.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{})
	for i := range services.Items {
		services.Items[i].ManagedFields = nil
	}
	describeObjects(to, "Services", services.Items, err)
	slices, err := kube.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{})
	for i := range slices.Items {
		slices.Items[i].ManagedFields = nil
	}
	describeObjects(to, "EndpointSlices", slices.Items, err)
	pods, err := kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	fmt.Fprintf(to, "\nPods of %s (%v):\n", namespace, err)
	for _, pod := range pods.Items {
		fmt.Fprintf(to, "%s on %s: %v, ready %t, ending %v\n",
			pod.Name, pod.Spec.NodeName, pod.Status.PodIPs, isReady(&pod), pod.DeletionTimestamp)
	}
	nodes, err := kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	fmt.Fprintf(to, "\nLabels of the nodes (%v):\n", err)
	for _, object := range nodes.Items {
		fmt.Fprintf(to, "%s: %v\n", object.Name, object.Labels)
	}
	for _, pod := range kube.proxyPods(ctx) {
		describeProxy(ctx, to, &pod, services.Items)
	}
	webhooks, err := kube.CoreV1().Pods(webhookNamespace).List(ctx, metav1.ListOptions{})
	fmt.Fprintf(to, "\nPods of the webhook (%v): %d\n", err, len(webhooks.Items))
	for _, pod := range webhooks.Items {
		describeLog(ctx, to, "webhook", &pod)
	}
}

func describeObjects[Object any](to io.Writer, kind string, objects []Object, err error) {
	text, encodeErr := yaml.Marshal(objects)
	fmt.Fprintf(to, "\n%s (%v, %v):\n%s", kind, err, encodeErr, text)
}

// describeProxy writes how a proxy explains the Services on its node, and the end of its log.
func describeProxy(ctx context.Context, to io.Writer, proxy *corev1.Pod, services []corev1.Service) {
	for _, service := range services {
		output, err := kube.explain(ctx, proxy, service.Namespace+"/"+service.Name)
		fmt.Fprintf(to, "\n%s explains %s (%v):\n%s", proxy.Spec.NodeName, service.Name, err, output)
	}
	describeLog(ctx, to, "proxy", proxy)
}

// describeLog writes the end of a pod's log.
func describeLog(ctx context.Context, to io.Writer, component string, pod *corev1.Pod) {
	log, err := kube.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{TailLines: new(int64(20))}).DoRaw(ctx)
	fmt.Fprintf(to, "\nThe %s's log on %s (%v):\n%s", component, pod.Spec.NodeName, err, log)
}

// explain runs `proxy explain` in a proxy's pod, with the proxy's own settings.
func (c cluster) explain(ctx context.Context, proxy *corev1.Pod, service string) (string, error) {
	return c.exec(ctx, proxy, "/proxy", "explain", service)
}

// exec runs a command in a pod, and returns what it printed.
func (c cluster) exec(ctx context.Context, pod *corev1.Pod, command ...string) (string, error) {
	request := c.CoreV1().RESTClient().Post().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: pod.Spec.Containers[0].Name,
			Command:   command,
			Stdout:    true, Stderr: true,
		}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(c.config, "GET", request.URL().String())
	if err != nil {
		return "", err
	}
	var stdout, stderr bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr})
	return stdout.String() + stderr.String(), err
}
