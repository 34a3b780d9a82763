//go:build e2e

package suites

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	// dataPort is the port on which a test pod replies with its name, over TCP and UDP.
	dataPort = 8080
	// controlPort is the port of a test pod's control API.
	controlPort = 8081
	// appLabel labels the pods that the spec's Services select.
	appLabel = "app"
)

// probeImage is e2e/probe in an image that the nodes have, or can pull.
func probeImage() string { return cmp.Or(os.Getenv("PROBE_IMAGE"), "vicinity-probe:lab") }

type podOption func(*corev1.Pod)

// newPod returns a test pod on a node. It bypasses the scheduler, because each spec determines the nodes of its pods.
func newPod(name string, n node, options ...podOption) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}},
		Spec:       podSpec(),
	}
	pod.Spec.NodeName = n.name
	for _, option := range options {
		option(pod)
	}
	return pod
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{
		AutomountServiceAccountToken: new(false),
		// Only the specs about termination should wait for pods to end.
		TerminationGracePeriodSeconds: new(int64(1)),
		Containers: []corev1.Container{{
			Name:            "probe",
			Image:           probeImage(),
			ImagePullPolicy: corev1.PullIfNotPresent,
			Args:            []string{"serve"},
			Env: []corev1.EnvVar{{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"},
			}}},
			ReadinessProbe: &corev1.Probe{
				ProbeHandler: corev1.ProbeHandler{
					HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(controlPort)},
				},
				PeriodSeconds: 1, TimeoutSeconds: 5, FailureThreshold: 1,
			},
		}},
	}
}

// selected makes a pod an endpoint of the Services of newService.
func selected(pod *corev1.Pod) { pod.Labels[appLabel] = "web" }

// inNodeNetwork makes a pod use host networking.
func inNodeNetwork(pod *corev1.Pod) {
	pod.Spec.HostNetwork = true
	pod.Spec.DNSPolicy = corev1.DNSClusterFirstWithHostNet
}

// afterSIGTERM lets a pod keep serving for this long after SIGTERM. Until then its readiness probe succeeds, and its
// endpoint is terminating and serving, and not ready.
func afterSIGTERM(grace time.Duration) podOption {
	return func(pod *corev1.Pod) { serveAfterSIGTERM(&pod.Spec, grace) }
}

func serveAfterSIGTERM(spec *corev1.PodSpec, grace time.Duration) {
	seconds := int64(grace.Seconds())
	spec.TerminationGracePeriodSeconds = new(seconds + 5)
	spec.Containers[0].Env = append(spec.Containers[0].Env, corev1.EnvVar{Name: "GRACE", Value: strconv.FormatInt(seconds, 10) + "s"})
}

// serversOn returns a server for each node, named after it.
func serversOn(nodes []node, options ...podOption) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, n := range nodes {
		pods = append(pods, newPod("web-"+n.name, n, append([]podOption{selected}, options...)...))
	}
	return pods
}

// startPods creates pods and waits until all are ready. It returns them in the given order.
func (c cluster) startPods(ctx context.Context, namespace string, pods ...*corev1.Pod) testPods {
	GinkgoHelper()
	for _, pod := range pods {
		_, err := c.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
	}
	started := make(testPods, len(pods))
	for i, pod := range pods {
		Eventually(func(g Gomega) {
			found, err := c.CoreV1().Pods(namespace).Get(ctx, pod.Name, metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(isReady(found)).To(BeTrue(), "pod %s/%s on %s is ready: %+v", namespace, pod.Name, pod.Spec.NodeName, found.Status)
			started[i] = c.testPodOf(found)
		}).WithContext(ctx).Should(Succeed())
	}
	return started
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// deletePods deletes pods without waiting.
func (c cluster) deletePods(ctx context.Context, pods ...testPod) {
	GinkgoHelper()
	for _, pod := range pods {
		Expect(c.CoreV1().Pods(pod.namespace).Delete(ctx, pod.name, metav1.DeleteOptions{})).To(Succeed(), "pod %s", pod.name)
	}
}

// startClients starts the clients that all specs share.
func (c cluster) startClients(ctx context.Context, namespace string) {
	GinkgoHelper()
	c.startPods(ctx, namespace, clientPods(c.nodes)...)
}

func clientPods(nodes []node) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, n := range nodes {
		pods = append(pods, newPod(clientName("pod", n), n), newPod(clientName("node", n), n, inNodeNetwork))
	}
	return pods
}

func clientName(kind string, n node) string { return fmt.Sprintf("%s-client-%s", kind, n.name) }

// clients finds the clients that startClients started.
func (c cluster) clients(ctx context.Context, namespace string) (inPods, inNodes testPods) {
	GinkgoHelper()
	find := func(kind string, n node) testPod {
		pod, err := c.CoreV1().Pods(namespace).Get(ctx, clientName(kind, n), metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		return c.testPodOf(pod)
	}
	for _, n := range c.nodes {
		inPods = append(inPods, find("pod", n))
		inNodes = append(inNodes, find("node", n))
	}
	return inPods, inNodes
}
