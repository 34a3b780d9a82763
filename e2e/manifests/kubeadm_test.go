package manifests_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/lab/controlplane"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
)

// kubeadm is a cluster of two control plane nodes as kubeadm sees it: the objects that it reads at the API server, and
// its files.
type kubeadm struct {
	t                *testing.T
	api              *site.Site
	program, version string
}

const oldVersion = "v1.30.0"

// TestKubeadmUpgradesObeyTheSwitch checks that `kubeadm upgrade node` on the last of two control plane nodes installs
// kube-proxy unless the steps in manifests/distributions.md were followed. The variable KUBEADM names a kubeadm of
// another release.
func TestKubeadmUpgradesObeyTheSwitch(t *testing.T) {
	for _, test := range []struct {
		name, setting string
		isInstalled   bool
		output        string
	}{
		{"without the switch", "", true, "Applied essential addon: kube-proxy"},
		{"with the switch", "proxy: {disabled: true}", false, "The addon is disabled"},
	} {
		t.Run(test.name, func(t *testing.T) {
			k := newKubeadm(t, test.setting)
			k.upgrade("cp-1")
			printed := k.upgradeAddon("cp-1")
			waits := strings.Contains(printed, "[cp-2] have not been upgraded")
			if k.hasKubeProxy() || waits != test.isInstalled {
				t.Errorf("after the first of two nodes: kube-proxy is installed: %t; kubeadm waits for the other node: %t\n%s",
					k.hasKubeProxy(), waits, printed)
			}
			k.upgrade("cp-2")
			printed = k.upgradeAddon("cp-2")
			if got := k.hasKubeProxy(); got != test.isInstalled || !strings.Contains(printed, test.output) {
				t.Errorf("kube-proxy is installed: %t, want %t, and %q in:\n%s", got, test.isInstalled, test.output, printed)
			}
		})
	}
}

func newKubeadm(t *testing.T, setting string) *kubeadm {
	t.Helper()
	k := &kubeadm{t: t, api: site.New(t, site.Config{}), program: os.Getenv("KUBEADM")}
	if k.program == "" {
		built, err := binaries.Build(t.Context(), os.Stderr, binaries.Kubeadm)
		must.Succeed(t, err)
		k.program = built.Path(binaries.Kubeadm, "kubeadm")
	}
	version, err := exec.CommandContext(t.Context(), k.program, "version", "--output", "short").Output()
	must.Succeed(t, err)
	k.version = strings.TrimSpace(string(version))
	t.Logf("kubeadm %s", k.version)
	k.api.Create(t, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kubeadm-config"},
		Data: map[string]string{"ClusterConfiguration": fmt.Sprintf("apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n"+
			"kubernetesVersion: %s\nnetworking: {podSubnet: 10.244.0.0/16, serviceSubnet: 10.96.0.0/12}\n%s\n", k.version, setting)},
	}, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kubelet-config"},
		Data:       map[string]string{"kubelet": "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"},
	}, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "default"}})
	for i, name := range []string{"cp-1", "cp-2"} {
		node := objects.Node(name, map[string]string{"node-role.kubernetes.io/control-plane": ""})
		node.Annotations = map[string]string{"kubeadm.alpha.kubernetes.io/cri-socket": "unix:///run/containerd/containerd.sock"}
		k.api.Create(t, node, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: metav1.NamespaceSystem, Name: "kube-apiserver-" + name,
				Labels: map[string]string{"component": "kube-apiserver", "tier": "control-plane"},
				Annotations: map[string]string{
					"kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint": fmt.Sprintf("192.0.2.%d:6443", i+1),
				},
			},
			Spec: corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "kube-apiserver", Image: image(oldVersion)}}},
		})
	}
	return k
}

func image(version string) string { return "registry.k8s.io/kube-apiserver:" + version }

// upgrade marks the API server of a node as upgraded, as kubelet does once it has started it.
func (k *kubeadm) upgrade(node string) {
	k.t.Helper()
	pods := k.api.Admin.CoreV1().Pods(metav1.NamespaceSystem)
	pod, err := pods.Get(k.t.Context(), "kube-apiserver-"+node, metav1.GetOptions{})
	must.Succeed(k.t, err)
	pod.Spec.Containers[0].Image = image(k.version)
	_, err = pods.Update(k.t.Context(), pod, metav1.UpdateOptions{})
	must.Succeed(k.t, err)
}

// upgradeAddon runs the part of `kubeadm upgrade node` that installs kube-proxy, on a node with its files in a folder,
// and returns the output.
func (k *kubeadm) upgradeAddon(node string) string {
	k.t.Helper()
	root := k.t.TempDir()
	folder := filepath.Join(root, "etc", "kubernetes")
	must.Succeed(k.t, os.MkdirAll(filepath.Join(folder, "manifests"), 0o755))
	must.Succeed(k.t, os.MkdirAll(filepath.Join(root, "tmp"), 0o755))
	must.Succeed(k.t, os.WriteFile(filepath.Join(folder, "manifests", "kube-apiserver.yaml"), nil, 0o600)) // marks a control plane node
	kubelet, err := k.api.ClientConfig("system:node:" + node)
	must.Succeed(k.t, err)
	must.Succeed(k.t, controlplane.WriteKubeconfig(filepath.Join(folder, "kubelet.conf"), kubelet))
	must.Succeed(k.t, controlplane.WriteKubeconfig(filepath.Join(folder, "admin.conf"), k.api.AdminConfig()))
	upgrade := exec.CommandContext(k.t.Context(), k.program, "--rootfs", root, "upgrade", "node", "phase", "addon", "kube-proxy")
	printed, err := upgrade.CombinedOutput()
	if err != nil {
		k.t.Fatalf("kubeadm on %s: %v\n%s", node, err, printed)
	}
	return string(printed)
}

func (k *kubeadm) hasKubeProxy() bool {
	k.t.Helper()
	_, err := k.api.Admin.AppsV1().DaemonSets(metav1.NamespaceSystem).Get(k.t.Context(), "kube-proxy", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		must.Succeed(k.t, err)
	}
	return err == nil
}
