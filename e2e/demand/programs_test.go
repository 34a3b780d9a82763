package demand_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/volume"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// deployed is the webhook's Deployment with the component, before any of its pods runs.
type deployed struct {
	cluster    *testCluster
	container  corev1.Container
	config     *volume.Volume
	kubeconfig string
}

// deploy applies the webhook's manifests with the component.
func (c *testCluster) deploy(t *testing.T) *deployed {
	t.Helper()
	const name, kustomization = "vicinity-webhook", "resources: [%[1]s]\ncomponents: [%[1]s/components/demand]\n"
	manifests, err := filepath.Abs("../../manifests/webhook")
	must.Succeed(t, err)
	folder := t.TempDir()
	manifests, err = filepath.Rel(folder, manifests) // kustomize accepts no absolute path
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(filepath.Join(folder, "kustomization.yaml"), fmt.Appendf(nil, kustomization, manifests), 0o600))
	c.api.Kubectl(t, "apply", "-k", folder)
	deployment, err := c.api.Admin.AppsV1().Deployments(system).Get(t.Context(), name, metav1.GetOptions{})
	must.Succeed(t, err)
	config, err := c.api.Admin.CoreV1().ConfigMaps(system).Get(t.Context(), name, metav1.GetOptions{})
	must.Succeed(t, err)
	files := map[string][]byte{}
	for name, text := range config.Data {
		files[name] = []byte(text)
	}
	d := &deployed{cluster: c, container: deployment.Spec.Template.Spec.Containers[0], config: volume.New(t)}
	d.config.Write(t, files)
	d.kubeconfig = site.Kubeconfig(t, c.api.Account(t, system, name))
	return d
}

// start starts the program in its own pod, whose name is its host name.
func (d *deployed) start(t *testing.T, name string) *site.Process {
	t.Helper()
	pod, err := d.cluster.nodes[0].AddPod(name)
	must.Succeed(t, err)
	replacer := strings.NewReplacer("$(POD_NAMESPACE)", system, "/etc/vicinity/", d.config.Dir+"/")
	command := exec.Command("unshare", "--uts", "sh", "-c", `hostname "$0"; exec "$@"`, name, site.Program(t, "webhook"))
	for _, argument := range d.container.Args {
		command.Args = append(command.Args, replacer.Replace(argument))
	}
	command.Args = append(command.Args, "--kubeconfig", d.kubeconfig)
	return site.Start(t, pod.Namespace, command)
}

// TestStoppedLeaderWritesNothing stops the leader's process for longer than its term, and another replica is
// elected. The first process then continues in the middle of a round, and must not write anything.
func TestStoppedLeaderWritesNothing(t *testing.T) {
	const elected, ended = "measuring demand: elected", "measuring demand: no longer the leader"
	d := newTestClusterOf(t, "measured", "node-a", "node-b", "node-c").deploy(t)
	stopped := d.start(t, "stopped")
	stopped.Log.WaitFor(t, elected)
	must.Succeed(t, stopped.Signal(syscall.SIGSTOP)) // it pulls from the second proxy some seconds after the first one
	other := d.start(t, "other")
	other.Log.WaitFor(t, elected)
	must.Succeed(t, stopped.Signal(syscall.SIGCONT))
	stopped.Log.WaitFor(t, ended)
	leases := d.cluster.api.Admin.CoordinationV1().Leases(system)
	lease, err := leases.Get(t.Context(), v1alpha1.DemandLeaseName, metav1.GetOptions{})
	if err == nil && *lease.Spec.HolderIdentity != "other" || err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("the former leader has written the Lease %s: %+v, %v", v1alpha1.DemandLeaseName, lease.Spec, err)
	}
	lease, err = leases.Get(t.Context(), "vicinity-demand-publisher", metav1.GetOptions{})
	if must.Succeed(t, err); *lease.Spec.HolderIdentity != "other" || other.Log.Has(ended) {
		t.Errorf("the leader is %s, want other, without a break", *lease.Spec.HolderIdentity)
	}

	// The API server stops. Each replica logs that once.
	d.cluster.api.KillAPIServer()
	const lost, recovered = "failed to access the election Lease", "access to the election Lease recovered"
	replicas := []*site.Process{stopped, other}
	for _, replica := range replicas {
		replica.Log.WaitFor(t, lost)
	}
	other.Log.WaitFor(t, ended)
	must.Succeed(t, d.cluster.api.StartAPIServer(t.Context()))
	for _, replica := range replicas {
		replica.Log.WaitFor(t, recovered)
	}
	wait.Until(t, "one of them leads again", func() bool { return stopped.Log.Count(elected)+other.Log.Count(elected) == 3 })
	for _, replica := range replicas {
		if lines := replica.Log.Lines(lost); len(lines) > 2 { // one for reads, and one for writes
			t.Errorf("%d log lines about the unusable Lease, want at most 2: %q", len(lines), lines)
		}
	}
}
