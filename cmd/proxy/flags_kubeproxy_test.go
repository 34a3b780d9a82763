package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/config"
)

// kubeProxyFlags are all flags of kube-proxy 1.30 to 1.37: those in the --help of 1.37.2, its hidden deprecated ones,
// boot-id-file and machine-id-file, which 1.36 removed, and proxy-port-range, which 1.31 removed. Apart from
// these, options.go (server.go before 1.31) has the same flags in all of these versions. Each value differs from the
// default.
var kubeProxyFlags = map[string]string{
	"bind-address": "192.0.2.1", "bind-address-hard-fail": "true", "boot-id-file": "/x", "cleanup": "false",
	"cluster-cidr": "10.244.0.0/16", "config": "", "config-sync-period": "1m", "conntrack-max-per-core": "1", "conntrack-min": "1",
	"conntrack-tcp-be-liberal": "true", "conntrack-tcp-timeout-close-wait": "2h", "conntrack-tcp-timeout-established": "2h",
	"conntrack-udp-timeout": "1m", "conntrack-udp-timeout-stream": "2m", "detect-local-mode": "NodeCIDR", "feature-gates": "AllBeta=true",
	"healthz-bind-address": "127.0.0.1:1", "healthz-port": "1", "hostname-override": "node-b", "init-only": "true",
	"iptables-localhost-nodeports": "false", "iptables-masquerade-bit": "7", "iptables-min-sync-period": "2s",
	"iptables-sync-period": "1m", "ipvs-exclude-cidrs": "10.0.0.0/8", "ipvs-min-sync-period": "2s", "ipvs-scheduler": "lc",
	"ipvs-strict-arp": "true", "ipvs-sync-period": "1m", "ipvs-tcp-timeout": "1m", "ipvs-tcpfin-timeout": "1m",
	"ipvs-udp-timeout": "1m", "kube-api-burst": "1", "kube-api-content-type": "application/json", "kube-api-qps": "1.5",
	"kubeconfig": "/x", "log-flush-frequency": "1s", "log-json-info-buffer-size": "1Ki", "log-json-split-stream": "true",
	"log-text-info-buffer-size": "1Ki", "log-text-split-stream": "true", "logging-format": "json", "machine-id-file": "/x",
	"masquerade-all": "true", "master": "https://192.0.2.1", "metrics-bind-address": "127.0.0.1:2", "metrics-port": "1",
	"nodeport-addresses": "192.0.2.0/24", "oom-score-adj": "-7", "pod-bridge-interface": "", "pod-interface-name-prefix": "",
	"profiling": "true", "proxy-mode": "ipvs", "proxy-port-range": "1-2", "show-hidden-metrics-for-version": "1.35", "v": "2",
	"version": "false", "vmodule": "a=2", "write-config-to": "/x",
}

// TestKubeProxyCommandLineIsAccepted sets all flags at once: each either has an effect or causes a message.
func TestKubeProxyCommandLineIsAccepted(t *testing.T) {
	var line []string
	for name, value := range kubeProxyFlags {
		line = append(line, "--"+name+"="+value)
	}
	flags, err := parseRunFlags(t, strings.Join(line, " "))
	expectError(t, err, "")
	hasMessage := map[string]bool{}
	for _, message := range flags.messages {
		name, reason, ok := strings.Cut(strings.TrimPrefix(message, "--"), ": ")
		if !ok || reason == "" || hasMessage[name] {
			t.Errorf("%q has no reason, or is a duplicate", message)
		}
		hasMessage[name] = true
	}
	want := map[string]bool{}
	for _, setting := range config.IgnoredSettings() {
		if setting.Flag == "" {
			continue
		}
		want[setting.Flag] = true
		if _, ok := kubeProxyFlags[setting.Flag]; !ok {
			t.Errorf("kube-proxy has no flag --%s", setting.Flag)
		}
	}
	if diff := cmp.Diff(want, hasMessage); diff != "" {
		t.Errorf("flags without effect (-want +messages):\n%s", diff)
	}
	if !flags.initOnly || flags.writeConfigTo != "/x" || flags.node != "node-b" || flags.master != "https://192.0.2.1" {
		t.Errorf("some flags are not applied: %+v", flags)
	}
}

// TestDistributionCommandLinesAreAccepted covers the command lines with which distributions start kube-proxy.
func TestDistributionCommandLinesAreAccepted(t *testing.T) {
	for name, line := range map[string]string{
		"k3s": "--cluster-cidr=10.42.0.0/16 --conntrack-max-per-core=0 --conntrack-tcp-timeout-close-wait=0s " +
			"--conntrack-tcp-timeout-established=0s --healthz-bind-address=127.0.0.1 --hostname-override=n " +
			"--kubeconfig=/var/lib/rancher/k3s/agent/kubeproxy.kubeconfig --proxy-mode=iptables",
		"RKE2": "--cluster-cidr=10.42.0.0/16 --conntrack-max-per-core=0 --conntrack-tcp-timeout-close-wait=0s " +
			"--conntrack-tcp-timeout-established=0s --healthz-bind-address=127.0.0.1 --hostname-override=n " +
			"--kubeconfig=/var/lib/rancher/rke2/agent/kubeproxy.kubeconfig --proxy-mode=iptables",
		"kops": "--cluster-cidr=100.96.0.0/11 --conntrack-max-per-core=131072 --hostname-override=n " +
			"--kubeconfig=/var/lib/kube-proxy/kubeconfig --master=https://api.internal.example.com --oom-score-adj=-998 --v=2",
		"Talos": "--cluster-cidr=10.244.0.0/16 --hostname-override=n --kubeconfig=/etc/kubernetes/kubeconfig --proxy-mode=nftables " +
			"--conntrack-max-per-core=0",
		"MicroK8s": "--kubeconfig=/var/snap/microk8s/current/credentials/proxy.config --cluster-cidr=10.1.0.0/16 " +
			"--healthz-bind-address=127.0.0.1 --profiling=false",
		"EKS":     "--v=2 --hostname-override=n --config=" + configFile(t, "mode: iptables"),
		"kubeadm": "--hostname-override=n --config=" + configFile(t, "clientConnection: {kubeconfig: /var/lib/kube-proxy/kubeconfig.conf}"),
	} {
		t.Run(name, func(t *testing.T) {
			if name == "EKS" {
				t.Setenv(serviceHostEnv, "10.100.0.1")
			}
			flags, err := parseRunFlags(t, line)
			expectError(t, err, "")
			if host, err := nodeName("n"); err != nil || name != "MicroK8s" && flags.node != host {
				t.Errorf("the proxy acts for node %s, want %s (%v)", flags.node, host, err)
			}
		})
	}
}

// TestSupportedFlagsSetTheSettings sets each supported flag of kube-proxy on its own.
func TestSupportedFlagsSetTheSettings(t *testing.T) {
	for _, setting := range daemonSettings() {
		name := setting.name
		for alias, original := range aliases {
			if original == name && name != "sync-period" {
				name = alias
			}
		}
		value, ok := kubeProxyFlags[name]
		if name != "sync-period" && !ok {
			t.Errorf("kube-proxy has no flag --%s, so it must not be among the settings of kube-proxy", name)
		}
		if value == "" {
			value = "7s"
		}
		t.Run(name, func(t *testing.T) {
			line := "--" + name + "=" + value
			if mode := config.LinkModes[setting.field]; mode != "" {
				line += " --detect-local-mode " + mode
			}
			if name != "kubeconfig" {
				line += " --manifests x"
			}
			flags, err := parseRunFlags(t, line)
			expectError(t, err, "")
			if got := config.Get(flags.configuration, setting.field); got != value && !sameDuration(got, value) {
				t.Errorf("%s is %q, want %q", setting.field, got, value)
			}
		})
	}
}

func sameDuration(a, b string) bool {
	first, err := time.ParseDuration(a)
	second, err2 := time.ParseDuration(b)
	return err == nil && err2 == nil && first == second
}

func TestIgnoredFlagsAreNotShown(t *testing.T) {
	help := proxyCommand(t, "run", "--help").stdout
	for _, setting := range config.IgnoredSettings() {
		if setting.Flag != "" && strings.Contains(help, "--"+setting.Flag+" ") {
			t.Errorf("the help lists --%s, which has no effect", setting.Flag)
		}
	}
	for _, part := range []string{"--config FILE", "Flags override the file", "-v, --v NUMBER", "--masquerade-all  "} {
		if !strings.Contains(strings.Join(strings.Fields(help), " "), strings.TrimSpace(part)) {
			t.Errorf("the help lacks %q:\n%s", part, help)
		}
	}
}

// configFile writes a configuration, and returns its path.
func configFile(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.conf")
	text := "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n" + strings.Join(lines, "\n")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAFlagBeatsTheFile(t *testing.T) {
	path := configFile(t, "mode: iptables", "hostnameOverride: of-file", "iptables: {masqueradeAll: true, syncPeriod: 5s}",
		"clusterCIDR: 10.244.0.0/16", "metricsBindAddress: 0.0.0.0:9", "nodePortAddresses: [192.0.2.0/24]",
		"clientConnection: {kubeconfig: /of/file}")
	both, err := parseRunFlags(t, "--config "+path+" --node of-flag --metrics-bind-address 127.0.0.1 --masquerade-all=false "+
		"--nodeport-addresses ::/0 --nodeport-addresses 0.0.0.0/0")
	expectError(t, err, "")
	got := map[string]string{"node": both.node}
	for _, field := range []string{
		"hostnameOverride", "mode", "nftables.masqueradeAll", "nftables.syncPeriod", "clusterCIDR", "metricsBindAddress",
		"nodePortAddresses", "clientConnection.kubeconfig", "healthzBindAddress",
	} {
		got[field] = config.Get(both.configuration, field)
	}
	want := map[string]string{
		"node": "of-flag", "hostnameOverride": "of-flag", "mode": "nftables", "nftables.masqueradeAll": "false",
		"nftables.syncPeriod": "5s", "clusterCIDR": "10.244.0.0/16", "metricsBindAddress": "127.0.0.1:10249",
		"nodePortAddresses": "::/0,0.0.0.0/0", "clientConnection.kubeconfig": "/of/file", "healthzBindAddress": "0.0.0.0:10256",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"mode: nftables is programmed in every mode"}, both.messages); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

func TestManifestsBeatTheKubeconfigOfAFile(t *testing.T) {
	_, err := parseRunFlags(t, "--manifests x --config "+configFile(t, "clientConnection: {kubeconfig: /of/file}"))
	expectError(t, err, "")
}

func TestInvalidFileIsNotAUsageError(t *testing.T) {
	path := configFile(t, "clusterCDIR: x", "mode: none")
	for _, command := range []string{"run", "render", "explain"} {
		got := proxyCommand(t, command, "--manifests", stateFolder, "--config", path)
		want := outcome{1, "", "proxy: read configuration " + path + ": clusterCDIR: unknown field; did you mean clusterCIDR?\n"}
		if got != want {
			t.Errorf("%s: got %+v, want %+v", command, got, want)
		}
	}
}

func TestExplainAndRenderReadTheFile(t *testing.T) {
	path := configFile(t, "hostnameOverride: node-a", "clusterCIDR: 10.244.0.0/16", "ipvs: {scheduler: lc}")
	if got := proxyCommand(t, "render", "--manifests", stateFolder, "--config", path); !strings.Contains(got.stdout,
		"!= 10.244.0.0/16 masquerade") {
		t.Errorf("render does not recognize pods: %+v", got)
	}
	got := proxyCommand(t, "explain", "shop/web", "--manifests", stateFolder, "--config", path)
	if got.status != 0 || !strings.Contains(got.stdout, "on node-a\n") {
		t.Errorf("explain does not use the node: %+v", got)
	}
}

func TestTheConfigurationIsWrittenAsItIsApplied(t *testing.T) {
	t.Setenv(serviceHostEnv, "") // a configuration can be written anywhere
	path := filepath.Join(t.TempDir(), "written.conf")
	got := proxyCommand(t, "run", "--node", "node-b", "--sync-period", "9s", "--write-config-to", path)
	if got != (outcome{}) {
		t.Fatalf("got %+v, want status 0 and no output", got)
	}
	flags, err := parseRunFlags(t, "--manifests x --config "+path)
	expectError(t, err, "")
	if flags.node != "node-b" || flags.settings.SyncPeriod != 9*time.Second || len(flags.messages) > 0 {
		t.Errorf("the written file has node %s, sync period %s, messages %q", flags.node, flags.settings.SyncPeriod, flags.messages)
	}
}

func TestNoFlagIsRegisteredForTwoFields(t *testing.T) {
	fields := map[string]string{}
	for _, setting := range daemonSettings() {
		if other, ok := fields[setting.field]; ok {
			t.Errorf("%s is set by --%s and --%s", setting.field, other, setting.name)
		}
		fields[setting.field] = setting.name
	}
	var flags runFlags
	set := pflag.NewFlagSet("run", pflag.ContinueOnError)
	flags.register(set)
	for _, alias := range slices.Sorted(maps.Keys(aliases)) {
		if found := set.Lookup(alias); found == nil || found.Name != aliases[alias] {
			t.Errorf("--%s is not an alias of --%s", alias, aliases[alias])
		}
	}
}
