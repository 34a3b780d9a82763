package admission_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/lab/controlplane"
)

// patience is for a machine that is busy with other things.
const patience = 2 * time.Minute

// The manifests and their overlays, unchanged.
const (
	manifests        = "../../manifests/webhook"
	enforce          = manifests + "/enforce"
	defaultOnUpdate  = manifests + "/default-on-update"
	certificateFiles = manifests + "/certificate-files"
)

// site is a cluster for the webhook: a control plane on a node, and pods there for replicas. All tests share it, one after the other: a
// webhook configuration is about the whole cluster.
//
// No controllers run in it. What they and kubelet would do for the webhook, installation does.
type site struct {
	dir     string
	network *fabric.Fabric
	node    *fabric.Node
	plane   *controlplane.ControlPlane
	kubectl string // the program
	webhook string // the program
	admin   *kubernetes.Clientset
	audit   string // the file of the audit log
	pods    []*fabric.Pod
}

// lazySite is the site once somebody needs it.
type lazySite struct {
	once sync.Once
	site *site
	err  error
}

var theSite lazySite

func newSite(t *testing.T) *site {
	t.Helper()
	theSite.once.Do(func() { theSite.site, theSite.err = startSite() })
	if theSite.err != nil {
		t.Fatal(theSite.err)
	}
	return theSite.site
}

func (l *lazySite) close() error {
	if l.site == nil {
		return nil
	}
	return l.site.close()
}

func startSite() (s *site, err error) {
	s = &site{}
	if s.dir, err = os.MkdirTemp("/dev/shm", "vicinity-webhook-"); err != nil { // etcd is fast on a tmpfs
		return nil, err
	}
	if err := errors.Join(s.build(), s.lay()); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if err := s.startControlPlane(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *site) close() (err error) {
	if s.plane != nil {
		s.plane.Stop()
	}
	if s.network != nil {
		err = s.network.Close()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// build builds the webhook. It looks at what it is built from, because `go test` repeats an old result as long as everything that a test
// looked at stays the same, and does not know what the compiler reads.
func (s *site) build() error {
	for _, root := range []string{"../../cmd", "../../pkg", "../../manifests/webhook"} {
		if err := filepath.WalkDir(root, func(_ string, _ fs.DirEntry, err error) error { return err }); err != nil {
			return err
		}
	}
	s.webhook = filepath.Join(s.dir, "webhook")
	if output, err := exec.Command("go", "build", "-o", s.webhook, "../../cmd/webhook").CombinedOutput(); err != nil {
		return fmt.Errorf("build the webhook: %w\n%s", err, output)
	}
	return nil
}

func (s *site) lay() (err error) {
	if s.network, err = fabric.New(); err != nil {
		return err
	}
	s.node, err = s.network.AddNode("control-plane")
	return err
}

// auditPolicy has the API server write down what the webhook asks for, and what becomes of Services and Namespaces.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, users: ["` + accountUser + `"]}
- {level: Metadata, verbs: [create, update, patch], resources: [{group: "", resources: [services, namespaces]}]}
- {level: None}
`

func (s *site) startControlPlane() error {
	programs, err := binaries.Build(context.Background(), os.Stderr, binaries.Etcd, binaries.Kubernetes)
	if err != nil {
		return err
	}
	s.kubectl = programs.Path(binaries.Kubernetes, "kubectl")
	s.audit = filepath.Join(s.dir, "audit.log")
	policy := filepath.Join(s.dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return err
	}
	s.plane, err = controlplane.Start(context.Background(), controlplane.Config{
		Dir: s.dir, Programs: programs, Place: s.node, Address: s.node.IPv4,
		APIServerFlags: []string{
			// Where the API server calls a Service is for its EndpointSlices to say: there is no service proxy here.
			"--enable-aggregator-routing",
			"--audit-policy-file=" + policy, "--audit-log-path=" + s.audit,
		},
	})
	if err != nil {
		return err
	}
	config := s.plane.AdminConfig()
	config.WarningHandler = rest.NoWarnings{} // ask reads them
	s.admin, err = kubernetes.NewForConfig(config)
	return err
}

// start starts a program on the control plane's machine.
func (s *site) start(command *exec.Cmd) (*fabric.Process, error) { return s.node.Start(command) }

// runKubectl runs kubectl as an administrator, and returns all that it prints.
func (s *site) runKubectl(arguments ...string) (string, error) {
	command := exec.Command(s.kubectl, append([]string{"--kubeconfig", s.plane.AdminKubeconfig()}, arguments...)...)
	var printed bytes.Buffer
	command.Stdout, command.Stderr = &printed, &printed
	process, err := s.start(command)
	if err != nil {
		return "", err
	}
	if err := process.Wait(); err != nil {
		return "", fmt.Errorf("kubectl %v: %w\n%s", arguments, err, &printed)
	}
	return printed.String(), nil
}

// http returns a client that connects from the control plane's machine, anew for each request.
func (s *site) http() *http.Client {
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
			return s.node.Dial(network, address, 5*time.Second)
		},
	}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until nothing is wrong any more.
func eventually(t *testing.T, what string, condition func() error) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s, not yet: %s: %v", patience, what, err)
		}
	}
}

// output is what a program prints, read while it runs.
type output struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (o *output) Write(text []byte) (int, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.text.Write(text)
}

func (o *output) String() string {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.text.String()
}
