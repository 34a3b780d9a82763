// Package node runs Kubernetes nodes in namespaces: kubelet, containerd, runc and CNI plugins, each node with mounts,
// host name, processes, cgroups and network of its own.
//
// A node's root contains little but this repository's own small programs. It has no shell, no package of a
// distribution, and above all no iptables, so that only the service proxy creates its nftables ruleset.
package node

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/vicinity-proxy/vicinity/e2e/lab/authority"
	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/lab/cgroup"
	"github.com/vicinity-proxy/vicinity/e2e/lab/process"
)

// Config configures a node.
type Config struct {
	Name   string
	Labels map[string]string
	// Addrs are the node's own addresses, IPv4 first. Pods are the ranges of its pods' addresses.
	Addrs []netip.Addr
	Pods  []netip.Prefix
	// DNS is the ClusterIP of cluster DNS.
	DNS netip.Addr

	// Netns is the node's network namespace.
	Netns process.NetworkNamespace
	// Root is a folder for the node's files, on a file system that is no overlay: containers are overlays, and the kernel
	// does not support overlays as their upper folders. Logs is a folder for the logs of its programs and pods.
	Root, Logs string
	Groups     cgroup.Node

	// Programs has the modules Kubernetes, Containerd, Runc and CNI; OwnPrograms is the folder of this repository's
	// programs.
	Programs    binaries.Programs
	OwnPrograms string
	// Images is a containerd's root folder with images. The node gets a copy.
	Images string
	// Pause is the image of the process that holds a pod's namespaces.
	Pause string

	// Authority signs kubelet's certificate. Kubeconfig is kubelet's kubeconfig for the API server.
	Authority  *authority.Authority
	Kubeconfig string
}

// Start starts a node and returns its first process. When that process has exited, all processes of the node have
// exited.
func Start(config Config) (*process.Process, error) {
	if err := config.prepareRoot(); err != nil {
		return nil, fmt.Errorf("prepare the root of %s: %w", config.Name, err)
	}
	plan, err := json.Marshal(config.plan())
	if err != nil {
		return nil, fmt.Errorf("encode the plan of %s: %w", config.Name, err)
	}
	path := config.Root + ".plan.json"
	if err := os.WriteFile(path, plan, 0o600); err != nil {
		return nil, fmt.Errorf("write the plan of %s: %w", config.Name, err)
	}
	cmd := exec.Command(filepath.Join(config.OwnPrograms, "init"), "join", path)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWPID,
	}
	return process.Start(config.Netns, config.Logs, "init", cmd)
}

// programs is the folder of programs in a node.
const programs = "/opt/lab"

// ProgramPath is the PATH of a node's programs.
const ProgramPath = programs + "/containerd:" + programs + "/runc:" + programs + "/kubernetes:/bin:/usr/sbin"

// plan returns the plan for the node's first process.
func (c Config) plan() Plan {
	return Plan{
		Hostname: c.Name,
		Root:     c.Root,
		Groups:   c.Groups.Folders,
		Leaf:     c.Groups.Leaf,
		Mounts:   c.mounts(),
		Programs: c.programs(),
	}
}

func (c Config) mounts() []Mount {
	mounts := systemMounts()
	mounts = append(mounts, cgroupMounts(c.Groups)...)
	mounts = append(mounts, sysctlMounts(c.Root)...)
	for target, source := range map[string]string{
		programs + "/containerd": c.Programs.Folder(binaries.Containerd),
		programs + "/runc":       c.Programs.Folder(binaries.Runc),
		programs + "/kubernetes": c.Programs.Folder(binaries.Kubernetes),
		cniPrograms:              c.Programs.Folder(binaries.CNI),
	} {
		mounts = append(mounts, Mount{Source: source, Target: target, Type: bind, Flags: readOnly})
	}
	return append(mounts, Mount{Source: c.Logs, Target: "/var/log", Type: bind})
}

func (c Config) programs() []Program {
	return []Program{
		{
			Name:      "containerd",
			Path:      programs + "/containerd/containerd",
			Arguments: []string{"--config", containerdConfig},
			Socket:    containerdSocket,
		},
		{
			Name:      "kubelet",
			Path:      programs + "/kubernetes/kubelet",
			Arguments: kubeletFlags(c.Name, c.Addrs, c.Labels),
		},
	}
}
