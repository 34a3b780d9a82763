package webhook_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/vicinity-proxy/vicinity/e2e/lab/authority"
	"github.com/vicinity-proxy/vicinity/e2e/lab/process"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/reserve"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// serverName is the server name that an API server would use.
const serverName = "vicinity-webhook.vicinity-system.svc"

// setup is a cluster of three Nodes in three zones and a Namespace with a default, and the servers, all on loopback.
type setup struct {
	dir              string
	api              *site.Site
	tls              *tls.Config // of clients
	certificate, key string      // files of the servers
	floor, webhook   *measuredServer
}

func (s *setup) servers() []*measuredServer { return []*measuredServer{s.floor, s.webhook} }

// newSetup returns a setup in which both servers serve.
func newSetup(t testing.TB) *setup {
	t.Helper()
	s := newSetupWithoutServers(t)
	s.floor, s.webhook = s.startFloor(t), s.startWebhook(t)
	return s
}

// newSetupWithoutServers returns a setup without a server.
func newSetupWithoutServers(t testing.TB) *setup {
	t.Helper()
	s := &setup{dir: t.TempDir(), api: site.New(t, site.Config{})}
	// Reviews depend on these objects.
	s.api.Create(t, objects.Namespace(namespace, nil, map[string]string{policy.DefaultTopologyModeAnnotation: "Auto"}))
	for _, zone := range []string{"a", "b", "c"} {
		s.api.Create(t, objects.Node("node-"+zone, map[string]string{corev1.LabelTopologyZone: zone}))
	}
	s.createCertificate(t)
	return s
}

// createCertificate creates the certificate of the servers, and the configuration of clients that trust it.
func (s *setup) createCertificate(t testing.TB) {
	t.Helper()
	ca, err := authority.New("bench")
	must.Succeed(t, err)
	pair, err := ca.Server("webhook", []string{serverName}, nil)
	must.Succeed(t, err)
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

// startWebhook starts the shipped webhook, with additional environment variables.
func (s *setup) startWebhook(t testing.TB, environment ...string) *measuredServer {
	t.Helper()
	webhook := &measuredServer{name: "webhook", address: reserve.OnLoopback(t).String(), metrics: reserve.OnLoopback(t).String()}
	health := reserve.OnLoopback(t).String()
	command := exec.Command(site.Program(t, "webhook"), "run", "--kubeconfig", s.api.AdminKubeconfig(),
		"--webhook-bind-address", webhook.address, "--metrics-bind-address", webhook.metrics, "--health-probe-bind-address", health,
		"--cert-source", "files", "--tls-cert-file", s.certificate, "--tls-private-key-file", s.key, "--shutdown-delay", "0s")
	command.Env = append(os.Environ(), environment...)
	s.start(t, webhook, command)
	webhook.waitFor(t, "it is ready", func() error { _, err := get("http://" + health + "/readyz"); return err })
	return webhook
}

// start starts a server and returns when it accepts connections. It is stopped at the end of the test.
func (s *setup) start(t testing.TB, server *measuredServer, command *exec.Cmd) *measuredServer {
	t.Helper()
	var err error
	if server.process, err = process.Start(process.CurrentNamespace{}, s.dir, server.name, command); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.process.Stop(wait.Timeout); err != nil {
			t.Error(err)
		}
	})
	server.tls = s.tls
	server.waitFor(t, "it accepts connections", func() error {
		connection, err := tls.Dial("tcp", server.address, s.tls)
		if err != nil {
			return err
		}
		return connection.Close()
	})
	return server
}

// waitFor waits until the condition returns nil. The test fails if the server exits.
func (s *measuredServer) waitFor(t testing.TB, what string, condition func() error) {
	t.Helper()
	wait.Success(t, s.name+": "+what, func() error {
		select {
		case <-s.process.Done():
			t.Fatal(s.process.ExitError())
		default:
		}
		return condition()
	})
}
