// Package cgroup creates the control groups of the lab's nodes next to the machine's own, and removes them again. It
// never mounts anything and never changes a group that it did not create.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Groups are the control groups of a lab: one in each hierarchy, with the nodes' groups below it.
type Groups struct {
	hierarchies []hierarchy
	name        string
}

// Find returns the lab's groups in the machine's hierarchies. name is the name of the lab's group in each of them.
func Find(name string) (*Groups, error) {
	membership, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("read this process's cgroups: %w", err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read cgroup mounts: %w", err)
	}
	hierarchies, err := parseHierarchies(string(membership), string(mounts))
	if err != nil {
		return nil, err
	}
	return &Groups{hierarchies: hierarchies, name: name}, nil
}

// Node has the groups of one node.
type Node struct {
	// Folders are the node's group in each hierarchy.
	Folders []string
	// Leaf is a group below the node's for its first process. It is empty with cgroup v1.
	Leaf string
	// Mounts are the mounts by which the node sees its groups: type, options, and target below /sys/fs/cgroup.
	Mounts []Mount
}

// Mount is the mount of a hierarchy on a node.
type Mount struct{ Type, Options, Target string }

// AddNode creates the groups of a node.
func (g *Groups) AddNode(node string) (Node, error) {
	var n Node
	for _, h := range g.hierarchies {
		folder := filepath.Join(h.folder, g.name, node)
		if err := h.add(filepath.Join(g.name, node)); err != nil {
			return n, err
		}
		n.Folders = append(n.Folders, folder)
		if h.controllers == "" {
			n.Leaf = filepath.Join(folder, "init")
			if err := os.Mkdir(n.Leaf, 0o755); err != nil {
				return n, fmt.Errorf("create cgroup: %w", err)
			}
			n.Mounts = append(n.Mounts, Mount{Type: "cgroup2"})
			continue
		}
		target := strings.TrimPrefix(h.controllers, "name=")
		n.Mounts = append(n.Mounts, Mount{Type: "cgroup", Options: h.controllers, Target: target})
	}
	return n, nil
}

// add creates a group and its ancestors, and prepares them for processes.
func (h hierarchy) add(path string) error {
	folder := h.folder
	for name := range strings.SplitSeq(path, string(filepath.Separator)) {
		if h.controllers == "" {
			enableControllers(folder)
		}
		parent := folder
		folder = filepath.Join(folder, name)
		if err := os.Mkdir(folder, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("create cgroup: %w", err)
		}
		if !h.has("cpuset") {
			continue
		}
		// A cpuset without CPUs and memory nodes accepts no process, and new ones have none (cgroup-v1/cpusets.rst).
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if err := copyFromParent(parent, folder, file); err != nil {
				return err
			}
		}
	}
	return nil
}

// enableControllers enables the controllers that the node needs for the groups below the folder. A missing one is not
// an error here; kubelet reports it.
func enableControllers(folder string) {
	for _, controller := range []string{"cpu", "cpuset", "io", "memory", "pids"} {
		_ = os.WriteFile(filepath.Join(folder, "cgroup.subtree_control"), []byte("+"+controller), 0)
	}
}

func copyFromParent(parent, folder, file string) error {
	value, err := os.ReadFile(filepath.Join(parent, file))
	if err != nil {
		return fmt.Errorf("initialize cpuset: %w", err)
	}
	if err := os.WriteFile(filepath.Join(folder, file), value, 0); err != nil {
		return fmt.Errorf("initialize cpuset: %w", err)
	}
	return nil
}

// Folders returns the lab's groups. Everything below them belongs to the lab.
func (g *Groups) Folders() []string {
	var folders []string
	for _, h := range g.hierarchies {
		folders = append(folders, filepath.Join(h.folder, g.name))
	}
	return folders
}

// Remove removes groups with all groups below them. A process that was killed stays in its groups for a moment; Remove
// waits until it has left, at most for the timeout.
func Remove(folders []string, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for _, folder := range folders {
		for {
			err := removeTree(folder)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("remove cgroup %s: %w", folder, err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return nil
}

// removeTree removes a group and those below. It removes only folders: the files of a group disappear with it.
func removeTree(folder string) error {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeTree(filepath.Join(folder, entry.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
