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

// dnsManifests are CoreDNS, as kubeadm deploys it.
//
//go:embed dns.yaml
var dnsManifests []byte

// system is the namespace of what belongs to the cluster itself.
const system = "kube-system"

// fill gives the cluster DNS and a service proxy, and waits until all of it works.
func (c *Cluster) fill(ctx context.Context) error {
	dns := filepath.Join(c.config.Folder.Run(), "dns.yaml")
	if err := os.WriteFile(dns, dnsManifests, 0o644); err != nil {
		return fmt.Errorf("writing the manifests of cluster DNS: %w", err)
	}
	if err := c.kubectl(ctx, "apply", "-f", dns); err != nil {
		return err
	}
	if c.config.KubeProxy {
		if err := c.deployKubeProxy(ctx); err != nil {
			return err
		}
	}
	if c.config.Manifests != "" {
		if err := c.install(ctx); err != nil {
			return err
		}
	}
	if err := c.awaitNodes(ctx); err != nil {
		return err
	}
	c.config.Step("%d nodes are ready", c.config.Nodes)
	if c.config.KubeProxy {
		if err := c.awaitDaemonSet(ctx, kubeProxyName); err != nil {
			return err
		}
		c.config.Step("kube-proxy runs on all nodes")
	}
	if c.config.Manifests != "" {
		if err := c.awaitDaemonSet(ctx, proxyName); err != nil {
			return err
		}
		c.config.Step("Vicinity is ready on all nodes")
	}
	if !c.config.served() {
		return nil
	}
	if err := c.awaitDNS(ctx); err != nil {
		return err
	}
	c.config.Step("cluster DNS is ready")
	return nil
}

func (c *Cluster) awaitDaemonSet(ctx context.Context, name string) error {
	return c.await(ctx, func(ctx context.Context) (waitingFor string, err error) {
		found, err := c.client.AppsV1().DaemonSets(system).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("reading DaemonSet %s/%s: %w", system, name, err)
		}
		if ready := int(found.Status.NumberReady); ready < c.config.Nodes {
			return fmt.Sprintf("DaemonSet %s/%s: ready on %d of %d nodes", system, name, ready, c.config.Nodes), nil
		}
		return "", nil
	})
}

func (c *Cluster) awaitDNS(ctx context.Context) error {
	return c.await(ctx, func(ctx context.Context) (waitingFor string, err error) {
		const name = "coredns"
		found, err := c.client.AppsV1().Deployments(system).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("reading Deployment %s/%s: %w", system, name, err)
		}
		if found.Status.ReadyReplicas < *found.Spec.Replicas {
			return fmt.Sprintf("Deployment %s/%s", system, name), nil
		}
		return "", nil
	})
}

// kubectl runs kubectl as the cluster's administrator, from the machine, as its owner would.
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
	var complaint []byte
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		complaint = ended.Stderr
	}
	return nil, fmt.Errorf("kubectl %s: %w\n%s", args[2], err, complaint)
}
