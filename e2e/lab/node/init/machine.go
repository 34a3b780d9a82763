package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/e2e/lab/node"
)

// join moves the process to the node's cgroups, makes them the roots of a new cgroup namespace, and executes the next
// stage. It returns only if it fails.
func join(plan node.Plan, next []string) error {
	for _, group := range plan.Groups {
		if err := joinCgroup(group); err != nil {
			return err
		}
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("unshare cgroup namespace: %w", err)
	}
	if plan.Leaf != "" {
		if err := joinCgroup(plan.Leaf); err != nil {
			return err
		}
	}
	if err := unix.Exec(next[0], next, os.Environ()); err != nil {
		return fmt.Errorf("execute %s: %w", next[0], err)
	}
	return nil
}

func joinCgroup(group string) error {
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte("0"), 0); err != nil {
		return fmt.Errorf("join cgroup: %w", err)
	}
	return nil
}

// setUpRoot makes the plan's root the root of this process.
func setUpRoot(plan node.Plan) error {
	if err := unix.Sethostname([]byte(plan.Hostname)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	// The mounts below must not propagate to the machine.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the node's mounts private: %w", err)
	}
	if err := unix.Mount(plan.Root, plan.Root, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", plan.Root, err)
	}
	for _, mount := range plan.Mounts {
		if err := applyMount(plan.Root, mount); err != nil {
			return fmt.Errorf("mount %s on the node's %s: %w", mount.Source, mount.Target, err)
		}
	}
	if err := os.Symlink("pts/ptmx", filepath.Join(plan.Root, "dev/ptmx")); err != nil {
		return fmt.Errorf("link /dev/ptmx: %w", err)
	}
	return pivot(plan.Root)
}

// applyMount creates the mount's target if it is missing, and mounts on it.
func applyMount(root string, mount node.Mount) error {
	target := filepath.Join(root, mount.Target)
	if err := touch(target, mount.File); err != nil {
		return err
	}
	if mount.Type != "bind" {
		return unix.Mount(mount.Source, target, mount.Type, mount.Flags, mount.Data)
	}
	if err := unix.Mount(mount.Source, target, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if mount.Flags == 0 {
		return nil
	}
	// The kernel applies flags to a bind mount only when it is remounted.
	return unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|mount.Flags, "")
}

func touch(target string, file bool) error {
	if !file {
		return os.MkdirAll(target, 0o755)
	}
	created, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return created.Close()
}

// pivot moves to the new root and detaches the old one, and with it the rest of the machine's files.
func pivot(root string) error {
	if err := os.Chdir(root); err != nil {
		return fmt.Errorf("enter %s: %w", root, err)
	}
	// The old root is stacked over the new one, from where it is detached (pivot_root(2), "pivot_root . .").
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot root to %s: %w", root, err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the old root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return fmt.Errorf("enter the new root: %w", err)
	}
	// Volumes that kubelet mounts must propagate to containers that already run.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make the node's mounts shared: %w", err)
	}
	return nil
}
