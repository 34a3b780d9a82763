package node

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Where kubelet's files are in a node.
const (
	kubeletConfig     = "/etc/kubernetes/kubelet.json"
	kubeletKubeconfig = "/etc/kubernetes/kubelet.kubeconfig"
	kubeletCertFile   = "/etc/kubernetes/kubelet.crt"
	kubeletKeyFile    = "/etc/kubernetes/kubelet.key"
	authorityFile     = "/etc/kubernetes/ca.crt"
	resolvConf        = "/etc/resolv.conf"
)

// kubeletConfiguration returns the file of kubelet's --config (kubelet.config.k8s.io/v1beta1), as JSON. Only what
// differs from the defaults is in it.
func kubeletConfiguration(dns netip.Addr) (string, error) {
	config := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1",
		"kind":       "KubeletConfiguration",

		"authentication":    map[string]any{"x509": map[string]any{"clientCAFile": authorityFile}, "anonymous": map[string]any{"enabled": false}},
		"tlsCertFile":       kubeletCertFile,
		"tlsPrivateKeyFile": kubeletKeyFile,

		"containerRuntimeEndpoint": "unix://" + containerdSocket,
		"cgroupDriver":             "cgroupfs",
		"failCgroupV1":             false, // some machines still have it
		"failSwapOn":               false, // the machine's owner decides about swap
		"enforceNodeAllocatable":   []string{},

		"clusterDomain": "cluster.local",
		"clusterDNS":    []netip.Addr{dns},
		"resolvConf":    resolvConf,

		// iptables rules of kubelet's own would stand in a ruleset that should be the service proxy's alone.
		"makeIPTablesUtilChains": false,

		// How full the machine's disk is, is not the lab's concern, and its images come from nowhere once they are deleted.
		"evictionHard": map[string]string{
			"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
			"imagefs.available": "0%", "imagefs.inodesFree": "0%",
		},
		"imageGCHighThresholdPercent":   100,
		"localStorageCapacityIsolation": false,
	}
	text, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encoding kubelet's configuration: %w", err)
	}
	return string(text), nil
}

// kubeletFlags are what the file has no field for.
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
