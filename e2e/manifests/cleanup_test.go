package manifests_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
)

// loops matches the README's shell loops over all nodes.
var loops = regexp.MustCompile(`(?ms)^ *for node in .*?^ *done$`)

// testCleanup runs the README's loops like a user, and looks for the Jobs.
func testCleanup(t *testing.T, api *site.Site) {
	api.Create(t, objects.Node("node-1", nil), objects.Node("node-2.example", nil))
	text, err := os.ReadFile(filepath.Join(folder, "README.md"))
	must.Succeed(t, err)
	for _, loop := range loops.FindAllString(string(text), -1) {
		_, err := api.Shell(t.Context(), loop,
			"VICINITY_IMAGE=images.example:5000/vicinity-proxy:v1", "KUBE_PROXY_IMAGE=images.example/kube-proxy@sha256:"+digest)
		if err != nil {
			t.Error(err)
		}
	}
	jobs, err := api.Admin.BatchV1().Jobs("kube-system").List(t.Context(), metav1.ListOptions{})
	must.Succeed(t, err)
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
