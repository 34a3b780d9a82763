package webhook_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/vicinity-proxy/vicinity/e2e/lab/authority"
	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/lab/controlplane"
	"github.com/vicinity-proxy/vicinity/e2e/lab/process"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// patience is for a machine that is busy with other things.
const patience = 2 * time.Minute

// serverName is what the API server would ask for.
const serverName = "vicinity-webhook.vicinity-system.svc"

// site is a cluster of three Nodes in as many zones and a Namespace with a default, and the servers, all on loopback.
type site struct {
	dir              string
	plane            *controlplane.ControlPlane
	tls              *tls.Config // of clients
	certificate, key string      // files of the servers
	floor, webhook   *webhook
}

func (s *site) servers() []*webhook { return []*webhook{s.floor, s.webhook} }

// newSite returns when both servers serve.
func newSite(t testing.TB) *site {
	t.Helper()
	s := newCluster(t)
	s.floor, s.webhook = s.startFloor(t), s.startWebhook(t)
	return s
}

// newCluster has no server yet.
func newCluster(t testing.TB) *site {
	t.Helper()
	s := &site{dir: t.TempDir()}
	programs, err := binaries.Build(t.Context(), os.Stderr, binaries.Etcd, binaries.Kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	if s.plane, err = controlplane.Start(t.Context(), controlplane.Config{Dir: s.dir, Programs: programs}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.plane.Stop)
	s.fill(t)
	s.certify(t)
	return s
}

// fill creates what reviews depend on.
func (s *site) fill(t testing.TB) {
	t.Helper()
	client, err := kubernetes.NewForConfig(s.plane.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: namespace, Annotations: map[string]string{policy.DefaultTopologyModeAnnotation: "Auto"},
	}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), shop, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, zone := range []string{"a", "b", "c"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + zone, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
		if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// certify makes the certificate of the servers, and the configuration of clients that trust it.
func (s *site) certify(t testing.TB) {
	t.Helper()
	ca, err := authority.New("bench")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Server("webhook", []string{serverName}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.certificate, s.key = filepath.Join(s.dir, "webhook.crt"), filepath.Join(s.dir, "webhook.key")
	for path, content := range map[string][]byte{s.certificate: pair.Certificate, s.key: pair.Key} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.Certificate())
	s.tls = &tls.Config{RootCAs: roots, ServerName: serverName, MinVersion: tls.VersionTLS13}
}

// startWebhook builds the webhook as it is shipped, and starts it, with more variables of the environment if there are any.
func (s *site) startWebhook(t testing.TB, environment ...string) *webhook {
	t.Helper()
	program := filepath.Join(s.dir, "webhook")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", program, "../../../cmd/webhook")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the webhook: %v\n%s", err, output)
	}
	webhook := &webhook{name: "webhook", address: freeAddress(t), metrics: freeAddress(t)}
	health := freeAddress(t)
	command := exec.Command(program, "run", "--kubeconfig", s.plane.AdminKubeconfig(),
		"--webhook-bind-address", webhook.address, "--metrics-bind-address", webhook.metrics, "--health-probe-bind-address", health,
		"--cert-source", "files", "--tls-cert-file", s.certificate, "--tls-private-key-file", s.key, "--shutdown-delay", "0s")
	command.Env = append(os.Environ(), environment...)
	s.start(t, webhook, command)
	webhook.await(t, "it is ready", func() error { return get("http://"+health+"/readyz", nil) })
	return webhook
}

// start starts a server and returns when it accepts connections. It ends with the test.
func (s *site) start(t testing.TB, server *webhook, command *exec.Cmd) *webhook {
	t.Helper()
	var err error
	if server.process, err = process.Start(process.Here{}, s.dir, server.name, command); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.process.Stop(patience); err != nil {
			t.Error(err)
		}
	})
	server.tls = s.tls
	server.await(t, "it accepts connections", func() error {
		connection, err := tls.Dial("tcp", server.address, s.tls)
		if err != nil {
			return err
		}
		return connection.Close()
	})
	return server
}

// await waits until nothing is wrong any more. The test ends if the server does.
func (s *webhook) await(t testing.TB, what string, condition func() error) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-s.process.Done():
			t.Fatal(s.process.Ended())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: after %s, not yet: %s: %v", s.name, patience, what, err)
		}
	}
}

// freeAddress is one that nobody listens on.
func freeAddress(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
