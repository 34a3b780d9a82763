// Command mount is called by kubelet to mount and unmount volumes. It is mount(8) and umount(8), depending on its name,
// with the options that kubelet uses. A node needs no other program of a Linux distribution.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(filepath.Base(os.Args[0]), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(32) // mount(8): "mount failure"
	}
}

func run(name string, args []string) error {
	if name == "umount" {
		return unmount(args)
	}
	request, err := parse(args)
	if err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	if err := unix.Mount(request.source, request.target, request.kind, request.flags, request.data); err != nil {
		return fmt.Errorf("mount: %s on %s: %w", request.source, request.target, err)
	}
	return nil
}

func unmount(args []string) error {
	flags := 0
	for len(args) > 0 && args[0] == "-f" {
		flags, args = flags|unix.MNT_FORCE, args[1:]
	}
	if len(args) != 1 {
		return fmt.Errorf("umount: want one folder, got %q", args)
	}
	err := unix.Unmount(args[0], flags)
	if errors.Is(err, unix.EINVAL) {
		// kubelet searches for this text (k8s.io/mount-utils, errNotMounted).
		return fmt.Errorf("umount: %s: not mounted", args[0])
	}
	if err != nil {
		return fmt.Errorf("umount: %s: %w", args[0], err)
	}
	return nil
}
