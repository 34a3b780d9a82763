package manifests_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// vicinityPods returns the pods that run our image, by the file that defines them.
func vicinityPods(t *testing.T) map[string]corev1.PodSpec {
	t.Helper()
	return map[string]corev1.PodSpec{
		"full":              only(t, plain(t, folder).DaemonSets).Spec.Template.Spec,
		"beside kube-proxy": only(t, kustomized(t, besideKubeProxy).DaemonSets).Spec.Template.Spec,
		"cleanup":           plain(t, cleanup).Jobs["vicinity-cleanup-"].Spec.Template.Spec,
	}
}

func TestOurPodsMayProgramTheNetworkAndNothingElse(t *testing.T) {
	yes, no, root := true, false, int64(0)
	wantPod := &corev1.PodSecurityContext{
		RunAsUser: &root, RunAsGroup: &root, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	wantContainer := &corev1.SecurityContext{
		AllowPrivilegeEscalation: &no,
		ReadOnlyRootFilesystem:   &yes,
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN"}},
	}
	for name, pod := range vicinityPods(t) {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(wantPod, pod.SecurityContext); diff != "" {
				t.Errorf("the pod (-want +got):\n%s", diff)
			}
			if len(pod.Containers) != 1 || len(pod.InitContainers)+len(pod.EphemeralContainers) > 0 {
				t.Fatalf("want exactly one container: %+v", pod)
			}
			if diff := cmp.Diff(wantContainer, pod.Containers[0].SecurityContext); diff != "" {
				t.Errorf("the container (-want +got):\n%s", diff)
			}
			if pod.HostPID || pod.HostIPC || pod.ShareProcessNamespace != nil {
				t.Error("the pod shares more than the network with the node")
			}
			for _, volume := range pod.Volumes {
				if volume.ConfigMap == nil {
					t.Errorf("volume %s is not a ConfigMap", volume.Name)
				}
			}
		})
	}
}

func TestOurPodsAreOnEveryNodeAndInItsNetwork(t *testing.T) {
	for name, pod := range vicinityPods(t) {
		t.Run(name, func(t *testing.T) {
			if !pod.HostNetwork || pod.PriorityClassName != "system-node-critical" {
				t.Errorf("hostNetwork %t and priority class %q, want true and system-node-critical", pod.HostNetwork, pod.PriorityClassName)
			}
			if diff := cmp.Diff([]corev1.Toleration{{Operator: corev1.TolerationOpExists}}, pod.Tolerations); diff != "" {
				t.Errorf("tolerations (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheContainersHaveNoLimits(t *testing.T) {
	for name, pod := range vicinityPods(t) {
		if limits := pod.Containers[0].Resources.Limits; len(limits) > 0 {
			t.Errorf("%s: limits %v, want none", name, limits)
		}
	}
}

func TestTheImageIsNamedOnceForAll(t *testing.T) {
	pods := vicinityPods(t)
	for _, name := range []string{"full", "beside kube-proxy"} {
		container := pods[name].Containers[0]
		if container.Image != "vicinity-proxy:VERSION" || len(container.Command) > 0 {
			t.Errorf("%s: image %q with command %v, want vicinity-proxy:VERSION and no command", name, container.Image,
				container.Command)
		}
	}
}

// kubectl describe must show the reason, so that users need not search the log of a container that has ended.
func TestDescribingAPodShowsWhyItDidNotStart(t *testing.T) {
	pods := vicinityPods(t)
	for _, name := range []string{"full", "beside kube-proxy"} {
		if got := pods[name].Containers[0].TerminationMessagePolicy; got != corev1.TerminationMessageFallbackToLogsOnError {
			t.Errorf("%s: terminationMessagePolicy %q, want %q", name, got, corev1.TerminationMessageFallbackToLogsOnError)
		}
	}
}

// TestTheServiceSelectsExactlyTheProxies checks that --proxy-service matches its name, and that clients cannot dial it.
func TestTheServiceSelectsExactlyTheProxies(t *testing.T) {
	for name, all := range map[string]documents{"plain": plain(t, folder), "beside kube-proxy": kustomized(t, besideKubeProxy)} {
		service, proxies := only(t, all.Services), only(t, all.DaemonSets)
		if service.Namespace+"/"+service.Name != "kube-system/vicinity-proxy" {
			t.Errorf("%s: the Service is %s/%s", name, service.Namespace, service.Name)
		}
		if diff := cmp.Diff(proxies.Spec.Selector.MatchLabels, service.Spec.Selector); diff != "" {
			t.Errorf("%s: selector (-DaemonSet +Service):\n%s", name, diff)
		}
		if service.Spec.ClusterIP != corev1.ClusterIPNone || len(service.Spec.Ports) > 0 || !service.Spec.PublishNotReadyAddresses {
			t.Errorf("%s: got %+v, want a headless Service without ports that publishes unready addresses", name, service.Spec)
		}
	}
}
