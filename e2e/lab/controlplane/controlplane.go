// Package controlplane runs a Kubernetes control plane as child processes: etcd, kube-apiserver and, if configured, the
// kube-controller-manager and kube-scheduler, with certificates, RBAC and Node authorization as in any cluster.
//
// A test that needs nothing but the API starts one on loopback, in the machine's own network namespace:
//
//	programs, err := binaries.Build(ctx, os.Stderr, binaries.Etcd, binaries.Kubernetes)
//	...
//	cluster, err := controlplane.Start(ctx, controlplane.Config{Dir: t.TempDir(), Programs: programs})
//	...
//	t.Cleanup(cluster.Stop)
//	client, err := kubernetes.NewForConfig(cluster.AdminConfig())
//
// The lab starts one in a network namespace of its own. All children die when their starter does.
package controlplane

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"

	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/e2e/lab/authority"
	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/lab/process"
)

// The users as which the controllers authenticate.
const (
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
)

// ControlPlane is a running control plane. Its methods must not be called concurrently.
type ControlPlane struct {
	config    Config
	files     files
	ports     ports
	authority *authority.Authority
	admin     *rest.Config

	otherProcesses []*process.Process // everything but the API server
	apiServer      *process.Process   // nil while it is stopped
}

// Start starts a control plane and returns when its API server is ready. If it fails, it leaves nothing running.
func Start(ctx context.Context, config Config) (*ControlPlane, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &ControlPlane{config: config, files: files{dir: config.Dir}}
	if err := c.prepare(); err != nil {
		c.Stop()
		return nil, fmt.Errorf("prepare the control plane: %w", err)
	}
	if err := c.start(ctx); err != nil {
		c.Stop()
		return nil, fmt.Errorf("start the control plane: %w", err)
	}
	return c, nil
}

func (c *ControlPlane) prepare() (err error) {
	for _, folder := range []string{c.config.Logs, c.files.data()} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return fmt.Errorf("create folder: %w", err)
		}
	}
	if c.authority, err = authority.New("lab"); err != nil {
		return err
	}
	if err := c.files.makeCertificates(c.authority, c.config.Address); err != nil {
		return err
	}
	if err := c.ports.reserve(c.config.Netns); err != nil {
		return err
	}
	if c.admin, err = c.ClientConfig("admin", mastersGroup); err != nil {
		return err
	}
	return WriteKubeconfig(c.files.kubeconfig("admin"), c.admin)
}

func (c *ControlPlane) start(ctx context.Context) error {
	etcd, err := c.launch("etcd", c.config.Programs.Path(binaries.Etcd, "etcd"), c.etcdFlags())
	if err != nil {
		return err
	}
	c.otherProcesses = append(c.otherProcesses, etcd)
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	if !c.config.Controllers {
		return nil
	}
	for name, flags := range map[string][]string{controllerManager: c.controllerManagerFlags(), scheduler: c.schedulerFlags()} {
		if err := c.startController(name, flags); err != nil {
			return err
		}
	}
	return nil
}

// startController starts a program that is a client of the API server, as the user for which Kubernetes has RBAC rules.
func (c *ControlPlane) startController(name string, flags []string) error {
	config, err := c.ClientConfig("system:" + name)
	if err != nil {
		return err
	}
	if err := WriteKubeconfig(c.files.kubeconfig(name), config); err != nil {
		return err
	}
	controller, err := c.launch(name, c.config.Programs.Path(binaries.Kubernetes, name), flags)
	if err != nil {
		return err
	}
	c.otherProcesses = append(c.otherProcesses, controller)
	return nil
}

func (c *ControlPlane) launch(name, program string, flags []string) (*process.Process, error) {
	return process.Start(c.config.Netns, c.config.Logs, name, exec.Command(program, flags...))
}

// Stop ends everything at once. It may be called twice. Files are kept.
func (c *ControlPlane) Stop() {
	c.KillAPIServer()
	for _, other := range c.otherProcesses {
		kill(other)
	}
	c.otherProcesses = nil
	c.ports.release()
}

// URL returns the API server's URL in its network.
func (c *ControlPlane) URL() string {
	return "https://" + net.JoinHostPort(c.config.Address.String(), strconv.Itoa(int(c.ports.apiServer)))
}

// Logs returns the folder of the programs' logs.
func (c *ControlPlane) Logs() string { return c.config.Logs }

// AdminKubeconfig returns the path of a kubeconfig with cluster-admin rights, for clients in the API server's network.
func (c *ControlPlane) AdminKubeconfig() string { return c.files.kubeconfig("admin") }

// Authority returns the authority that the API server trusts for certificates of clients and of kubelets.
func (c *ControlPlane) Authority() *authority.Authority { return c.authority }
