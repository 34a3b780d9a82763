package admission_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/lab/controlplane"
)

// replica is a pod of the Deployment: the real program with the arguments of the manifest, in a network of its own, known to the API
// server by the ServiceAccount's token.
type replica struct {
	site    *site
	pod     *fabric.Pod
	process *fabric.Process
	log     *output

	mutex sync.Mutex
	ready bool // as kubelet found it last
}

// podOf is what a replica is made from.
type podOf struct {
	deployment *appsv1.Deployment
	volumes    map[string]*volume // of the Deployment, by their names
	kubeconfig string
}

// command is the container's. A process in a network namespace sees the files of this machine, so paths of mounts are put in their
// place, and a kubeconfig stands for the token that every pod has mounted.
func (p podOf) command(program string) *exec.Cmd {
	container := p.deployment.Spec.Template.Spec.Containers[0]
	places := []string{"$(POD_NAMESPACE)", p.deployment.Namespace}
	for _, mount := range container.VolumeMounts {
		places = append(places, mount.MountPath+"/", p.volumes[mount.Name].dir+"/")
	}
	place := strings.NewReplacer(places...)
	command := exec.Command(program)
	for _, argument := range container.Args {
		command.Args = append(command.Args, place.Replace(argument))
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

// run starts a replica in a pod where nobody is.
func (s *site) run(from podOf) (*replica, error) {
	pod, err := s.freePod()
	if err != nil {
		return nil, err
	}
	r := &replica{site: s, pod: pod, log: &output{}}
	command := from.command(s.webhook)
	command.Stdout, command.Stderr = r.log, r.log
	if r.process, err = pod.Start(command); err != nil {
		return nil, err
	}
	return r, nil
}

// freePod returns a pod of its own address. Each is used once: an address that comes back would be another story.
func (s *site) freePod() (*fabric.Pod, error) {
	pod, err := s.node.AddPod(fmt.Sprintf("webhook-%d", len(s.pods)+1))
	if err == nil {
		s.pods = append(s.pods, pod)
	}
	return pod, err
}

func (r *replica) address(port int) string { return r.pod.IPv4.String() + ":" + strconv.Itoa(port) }

// get asks one of the ports that are for kubelet and for Prometheus.
func (r *replica) get(port int, path string) (string, error) {
	response, err := r.site.http().Get("http://" + r.address(port) + path)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, text)
	}
	return string(text), err
}

// The ports of the manifest.
const (
	webhookPort = 9443
	healthPort  = 8081
	metricsPort = 8080
)

// metric returns a series of /metrics, such as `a_total{b="c"}`.
func (r *replica) metric(series string) (float64, error) {
	text, err := r.get(metricsPort, "/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if value, isIt := strings.CutPrefix(strings.TrimSpace(line), series+" "); isIt {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("there is no metric %s", series)
}

func (r *replica) hasEnded() bool {
	select {
	case <-r.process.Done():
		return true
	default:
		return false
	}
}

func (r *replica) isReady() error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if !r.ready {
		return fmt.Errorf("replica %s is not ready", r.pod.Name)
	}
	return nil
}

// probe asks what the manifest's readinessProbe asks.
func (r *replica) probe() {
	_, err := r.get(healthPort, "/readyz")
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.ready = err == nil
}

// kill ends a replica at once. It may have ended.
func (r *replica) kill() {
	_ = r.process.Signal(syscall.SIGKILL) // nothing to do if it has ended
	_ = r.process.Wait()                  // it was killed
}

// volume is a mounted ConfigMap or Secret as kubelet keeps it: the files are links through another link, ..data, which an update replaces.
type volume struct {
	dir     string
	version int
}

// write puts the data of an object in place at once, and removes what was there before, as kubelet does.
func (v *volume) write(data map[string][]byte) error {
	before := v.folder()
	v.version++
	errs := []error{os.MkdirAll(v.folder(), 0o755)}
	for name, text := range data {
		errs = append(errs, os.WriteFile(filepath.Join(v.folder(), name), text, 0o644))
		if _, err := os.Lstat(filepath.Join(v.dir, name)); errors.Is(err, os.ErrNotExist) {
			errs = append(errs, os.Symlink(filepath.Join("..data", name), filepath.Join(v.dir, name)))
		}
	}
	next := filepath.Join(v.dir, "..data_tmp")
	errs = append(errs, os.Symlink(filepath.Base(v.folder()), next), os.Rename(next, filepath.Join(v.dir, "..data")), os.RemoveAll(before))
	return errors.Join(errs...)
}

// folder has the files of the version that is in place.
func (v *volume) folder() string { return filepath.Join(v.dir, fmt.Sprintf("..%d", v.version)) }

// filesOf are the files of a mounted ConfigMap.
func filesOf(config *corev1.ConfigMap) map[string][]byte {
	files := map[string][]byte{}
	for name, text := range config.Data {
		files[name] = []byte(text)
	}
	return files
}

// accountKubeconfig writes a kubeconfig of the ServiceAccount's token.
func (s *site) accountKubeconfig(ctx context.Context, path string) error {
	config, err := s.plane.ServiceAccountConfig(ctx, installedNamespace, installedName)
	if err != nil {
		return err
	}
	return controlplane.WriteKubeconfig(path, config)
}

// probeInterval is how often kubelet asks: more often than the manifest says, so that tests are short.
const probeInterval = time.Second
