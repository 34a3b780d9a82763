package installation_test

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/volume"
)

// replica is a pod of the Deployment: the real program with the arguments in the manifest, in a network namespace of
// its own. It authenticates with the ServiceAccount's token.
type replica struct {
	*site.Process
	pod *fabric.Pod

	mutex sync.Mutex
	ready bool // kubelet's last result
}

// podTemplate has the parts of a replica's pod.
type podTemplate struct {
	deployment *appsv1.Deployment
	volumes    map[string]*volume.Volume // the Deployment's volumes by name
	kubeconfig string
}

// command returns the container's command. A process in a network namespace has the file system of this machine, so the
// paths of mounts are replaced, and a kubeconfig replaces the token that every pod has mounted.
func (p podTemplate) command(program string) *exec.Cmd {
	container := p.deployment.Spec.Template.Spec.Containers[0]
	replacements := []string{"$(POD_NAMESPACE)", p.deployment.Namespace}
	for _, mount := range container.VolumeMounts {
		replacements = append(replacements, mount.MountPath+"/", p.volumes[mount.Name].Dir+"/")
	}
	replacer := strings.NewReplacer(replacements...)
	command := exec.Command(program)
	for _, argument := range container.Args {
		command.Args = append(command.Args, replacer.Replace(argument))
	}
	command.Args = append(command.Args, "--kubeconfig", p.kubeconfig)
	command.Env = os.Environ()
	for _, variable := range container.Env {
		if variable.Value != "" {
			command.Env = append(command.Env, variable.Name+"="+variable.Value)
		}
	}
	return command
}

// runReplica starts a replica in a new pod.
func (in *installation) runReplica(template podTemplate) *replica {
	in.t.Helper()
	pod, err := in.newPod()
	must.Succeed(in.t, err)
	return &replica{Process: site.Start(in.t, pod.Namespace, template.command(site.Program(in.t, "webhook"))), pod: pod}
}

// newPod returns a pod with an address of its own. No address is reused, because reuse would be another scenario.
func (tb *testbed) newPod() (*fabric.Pod, error) {
	pod, err := tb.node.AddPod(fmt.Sprintf("webhook-%d", len(tb.pods)+1))
	if err == nil {
		tb.pods = append(tb.pods, pod)
	}
	return pod, err
}

func (r *replica) address(port int) string { return r.pod.IPv4.String() + ":" + strconv.Itoa(port) }

// The ports of the manifest.
const (
	webhookPort = 9443
	healthPort  = 8081
	metricsPort = 8080
)

// metric returns the sum of the metrics with a name and labels, such as a="b".
func (r *replica) metric(name string, labels ...string) (float64, error) {
	page, err := site.Page(r.pod.Node.Namespace, r.address(metricsPort), "/metrics")
	if err != nil {
		return 0, err
	}
	return site.Metric(page, name, labels...)
}

func (r *replica) checkReady() error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if !r.ready {
		return fmt.Errorf("replica %s is not ready", r.pod.Name)
	}
	return nil
}

// probe sends the request of the manifest's readinessProbe.
func (r *replica) probe() {
	_, err := site.Page(r.pod.Node.Namespace, r.address(healthPort), "/readyz")
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.ready = err == nil
}

// kill kills a replica. It may have exited.
func (r *replica) kill() {
	_ = r.Signal(syscall.SIGKILL) // fails if it has ended
	_ = r.Wait()                  // it was killed
}

// filesOf returns the files of a mounted ConfigMap.
func filesOf(config *corev1.ConfigMap) map[string][]byte {
	files := map[string][]byte{}
	for name, text := range config.Data {
		files[name] = []byte(text)
	}
	return files
}

// probeInterval is the interval of readiness probes. It is shorter than in the manifest, so that tests are short.
const probeInterval = time.Second
