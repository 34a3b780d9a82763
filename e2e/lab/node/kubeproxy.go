package node

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// KubeProxy is Kubernetes' own service proxy, in nftables mode.
type KubeProxy struct {
	// Kubeconfig is what it reaches the API server with.
	Kubeconfig string
	// ClusterCIDR holds the addresses of all pods, of both families.
	ClusterCIDR string
	// Nft are the files of the nft program of the machine and its libraries. kube-proxy runs it for every change.
	Nft []string
}

// Where its files are in a node.
const (
	kubeProxyConfig     = "/etc/kubernetes/kube-proxy.json"
	kubeProxyKubeconfig = "/etc/kubernetes/kube-proxy.kubeconfig"
)

func (k *KubeProxy) program(node string) Program {
	return Program{
		Name:      "kube-proxy",
		Path:      programs + "/kubernetes/kube-proxy",
		Arguments: []string{"--config=" + kubeProxyConfig, "--hostname-override=" + node},
	}
}

func (k *KubeProxy) addFiles(files map[string]file) error {
	config, err := json.MarshalIndent(map[string]any{
		"apiVersion":       "kubeproxy.config.k8s.io/v1alpha1",
		"kind":             "KubeProxyConfiguration",
		"mode":             "nftables",
		"clientConnection": map[string]any{"kubeconfig": kubeProxyKubeconfig},
		"clusterCIDR":      k.ClusterCIDR,
		// The machine's limits belong to the machine.
		"conntrack": map[string]any{"maxPerCore": 0, "min": 0},
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding kube-proxy's configuration: %w", err)
	}
	files[kubeProxyConfig] = file{config, 0o644}
	files[kubeProxyKubeconfig] = file{[]byte(k.Kubeconfig), 0o600}
	for _, path := range k.Nft {
		content, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("reading the machine's nft: %w", err)
		}
		target := path
		if filepath.Base(path) == "nft" {
			target = "/usr/sbin/nft"
		}
		files[target] = file{content, 0o755}
	}
	return nil
}

// Libraries reads what ldd prints: the files that a program is linked with, and the linker that loads them.
func Libraries(ldd string) []string {
	var files []string
	for word := range strings.FieldsSeq(ldd) {
		if filepath.IsAbs(word) {
			files = append(files, word)
		}
	}
	return files
}
