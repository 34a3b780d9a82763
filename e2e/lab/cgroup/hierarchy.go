package cgroup

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
)

// hierarchy is a tree of groups.
type hierarchy struct {
	// controllers are the controllers of a cgroup v1 hierarchy, in the format of /proc/PID/cgroup, such as "cpu,cpuacct"
	// or "name=systemd". It is empty for cgroup v2, which has one hierarchy for all.
	controllers string
	// folder is the group in which new groups may be created.
	folder string
}

func (h hierarchy) has(controller string) bool {
	return slices.Contains(strings.Split(h.controllers, ","), controller)
}

var errNoCgroups = errors.New("no cgroups are mounted below /sys/fs/cgroup: kubelet cannot run on this machine")

// v2MountPoint is the mount point of cgroup v2 on a machine that uses nothing else.
const v2MountPoint = "/sys/fs/cgroup"

// parseHierarchies returns the hierarchies, given the contents of /proc/self/cgroup and /proc/self/mountinfo.
//
// With cgroup v1 the lab's groups are below this process's group, and so are limited to its memory. With cgroup v2 they
// are below the root: a group with processes cannot have groups with controllers below it.
func parseHierarchies(membership, mountinfo string) ([]hierarchy, error) {
	mounts := parseMounts(mountinfo)
	for _, m := range mounts {
		if m.kind == "cgroup2" && m.point == v2MountPoint {
			return []hierarchy{{folder: v2MountPoint}}, nil
		}
	}
	var found []hierarchy
	for line := range strings.Lines(membership) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // cgroups(7): ID:controllers:path
		if len(fields) != 3 || fields[1] == "" {
			continue
		}
		for _, m := range mounts {
			if m.kind == "cgroup" && m.hasControllers(fields[1]) {
				folder := filepath.Join(m.point, strings.TrimPrefix(fields[2], m.root))
				found = append(found, hierarchy{controllers: fields[1], folder: folder})
				break
			}
		}
	}
	if len(found) == 0 {
		return nil, errNoCgroups
	}
	return found, nil
}

// mount is a line of mountinfo.
type mount struct {
	root, point string
	kind        string
	options     []string // of the file system; they include the controllers
}

// hasControllers reports whether this is the mount of the hierarchy with these controllers.
func (m mount) hasControllers(controllers string) bool {
	for controller := range strings.SplitSeq(controllers, ",") {
		if !slices.Contains(m.options, controller) {
			return false
		}
	}
	return true
}

// parseMounts reads mountinfo (proc_pid_mountinfo(5)): ID, parent, device, root, mount point, options, optional
// fields, "-", type, source, options of the file system.
func parseMounts(mountinfo string) []mount {
	var mounts []mount
	for line := range strings.Lines(mountinfo) {
		front, back, ok := strings.Cut(strings.TrimSpace(line), " - ")
		left, right := strings.Fields(front), strings.Fields(back)
		if !ok || len(left) < 5 || len(right) < 3 {
			continue
		}
		mounts = append(mounts, mount{root: left[3], point: left[4], kind: right[0], options: strings.Split(right[2], ",")})
	}
	return mounts
}
