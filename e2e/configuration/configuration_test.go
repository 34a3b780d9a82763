// Package configuration compares the configuration files with which Vicinity starts to those with which kube-proxy
// itself starts, using the program that the lab runs. A node whose kube-proxy is replaced by Vicinity must not be left
// without a proxy.
package configuration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/config"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

const header = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

// unusualFiles are files with which kube-proxy starts, though it logs a warning or ignores a setting. wrong is Vicinity's error
// for files that it rejects; empty means that it starts.
var unusualFiles = map[string]struct{ text, wrong string }{
	"metadata":                       {"metadata: {name: config}\n", ""},
	"another mode's setting":         {"mode: ipvs\nipvs: {masqueradeAll: true}\n", ""},
	"a section that is not indented": {"ipvs:\nstrictARP: true\n", ""},
	"a typo in an unused section":    {"ipvs: {strictArp: true}\n", ""},
	"an unknown setting":             {"frobnicate: true\n", ""},
	"an unknown Windows setting":     {"winkernel: {frobnicate: 1}\n", ""},
	"values of other modes":          {"ipvs: {syncPeriod: -1s, excludeCIDRs: [x]}\nnftables: {masqueradeBit: 99}\n", ""},
	"an unused, invalid pod CIDR":    {"detectLocalMode: NodeCIDR\nclusterCIDR: all\n", ""},
	"two unused pod CIDRs":           {"detectLocalMode: NodeCIDR\nclusterCIDR: 10.0.0.0/8,11.0.0.0/8\n", ""},
	"an unused interface":            {"detectLocal: {interfaceNamePrefix: 'eni*'}\n", ""},
	"empty feature gates":            {"featureGates:\n", ""},
	"an empty second document":       {"---\n", ""},
	"a typo":                         {"clusterCDIR: 10.0.0.0/8\n", "did you mean clusterCIDR?"},
	"wrong case":                     {"Mode: ipvs\n", "did you mean mode?"},
	"a setting without section":      {"masqueradeAll: true\n", "did you mean iptables.masqueradeAll?"},
	"a duplicate setting":            {"mode: ipvs\nmode: iptables\n", "mode: duplicate field"},
	"two configurations":             {"---\n" + header, "two documents"},
	"one address for two servers":    {"metricsBindAddress: 0.0.0.0:10256\n", "each server needs its own"},
	"an interface wildcard":          {"detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: 'eni*'}\n", "wildcard"},
	"a timeout below one second":     {"conntrack: {udpTimeout: 500ms}\n", "less than a second"},
	"a CIDR with a leading zero":     {"nodePortAddresses: ['010.0.0.0/8']\n", "is not a CIDR"},
	"a bridge name too long":         {"detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: abcdefghijklmnop}\n", "at most 15"},
}

func TestConfigurationFilesAgainstKubeProxy(t *testing.T) {
	programs, err := binaries.Build(t.Context(), os.Stderr, binaries.Kubernetes)
	must.Succeed(t, err)
	starts := func(t *testing.T, path string) bool {
		// kube-proxy reads and validates the file, writes the result, and exits.
		output, err := exec.CommandContext(t.Context(), programs.Path(binaries.Kubernetes, "kube-proxy"),
			"--config", path, "--write-config-to", filepath.Join(t.TempDir(), "out")).CombinedOutput()
		t.Logf("kube-proxy: %s", output)
		if isOld := filepath.Base(path) == "kubeadm-1.36-ipvs.yaml"; isOld { // 1.37 has no such feature gate
			return strings.Contains(string(output), "unrecognized feature gate: SidecarContainers")
		}
		return err == nil
	}
	shipped, err := filepath.Glob("../../pkg/proxy/config/testdata/*.yaml")
	must.Succeed(t, err)
	if len(shipped) < 13 {
		t.Errorf("found only %d configuration files of distributions", len(shipped))
	}
	for _, path := range shipped {
		t.Run(filepath.Base(path), func(t *testing.T) {
			_, err := config.Read(path, config.VicinityConfig{})
			if !starts(t, path) || err != nil {
				t.Errorf("kube-proxy does not start, or Vicinity fails: %v", err)
			}
		})
	}
	for name, file := range unusualFiles {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.conf")
			must.Succeed(t, os.WriteFile(path, []byte(header+file.text), 0o600))
			_, err := config.Read(path, config.VicinityConfig{})
			if rejected := err != nil; !starts(t, path) || rejected != (file.wrong != "") {
				t.Errorf("kube-proxy does not start, or Vicinity's error is %v, want %q", err, file.wrong)
			} else if rejected && !strings.Contains(err.Error(), file.wrong) {
				t.Errorf("Vicinity's error is %v, want %q", err, file.wrong)
			}
		})
	}
}
