package node

import "fmt"

// The paths in a node.
const (
	containerdSocket = "/run/containerd/containerd.sock"
	containerdConfig = "/etc/containerd/config.toml"
	containerdRoot   = "/var/lib/containerd"
	cniPrograms      = "/opt/cni/bin"
	cniConfig        = "/etc/cni/net.d"
)

// ContainerdConfig returns the configuration file of a containerd with its images and containers in root, its runtime
// state in state, and its socket. pause is the image of the process that holds a pod's namespaces.
//
// Containers have at least containerd's own oom_score_adj: lowering it needs CAP_SYS_RESOURCE, which the machine may
// lack.
func ContainerdConfig(root, state, socket, pause string) string {
	return fmt.Sprintf(`version = 3
root = %q
state = %q
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.internal.v1.tracing",
  "io.containerd.nri.v1.nri",
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.erofs",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.tracing.processor.v1.otlp",
]

[grpc]
address = %q

[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = %q

[plugins."io.containerd.cri.v1.runtime"]
disable_apparmor = true
restrict_oom_score_adj = true

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = [%q]
conf_dir = %q

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
SystemdCgroup = false
`, root, state, socket, pause, cniPrograms, cniConfig)
}
