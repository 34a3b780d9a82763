//go:build e2e

package suites

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status/clusterstatus"
)

var _ = Describe("The status of a node", func() {
	// Serial, so that no change of another spec is in progress during both comparisons.
	It("reports for each node and for all nodes that the kernel is in sync, whatever Services existed", Serial, func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		servers := kube.startPods(ctx, namespace, serversOn(kube.nodes)...)
		for name, option := range map[string]serviceOption{
			"plain": func(*corev1.Service) {}, "bounded": topologyMode(balanced), "local": internalLocal,
			"sticky": affinity(3600), "node-port": nodePort,
		} {
			newService(ctx, namespace, named(name), option)
		}
		for _, ready := range []bool{false, true} { // changes the order of slots
			servers[0].setReady(ctx, ready)
		}
		Expect(kube.CoreV1().Services(namespace).Delete(ctx, "local", metav1.DeleteOptions{})).To(Succeed())

		pods := kube.proxyPods(ctx)
		for i := range pods {
			Eventually(func(g Gomega) {
				output, err := kube.exec(ctx, &pods[i], "/proxy", "status")
				g.Expect(err).NotTo(HaveOccurred(), output)
				g.Expect(output).To(And(ContainSubstring("has the desired state"), ContainSubstring("in sync         since")))
			}).WithContext(ctx).Should(Succeed())
		}
		nodes, err := clusterstatus.CheckNodes(ctx, kube.config, clusterstatus.Options{
			Namespace: proxyNamespace, Selector: "app.kubernetes.io/name=vicinity-proxy", Port: 10256,
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(nodes).To(HaveLen(len(pods)))
		for _, node := range nodes {
			Expect(node.InSync).To(BeTrue(), "%+v", node)
		}
	})

	It("uses the proxy's settings in its pod, and on the node itself, where its files do not exist", Serial, func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		kube.startPods(ctx, namespace, serversOn(kube.nodes)...)
		service := newService(ctx, namespace, named("plain"))
		name := service.Namespace + "/" + service.Name
		proxy := kube.proxyPods(ctx)[0]
		for command, want := range map[string]string{
			"flows":           "^(SERVICE +UNANSWERED|Node " + proxy.Spec.NodeName + " has no connection to a Service)",
			"flows " + name:   "Node " + proxy.Spec.NodeName + " has no connection to service " + name,
			"explain " + name: name + " tcp 80/TCP IPv4 on " + proxy.Spec.NodeName,
		} {
			Eventually(func(g Gomega) {
				output, err := kube.exec(ctx, &proxy, append([]string{"/proxy"}, strings.Fields(command)...)...)
				g.Expect(err).NotTo(HaveOccurred(), output)
				g.Expect(output).To(MatchRegexp(want), command)
			}).WithContext(ctx).Should(Succeed())
		}

		isInFile := kube.hasKubeconfig(ctx, &proxy)
		for i, command := range []string{"status", "flows " + name} {
			args := strings.Fields(command)
			if isInFile {
				output := kube.runOnNode(ctx, &proxy, fmt.Sprintf("without-files-%d", i), 2, args...)
				Expect(output).To(ContainSubstring("which is not available here: run this command in the pod"))
				args = append(args, "--kubeconfig=/elsewhere/kubeconfig.conf")
			}
			output := kube.runOnNode(ctx, &proxy, fmt.Sprintf("on-node-%d", i), 0, args...)
			Expect(output).To(Or(ContainSubstring("has the desired state"), ContainSubstring("has no connection to service "+name)))
		}
	})
})

// hasKubeconfig reports whether a proxy uses a kubeconfig in its ConfigMap to reach the API server.
func (c cluster) hasKubeconfig(ctx context.Context, proxy *corev1.Pod) bool {
	GinkgoHelper()
	found, err := c.CoreV1().ConfigMaps(proxyNamespace).Get(ctx, configVolume(proxy).ConfigMap.Name, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return found.Data["kubeconfig.conf"] != ""
}

func configVolume(proxy *corev1.Pod) corev1.Volume {
	GinkgoHelper()
	i := slices.IndexFunc(proxy.Spec.Volumes, func(volume corev1.Volume) bool { return volume.ConfigMap != nil })
	Expect(i).To(BeNumerically(">=", 0), "the proxy has a volume with its ConfigMap")
	return proxy.Spec.Volumes[i]
}

// runOnNode runs a command of the proxy's program in another pod on the proxy's node, with host networking and with the
// files of its ConfigMap at another path. It retries until the command ends with the wanted exit status, and returns
// its output.
func (c cluster) runOnNode(ctx context.Context, proxy *corev1.Pod, name string, want int32, args ...string) string {
	GinkgoHelper()
	container := proxy.Spec.Containers[0]
	pods := c.CoreV1().Pods(proxyNamespace)
	var output string
	Eventually(func(g Gomega) {
		pod, err := pods.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-"},
			Spec: corev1.PodSpec{
				NodeName: proxy.Spec.NodeName, HostNetwork: true, RestartPolicy: corev1.RestartPolicyNever,
				ServiceAccountName: proxy.Spec.ServiceAccountName, SecurityContext: proxy.Spec.SecurityContext,
				Volumes: []corev1.Volume{configVolume(proxy)},
				Containers: []corev1.Container{{
					Name: "proxy", Image: container.Image, ImagePullPolicy: container.ImagePullPolicy, Args: args,
					SecurityContext: container.SecurityContext,
					VolumeMounts:    []corev1.VolumeMount{{Name: configVolume(proxy).Name, MountPath: "/elsewhere"}},
				}},
			},
		}, metav1.CreateOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		defer func() { _ = pods.Delete(ctx, pod.Name, metav1.DeleteOptions{}) }() // it has ended
		var ended *corev1.ContainerStateTerminated
		g.Eventually(func() *corev1.ContainerStateTerminated {
			found, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
			if err == nil && len(found.Status.ContainerStatuses) > 0 {
				ended = found.Status.ContainerStatuses[0].State.Terminated
			}
			return ended
		}).WithContext(ctx).ShouldNot(BeNil())
		log, err := pods.GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		output = string(log)
		g.Expect(ended.ExitCode).To(Equal(want), "%s: %s", args, output)
	}).WithContext(ctx).Should(Succeed())
	return output
}
