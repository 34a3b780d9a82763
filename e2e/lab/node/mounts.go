package node

import (
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/e2e/lab/cgroup"
)

const (
	readOnly        = unix.MS_RDONLY
	noSetUID        = unix.MS_NOSUID
	restrictedFlags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
)

// bind is the type of a mount that shows a folder or file of the machine.
const bind = "bind"

// devices are those that the node's programs need; runc creates those of containers itself. kubelet reads kmsg to
// detect processes that were killed for lack of memory.
var devices = []string{"full", "kmsg", "null", "random", "tty", "urandom", "zero"}

// systemMounts returns the mounts of the kernel's own file systems, in the node's namespaces.
func systemMounts() []Mount {
	mounts := []Mount{
		{Source: "proc", Target: "/proc", Type: "proc", Flags: restrictedFlags},
		{Source: "sysfs", Target: "/sys", Type: "sysfs", Flags: restrictedFlags},
		{Source: "tmpfs", Target: "/dev", Type: "tmpfs", Flags: noSetUID, Data: "mode=755"},
		{
			Source: "devpts", Target: "/dev/pts", Type: "devpts", Flags: unix.MS_NOSUID | unix.MS_NOEXEC,
			Data: "newinstance,ptmxmode=0666,mode=620",
		},
		{Source: "tmpfs", Target: "/dev/shm", Type: "tmpfs", Flags: restrictedFlags},
		{Source: "mqueue", Target: "/dev/mqueue", Type: "mqueue", Flags: restrictedFlags},
	}
	for _, device := range devices {
		path := filepath.Join("/dev", device)
		mounts = append(mounts, Mount{Source: path, Target: path, Type: bind, File: true})
	}
	return mounts
}

// cgroupMounts returns mounts that show the node its own groups only.
func cgroupMounts(groups cgroup.Node) []Mount {
	const folder = "/sys/fs/cgroup"
	var mounts []Mount
	if groups.Leaf == "" {
		mounts = append(mounts, Mount{Source: "tmpfs", Target: folder, Type: "tmpfs", Flags: restrictedFlags, Data: "mode=755"})
	}
	for _, group := range groups.Mounts {
		mounts = append(mounts, Mount{
			Source: group.Type, Target: filepath.Join(folder, group.Target), Type: group.Type, Flags: restrictedFlags, Data: group.Options,
		})
	}
	return mounts
}

// machineSysctls are settings of the whole machine that kubelet writes (pkg/kubelet/cm/container_manager_linux.go,
// setupKernelTunables). The node has files with the values that kubelet requires instead, so that kubelet does not
// write.
var machineSysctls = map[string]string{
	"kernel/keys/root_maxbytes": "25000000",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
}

// sysctlFiles is the folder of those files in the node's root.
const sysctlFiles = "/etc/lab/sysctl"

// sysctlMounts returns the bind mounts of the stand-ins at kubelet's paths.
func sysctlMounts(root string) []Mount {
	var mounts []Mount
	for name := range machineSysctls {
		mounts = append(mounts, Mount{
			Source: filepath.Join(root, sysctlFiles, name), Target: filepath.Join("/proc/sys", name), Type: bind, File: true,
		})
	}
	return mounts
}
