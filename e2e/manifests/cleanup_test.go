package manifests_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/lab/controlplane"
)

// loops are the shell loops of the README that go over all nodes.
var loops = regexp.MustCompile(`(?ms)^ *for node in .*?^ *done$`)

// testCleanup runs the loops of the README as its reader would, and looks for the Jobs.
func testCleanup(t *testing.T, plane *controlplane.ControlPlane, kubeconfig string) {
	admin, err := kubernetes.NewForConfig(plane.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"node-1", "node-2.example"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := admin.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, loop := range loops.FindAllString(string(text), -1) {
		cmd := exec.CommandContext(t.Context(), "sh", "-euc", loop)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "PATH="+programs(t).Folder(binaries.Kubernetes)+":"+os.Getenv("PATH"),
			"VICINITY_IMAGE=images.example:5000/vicinity-proxy:v1", "KUBE_PROXY_IMAGE=images.example/kube-proxy@sha256:"+digest)
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s\n%v: %s", loop, err, output)
		}
	}
	jobs, err := admin.BatchV1().Jobs("kube-system").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, job := range jobs.Items {
		pod := job.Spec.Template.Spec
		got[job.Labels["app.kubernetes.io/name"]+" on "+pod.NodeName+" from "+pod.Containers[0].Image] = true
	}
	want := []string{
		"kube-proxy-cleanup on node-1 from images.example/kube-proxy@sha256:" + digest,
		"kube-proxy-cleanup on node-2.example from images.example/kube-proxy@sha256:" + digest,
		"vicinity-cleanup on node-1 from images.example:5000/vicinity-proxy:v1",
		"vicinity-cleanup on node-2.example from images.example:5000/vicinity-proxy:v1",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("Jobs (-want +got):\n%s", diff)
	}
}

const digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
