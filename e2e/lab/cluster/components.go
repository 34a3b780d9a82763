package cluster

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
)

// dnsManifests deploy CoreDNS in the same way as kubeadm.
//
//go:embed dns.yaml
var dnsManifests []byte

// systemNamespace is the namespace of the cluster's own components.
const systemNamespace = "kube-system"

// webhookNamespace is the namespace in manifests/webhook.
const webhookNamespace = "vicinity-system"

// installComponents installs DNS, a service proxy and the admission webhook in the cluster, and waits until all of them
// work.
func (c *Cluster) installComponents(ctx context.Context) error {
	dns := filepath.Join(c.config.Folder.Run(), "dns.yaml")
	if err := os.WriteFile(dns, dnsManifests, 0o644); err != nil {
		return fmt.Errorf("write the manifests of cluster DNS: %w", err)
	}
	if err := c.kubectl(ctx, "apply", "-f", dns); err != nil {
		return err
	}
	components := c.components()
	for _, content := range components {
		if err := content.install(ctx); err != nil {
			return err
		}
	}
	if err := c.waitForNodes(ctx); err != nil {
		return err
	}
	c.config.Step("%d nodes are ready", c.config.Nodes)
	if c.config.hasServiceProxy() {
		components = append(components, component{waitReady: c.waitForDNS, step: "cluster DNS is ready"})
	}
	for _, content := range components {
		if err := content.waitReady(ctx); err != nil {
			return err
		}
		c.config.Step(content.step)
	}
	return nil
}

// component is a component that runs in the cluster.
type component struct {
	install, waitReady func(context.Context) error
	step               string // the message once it works
}

// components returns the requested components. The caller installs all of them before it waits for any.
func (c *Cluster) components() []component {
	var all []component
	if c.config.KubeProxy {
		all = append(all, component{
			install:   c.deployKubeProxy,
			waitReady: func(ctx context.Context) error { return c.waitForDaemonSet(ctx, kubeProxyName) },
			step:      "kube-proxy runs on all nodes",
		})
	}
	if c.config.Manifests != "" {
		all = append(all, component{
			install:   c.installProxy,
			waitReady: func(ctx context.Context) error { return c.waitForDaemonSet(ctx, proxyName) },
			step:      "Vicinity is ready on all nodes",
		})
	}
	if c.config.NodeDNS {
		all = append(all, component{
			install:   c.deployNodeDNS,
			waitReady: func(ctx context.Context) error { return c.waitForDaemonSet(ctx, nodeDNSName) },
			step:      "a DNS cache is ready on all nodes",
		})
	}
	if c.config.WebhookManifests != "" {
		all = append(all, component{
			install:   c.installWebhook,
			waitReady: func(ctx context.Context) error { return c.waitForDeployment(ctx, webhookNamespace, webhookName) },
			step:      "the admission webhook is ready",
		})
	}
	return all
}

func (c *Cluster) waitForDaemonSet(ctx context.Context, name string) error {
	return c.poll(ctx, func(ctx context.Context) (waitingFor string, err error) {
		found, err := c.client.AppsV1().DaemonSets(systemNamespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("read DaemonSet %s/%s: %w", systemNamespace, name, err)
		}
		if ready := int(found.Status.NumberReady); ready < c.config.Nodes {
			return fmt.Sprintf("DaemonSet %s/%s: ready on %d of %d nodes", systemNamespace, name, ready, c.config.Nodes), nil
		}
		return "", nil
	})
}

func (c *Cluster) waitForDNS(ctx context.Context) error {
	return c.waitForDeployment(ctx, systemNamespace, "coredns")
}

func (c *Cluster) waitForDeployment(ctx context.Context, namespace, name string) error {
	return c.poll(ctx, func(ctx context.Context) (waitingFor string, err error) {
		found, err := c.client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("read Deployment %s/%s: %w", namespace, name, err)
		}
		if ready, want := found.Status.ReadyReplicas, *found.Spec.Replicas; ready < want {
			return fmt.Sprintf("Deployment %s/%s: %d of %d pods are ready", namespace, name, ready, want), nil
		}
		return "", nil
	})
}

// kubectl runs kubectl with cluster-admin rights from the machine, like the lab's user.
func (c *Cluster) kubectl(ctx context.Context, args ...string) error {
	_, err := c.kubectlOutput(ctx, args...)
	return err
}

func (c *Cluster) kubectlOutput(ctx context.Context, args ...string) ([]byte, error) {
	args = append([]string{"--kubeconfig", c.config.Folder.Kubeconfig()}, args...)
	cmd := exec.CommandContext(ctx, c.config.Programs.Path(binaries.Kubernetes, "kubectl"), args...)
	output, err := cmd.Output()
	if err == nil {
		return output, nil
	}
	var stderr []byte
	if exitErr, ok := errors.AsType[*exec.ExitError](err); ok {
		stderr = exitErr.Stderr
	}
	return nil, fmt.Errorf("kubectl %s: %w\n%s", args[2], err, stderr)
}
