// Package cluster is the lab: a Kubernetes cluster of real programs on one machine.
//
//	         switch (172.30.0.254)
//	   ┌──────────┼──────────────┬──────────────────┐
//	node-1      node-2         node-3         control-plane (172.30.0.201)
//	172.30.0.1  172.30.0.2     172.30.0.3       etcd, kube-apiserver, kube-controller-manager, kube-scheduler
//	containerd, kubelet, pods in each
//
// The networks are those of package fabric: the only thing in the machine's own network is one socket on its loopback,
// which forwards to the API server. Everything ends with the process that created it.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/lab/cgroup"
	"github.com/vicinity-proxy/vicinity/e2e/lab/controlplane"
)

// Cluster is a running cluster.
type Cluster struct {
	config       Config
	network      *fabric.Fabric
	host         *fabric.Host // of the control plane
	controlPlane *controlplane.ControlPlane
	forwarder    *forwarder
	client       kubernetes.Interface // with cluster-admin rights, from this process
	groups       *cgroup.Groups
	nodes        []*machine
}

// Start starts a cluster and returns when everything in it is ready. If it fails, it leaves nothing but logs.
//
// It must run in a mount namespace of its own, because it mounts a tmpfs for everything that the lab writes: containers
// cannot be unpacked on every file system, and a tmpfs disappears with the namespace.
func Start(ctx context.Context, config Config) (*Cluster, error) {
	c := &Cluster{config: config}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	if err := c.prepare(); err != nil {
		return err
	}
	images := make(chan result, 1)
	go func() {
		root, err := c.importImages(ctx)
		images <- result{root, err}
	}()
	err := c.startControlPlane(ctx)
	imported := <-images // importing uses resources that Close removes
	if err := errors.Join(err, imported.err); err != nil {
		return err
	}
	if err := c.startNodes(imported.root); err != nil {
		return err
	}
	return c.installComponents(ctx)
}

// result is the result of importing images.
type result struct {
	root string
	err  error
}

// prepare creates folders, networks and cgroups.
func (c *Cluster) prepare() error {
	for _, folder := range []string{c.config.Folder.Run(), c.config.Folder.Logs(), c.config.Folder.off(), c.config.Folder.pids()} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return fmt.Errorf("create folder: %w", err)
		}
	}
	if err := unix.Mount("tmpfs", c.config.Folder.Run(), "tmpfs", 0, "mode=700"); err != nil {
		return fmt.Errorf("mount a tmpfs for the lab: %w", err)
	}
	groups, err := cgroup.Find(c.config.Groups)
	if err != nil {
		return err
	}
	c.groups = groups
	if err := os.WriteFile(c.config.Folder.Groups(), []byte(strings.Join(groups.Folders(), "\n")), 0o644); err != nil {
		return fmt.Errorf("record the lab's cgroups: %w", err)
	}
	return c.makeNetworks()
}

// startControlPlane starts the control plane and the forwarder from the machine to it.
func (c *Cluster) startControlPlane(ctx context.Context) error {
	folder := filepath.Join(c.config.Folder.Run(), "control-plane")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return fmt.Errorf("create folder: %w", err)
	}
	plane, err := controlplane.Start(ctx, controlplane.Config{
		Dir:         folder,
		Logs:        c.config.Folder.Logs(),
		Programs:    c.config.Programs,
		Netns:       c.host,
		Address:     c.host.IPv4,
		Controllers: true,
		// The API server calls webhooks. It dials the ClusterIPs of their Services, unless this flag makes it look up the
		// endpoints itself, as in clusters without a service proxy on the control plane. Here the control plane has routes to
		// pods, and no service proxy.
		APIServerFlags: []string{"--enable-aggregator-routing"},
	})
	if err != nil {
		return err
	}
	c.controlPlane = plane
	if c.client, err = kubernetes.NewForConfig(plane.AdminConfig()); err != nil {
		return fmt.Errorf("create client: %w", err)
	}
	if err := c.exposeAPIServer(); err != nil {
		return err
	}
	c.config.Step("the control plane is ready")
	return nil
}

// exposeAPIServer makes the API server reachable from the machine, and writes a kubeconfig.
func (c *Cluster) exposeAPIServer() (err error) {
	admin := c.controlPlane.AdminConfig()
	if c.forwarder, err = newForwarder(c.host, strings.TrimPrefix(admin.Host, "https://")); err != nil {
		return err
	}
	admin.Host = "https://" + c.forwarder.address()
	return controlplane.WriteKubeconfig(c.config.Folder.Kubeconfig(), admin)
}

// groupTimeout bounds the time in which killed processes leave their cgroups.
const groupTimeout = 10 * time.Second

// Close ends everything. Logs are kept.
func (c *Cluster) Close() error {
	for _, node := range c.nodes {
		if node.process != nil {
			_ = node.process.Kill() // we started it, so this cannot fail
		}
	}
	if c.forwarder != nil {
		c.forwarder.close()
	}
	if c.controlPlane != nil {
		c.controlPlane.Stop()
	}
	var errs []error
	if c.network != nil {
		errs = append(errs, c.network.Close())
	}
	if c.groups != nil {
		errs = append(errs, cgroup.Remove(c.groups.Folders(), groupTimeout))
	}
	return errors.Join(errs...)
}
