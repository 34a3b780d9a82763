package cluster

import (
	"fmt"
	"os/exec"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/lab/node"
)

// kubeProxy returns what kube-proxy needs on each node, or nil if it is not wanted.
func (c *Cluster) kubeProxy() (*node.KubeProxy, error) {
	if !c.config.KubeProxy {
		return nil, nil
	}
	nft, err := exec.LookPath("nft")
	if err != nil {
		return nil, fmt.Errorf("kube-proxy runs the program nft: install the package nftables: %w", err)
	}
	output, err := exec.Command("ldd", nft).Output()
	if err != nil {
		return nil, fmt.Errorf("finding the libraries of %s: %w", nft, err)
	}
	kubeconfig, err := c.kubeconfig("system:kube-proxy")
	if err != nil {
		return nil, err
	}
	return &node.KubeProxy{
		Kubeconfig:  kubeconfig,
		ClusterCIDR: clusterCIDR(),
		Nft:         append([]string{nft}, node.Libraries(string(output))...),
	}, nil
}

// clusterCIDR holds the addresses of all pods, as kube-proxy's configuration writes them.
func clusterCIDR() string { return fabric.PodsIPv4.String() + "," + fabric.PodsIPv6.String() }
