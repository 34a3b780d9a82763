package node

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// The paths of kubelet's files in a node.
const (
	kubeletConfig     = "/etc/kubernetes/kubelet.json"
	kubeletKubeconfig = "/etc/kubernetes/kubelet.kubeconfig"
	kubeletCertFile   = "/etc/kubernetes/kubelet.crt"
	kubeletKeyFile    = "/etc/kubernetes/kubelet.key"
	authorityFile     = "/etc/kubernetes/ca.crt"
	resolvConf        = "/etc/resolv.conf"
)

// kubeletConfiguration returns kubelet's configuration file (kubelet.config.k8s.io/v1beta1) as JSON. It contains only
// what differs from the defaults.
func kubeletConfiguration(dns netip.Addr) (string, error) {
	config := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1",
		"kind":       "KubeletConfiguration",

		"authentication":    map[string]any{"x509": map[string]any{"clientCAFile": authorityFile}, "anonymous": map[string]any{"enabled": false}},
		"tlsCertFile":       kubeletCertFile,
		"tlsPrivateKeyFile": kubeletKeyFile,

		"containerRuntimeEndpoint": "unix://" + containerdSocket,
		"cgroupDriver":             "cgroupfs",
		"failCgroupV1":             false, // some machines still have cgroup v1
		"failSwapOn":               false, // swap is up to the machine's administrator
		"enforceNodeAllocatable":   []string{},

		"clusterDomain": "cluster.local",
		"clusterDNS":    []netip.Addr{dns},
		"resolvConf":    resolvConf,

		// kubelet's own iptables rules would be in a ruleset that should be the service proxy's alone.
		"makeIPTablesUtilChains": false,

		// The disk usage of the machine must not cause evictions, and deleted images could not be pulled again.
		"evictionHard": map[string]string{
			"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
			"imagefs.available": "0%", "imagefs.inodesFree": "0%",
		},
		"imageGCHighThresholdPercent":   100,
		"localStorageCapacityIsolation": false,
	}
	text, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encode kubelet's configuration: %w", err)
	}
	return string(text), nil
}

// kubeletFlags returns the settings that the file has no field for.
func kubeletFlags(name string, addrs []netip.Addr, labels map[string]string) []string {
	var pairs, ips []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, key+"="+labels[key])
	}
	for _, addr := range addrs {
		ips = append(ips, addr.String())
	}
	return []string{
		"--config=" + kubeletConfig,
		"--kubeconfig=" + kubeletKubeconfig,
		"--hostname-override=" + name,
		"--node-ip=" + strings.Join(ips, ","),
		"--node-labels=" + strings.Join(pairs, ","),
		"--oom-score-adj=0", // lowering it needs CAP_SYS_RESOURCE, which the machine may lack
	}
}
