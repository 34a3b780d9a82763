package cluster

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/lab/controlplane"
	"github.com/vicinity-proxy/vicinity/e2e/lab/node"
	"github.com/vicinity-proxy/vicinity/e2e/lab/process"
)

// machine is a node, running or off.
type machine struct {
	network *fabric.Node
	config  node.Config
	process *process.Process // the node's first process; nil while it is off
}

// startNodes starts all nodes, with the images of a containerd's root folder.
func (c *Cluster) startNodes(images string) error {
	for i, network := range c.network.Nodes() {
		config, err := c.nodeConfig(i+1, network)
		if err != nil {
			return err
		}
		config.Images = images
		m := &machine{network: network, config: config}
		if m.process, err = node.Start(config); err != nil {
			return err
		}
		c.nodes = append(c.nodes, m)
		if err := c.recordPID(m); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) recordPID(m *machine) error {
	pid := strconv.Itoa(m.process.PID())
	if err := os.WriteFile(c.config.Folder.PID(m.config.Name), []byte(pid), 0o644); err != nil {
		return fmt.Errorf("record first process of %s: %w", m.config.Name, err)
	}
	return nil
}

func (c *Cluster) nodeConfig(number int, network *fabric.Node) (node.Config, error) {
	name := network.Name
	groups, err := c.groups.AddNode(name)
	if err != nil {
		return node.Config{}, fmt.Errorf("create cgroups of %s: %w", name, err)
	}
	logs := filepath.Join(c.config.Folder.Logs(), name)
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return node.Config{}, fmt.Errorf("create folder: %w", err)
	}
	kubeconfig, err := c.kubeconfig("system:node:"+name, "system:nodes")
	if err != nil {
		return node.Config{}, err
	}
	ipv4, ipv6 := network.PodCIDRs()
	return node.Config{
		Name:        name,
		Labels:      labels(number),
		Addrs:       []netip.Addr{network.IPv4, network.IPv6},
		Pods:        []netip.Prefix{ipv4, ipv6},
		DNS:         c.dns(),
		Netns:       network,
		Root:        filepath.Join(c.config.Folder.Run(), name),
		Logs:        logs,
		Groups:      groups,
		Programs:    c.config.Programs,
		OwnPrograms: c.config.Folder.OwnPrograms(),
		Pause:       pauseImage,
		Authority:   c.controlPlane.Authority(),
		Kubeconfig:  kubeconfig,
	}, nil
}

// kubeconfig returns the kubeconfig of a client inside the cluster.
func (c *Cluster) kubeconfig(user string, groups ...string) (string, error) {
	config, err := c.controlPlane.ClientConfig(user, groups...)
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.config.Folder.Run(), "kubeconfig")
	if err := controlplane.WriteKubeconfig(path, config); err != nil {
		return "", err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the kubeconfig of %s: %w", user, err)
	}
	return string(text), nil
}
