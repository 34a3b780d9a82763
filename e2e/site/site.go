// Package site lets tests run our programs against a real API server: a control plane with kubectl and clients. Our
// programs run on its machines, as users with the rights in the manifests, and their logs are kept.
//
// A test that needs an API server of its own starts one with New. Tests that can share one start it with Main:
//
//	var api *site.Site
//
//	func TestMain(m *testing.M) { site.Main(m, &api) }
package site

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/lab/controlplane"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// Config configures a site.
type Config struct {
	// Namespace is the network namespace of the control plane. nil means this machine's, where it listens on loopback.
	Namespace *fabric.Namespace
	// Controllers starts Kubernetes' controllers. Without them only the API works.
	Controllers bool
	// Audit is an audit policy in YAML for the requests that Audited returns. If empty, nothing is audited.
	Audit string
	// Flags are appended to those of kube-apiserver.
	Flags []string
}

// Site is a control plane with a client for its administrator.
type Site struct {
	*controlplane.ControlPlane
	// Admin has cluster-admin rights and ignores warnings.
	Admin *kubernetes.Clientset
	// Programs are Kubernetes' own programs.
	Programs binaries.Programs

	config  Config
	dir     string
	objects client.Client
	// probeUsers is the number of users that waitForRoles has created roles for.
	probeUsers atomic.Int64
}

// New starts a control plane, which ends with the test.
func New(t testing.TB, config Config) *Site {
	t.Helper()
	s, err := Open(t.Context(), config)
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Main runs the tests of a package and ends the process. The tests share a control plane on loopback.
func Main(m *testing.M, shared **Site) {
	code, err := runTests(m, shared)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M, shared **Site) (code int, err error) {
	s, err := Open(context.Background(), Config{}) //nolint:forbidigo // a TestMain is a main
	if err != nil {
		return 0, err
	}
	*shared = s
	defer func() { err = errors.Join(err, s.Close()) }()
	return m.Run(), nil
}

// Open starts a control plane. The caller must close it.
func Open(ctx context.Context, config Config) (s *Site, err error) {
	s = &Site{config: config}
	if s.Programs, err = binaries.Build(ctx, os.Stderr, binaries.Etcd, binaries.Kubernetes); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("/dev/shm", "vicinity-site-"); err != nil { // etcd is fast on a tmpfs
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Site) start(ctx context.Context) (err error) {
	config := controlplane.Config{
		Dir: s.dir, Programs: s.Programs, Controllers: s.config.Controllers, APIServerFlags: s.config.Flags,
	}
	if s.config.Namespace != nil {
		config.Netns, config.Address = s.config.Namespace, s.config.Namespace.IPv4
	}
	if s.config.Audit != "" {
		policy := filepath.Join(s.dir, "audit-policy.yaml")
		if err := os.WriteFile(policy, []byte(s.config.Audit), 0o600); err != nil {
			return err
		}
		config.APIServerFlags = append(config.APIServerFlags, "--audit-policy-file="+policy, "--audit-log-path="+s.auditLog())
	}
	if s.ControlPlane, err = controlplane.Start(ctx, config); err != nil {
		return err
	}
	admin := s.AdminConfig()
	admin.WarningHandler = rest.NoWarnings{} // tests read warnings from responses
	if s.Admin, err = kubernetes.NewForConfig(admin); err != nil {
		return err
	}
	log.SetLogger(logr.Discard()) // otherwise controller-runtime prints a warning with a stack trace
	s.objects, err = client.New(admin, client.Options{})
	return err
}

// Close stops the control plane and removes its files.
func (s *Site) Close() error {
	if s.ControlPlane != nil {
		s.Stop()
	}
	return os.RemoveAll(s.dir)
}
