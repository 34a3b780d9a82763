//go:build linux

package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// settingsManifests has objects with which every setting that changes a decision changes the tables of node-a. A proxy
// with a name serves one Service, and one without a name serves another.
const settingsManifests = `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: node-a, labels: {topology.kubernetes.io/zone: zone-a}}, spec: {podCIDRs: [10.244.1.0/24]},
    status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}}
- {apiVersion: v1, kind: Node, metadata: {name: node-b, labels: {topology.kubernetes.io/zone: zone-b}}}
- apiVersion: v1
  kind: Service
  metadata: {namespace: shop, name: web, annotations: {vicinity.dev/topology-keys: "topology.kubernetes.io/zone, *"}}
  spec: {type: NodePort, clusterIP: 10.96.0.1, externalIPs: [198.51.100.1], ports: [{port: 80, nodePort: 30080}]}
- {apiVersion: v1, kind: Service, metadata: {namespace: shop, name: named, labels: {service.kubernetes.io/service-proxy-name: near}},
    spec: {clusterIP: 10.96.0.2, ports: [{port: 80}]}}
- apiVersion: v1
  kind: Service
  metadata: {namespace: shop, name: headless, annotations: {vicinity.dev/topology-keys: "*"}}
  spec: {clusterIP: None, ports: [{port: 80}]}
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {namespace: shop, name: web-1, labels: {kubernetes.io/service-name: web}}
  addressType: IPv4
  ports: [{port: 8080}]
  endpoints:
  - {addresses: [10.244.1.1], nodeName: node-a}
  - {addresses: [10.244.1.2], nodeName: node-a}
  - {addresses: [10.244.2.1], nodeName: node-b}
  - {addresses: [10.244.2.2], nodeName: node-b}
  - {addresses: [10.244.2.3], nodeName: node-b}
  - {addresses: [10.244.2.4], nodeName: node-b}
  - {addresses: [10.244.2.5], nodeName: node-b}
  - {addresses: [10.244.2.6], nodeName: node-b}
- {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {namespace: shop, name: headless-1, labels: {
    kubernetes.io/service-name: headless, service.kubernetes.io/headless: ""}}, addressType: IPv4, ports: [{port: 80}],
    endpoints: [{addresses: [10.244.1.1], nodeName: node-a}]}
` + demandOfWeb + `- apiVersion: coordination.k8s.io/v1
  kind: Lease
  metadata: {namespace: elsewhere, name: vicinity-demand}
  spec: {renewTime: "2026-11-27T08:00:00.000000Z"}
`

// decisiveFlags are flags that change the tables of settingsManifests, or the number of Services that DNS serves: for
// each, a command line of the daemon, and one for 'status' that makes it report differences.
var decisiveFlags = map[string]struct{ reported, against string }{
	"bind-address": {"--bind-address 192.0.2.9", "--bind-address 192.0.2.1"},
	"cluster-cidr": {"--cluster-cidr 10.244.0.0/16", "--cluster-cidr 10.245.0.0/16"},
	"config":       {"--masquerade-all", "--config nothing.conf"},
	"default-demand-source": {
		"--default-demand-source measured --default-max-load 120% --topology-namespace elsewhere", "--default-demand-source=",
	},
	"default-max-load":   {"--default-max-load 120%", "--default-max-load="},
	"detect-local-mode":  {"--detect-local-mode NodeCIDR", "--detect-local-mode ClusterCIDR"},
	"dns-bind-address":   {"--dns-bind-address 127.0.0.1:10553", "--dns-bind-address="},
	"feature-gates":      {"--feature-gates AllowServiceExternalIPs=false", "--feature-gates AllowServiceExternalIPs=true"},
	"masquerade-all":     {"--masquerade-all", "--masquerade-all=false"},
	"nodeport-addresses": {"--nodeport-addresses 192.0.2.128/25", "--nodeport-addresses primary"},
	"pod-bridge-interface": {
		"--detect-local-mode BridgeInterface --pod-bridge-interface cni0", "--pod-bridge-interface cni1",
	},
	"pod-interface-name-prefix": {
		"--detect-local-mode InterfaceNamePrefix --pod-interface-name-prefix veth", "--pod-interface-name-prefix cali",
	},
	"service-proxy-name": {"--service-proxy-name near", "--service-proxy-name="},
}

// harmlessFlags are flags that change no table, with values that differ from the default.
var harmlessFlags = map[string]string{
	"traffic-accounting": "services=7,key=topology.kubernetes.io/zone", "cluster-domain": "cluster.example",
	"dns-endpoint-pod-names": "true", "dns-ttl": "7s", "log-level": "debug", "node-topology-source": "proxies", "own-tables": "never",
	"proxy-service": "elsewhere/proxies", "unreachable-node-mode": "observe",
	"metrics-bind-address": "127.0.0.1:10549", "healthz-bind-address": "127.0.0.1:10556", "node": "node-a", "sync-period": "7s",
	"topology-namespace": "elsewhere", "log-format": "json", "oom-score-adj": "7", "kube-api-qps": "7", "bind-address-hard-fail": "true",
}

// needsServer are the flags that a daemon with manifests rejects, or that need an API server.
var needsServer = []string{"kubeconfig", "master", "manifests", "secure-metrics-bind-address", "node-condition"}

// TestStatusShowsTheDaemonsSettings: 'status' compares the kernel with the settings that the daemon reports, and finds
// no difference, although it cannot read the daemon's file. With another value of a decisive flag it reports
// differences.
func TestStatusShowsTheDaemonsSettings(t *testing.T) {
	names := map[string]bool{}
	set := pflag.NewFlagSet("run", pflag.ContinueOnError)
	new(runFlags).register(set)
	var all []string
	set.VisitAll(func(flag *pflag.Flag) {
		_, isDecisive := decisiveFlags[flag.Name]
		value, isHarmless := harmlessFlags[flag.Name]
		if !isHarmless && flag.Name != "config" { // kube-proxy's other flags
			value, isHarmless = kubeProxyFlags[flag.Name]
		}
		if flag.Name == "xds-bind-address" {
			value, isHarmless = "unix://"+filepath.Join(t.TempDir(), "xds.sock"), true
		}
		names[flag.Name] = true
		switch {
		case isDecisive || slices.Contains(stepFlags, flag.Name) || slices.Contains(needsServer, flag.Name):
		case !isHarmless:
			t.Errorf("--%s is neither decisive nor harmless: give it a value", flag.Name)
		case value != flag.DefValue && value != "":
			all = append(all, "--"+flag.Name+"="+value)
		}
	})
	for _, name := range slices.Concat(slices.Collect(maps.Keys(decisiveFlags)), slices.Collect(maps.Keys(harmlessFlags))) {
		if !names[name] {
			t.Errorf("there is no flag --%s", name)
		}
	}
	for name, test := range decisiveFlags {
		t.Run(name, func(t *testing.T) { expectReported(t, test.reported, test.against) })
	}
	t.Run("all others", func(t *testing.T) { expectReported(t, strings.Join(all, " "), "") })
}

// TestDecidingCommandsHaveTheDecisiveFlags: explain, render and forecast have the daemon's flags that change decisions.
func TestDecidingCommandsHaveTheDecisiveFlags(t *testing.T) {
	flagsOf := func(command *cobra.Command) func(string) *pflag.Flag { return command.Flags().Lookup }
	explain, render, forecast := flagsOf(newExplain(&explainFlags{})), flagsOf(newRender()), flagsOf(newForecast())
	for _, name := range append(slices.Collect(maps.Keys(decisiveFlags)), "topology-namespace") {
		if name != "dns-bind-address" && (explain(name) == nil || render(name) == nil) { // both behave as if DNS were served
			t.Errorf("explain or render lacks --%s", name)
		}
	}
	for _, name := range []string{"default-demand-source", "default-max-load", "service-proxy-name", "topology-namespace"} {
		if forecast(name) == nil { // it covers ClusterIPs, from the point of view of all nodes
			t.Errorf("forecast lacks --%s", name)
		}
	}
}

// expectReported starts a daemon with the flags of a command line in a configuration file, and removes the file.
// 'status' and 'flows' must still work, and 'status' with additional flags must report differences.
func expectReported(t *testing.T, given, differing string) {
	t.Helper()
	namespace, folder := netns.New(t), t.TempDir()
	namespace.Exec("ip", "addr", "add", "192.0.2.1/32", "dev", "lo")
	namespace.Exec("ip", "addr", "add", "192.0.2.9/32", "dev", "lo")
	file := filepath.Join(folder, "config.conf")
	const at = "--metrics-bind-address=127.0.0.1:10549"
	line := append(splitArgs(at+" --own-tables never --manifests "+writeManifests(t, settingsManifests)), splitArgs(given)...)
	if got := proxyCommand(t, append([]string{"run", "--node", "node-a", "--write-config-to", file}, line...)...); got.status != 0 {
		t.Fatalf("%+v", got)
	}
	daemon := startDaemon(t, namespace, "--config", file)
	defer func() { daemon.stop(t) }()
	mustSucceed(t, os.Rename(file, filepath.Join(folder, "of-the-pod.conf")))

	node, exit := nodeStatusIn(t, namespace, at)
	if exit != 0 || !node.InSync || node.Proxy == nil || node.Proxy.Services != node.Kernel.Services ||
		node.Proxy.DNSServices != node.Kernel.DNSServices {
		t.Errorf("with %s: exit status %d, %+v, %+v", given, exit, node.Proxy, node.Kernel)
	}
	if got := proxyIn(t, namespace, "flows", at); got.status != 0 || got.stderr != "" {
		t.Errorf("with %s: flows: %+v", given, got)
	}
	expectExplained(t, namespace, at, line)
	if differing == "" {
		return
	}
	if strings.HasPrefix(differing, "--config ") {
		other := filepath.Join(folder, "other.conf")
		mustSucceed(t, os.WriteFile(other, []byte("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"), 0o600))
		differing = fmt.Sprintf("--config %s --node node-a --manifests %s", other, node.Proxy.Manifests)
	}
	node, _ = nodeStatusIn(t, namespace, append(splitArgs(at), splitArgs(differing)...)...)
	if node.Kernel.InSync && node.Proxy.Services == node.Kernel.Services && node.Proxy.DNSServices == node.Kernel.DNSServices {
		t.Errorf("with %s: %s makes no difference", given, differing)
	}
}

// expectExplained expects that 'explain' in the namespace of a daemon prints the same as elsewhere with the daemon's
// flags.
func expectExplained(t *testing.T, namespace *netns.Namespace, at string, line []string) {
	t.Helper()
	set := pflag.NewFlagSet("explain", pflag.ContinueOnError)
	new(explainFlags).register(set)
	sameFlags := []string{"explain", "--node", "node-a"}
	for i, word := range line {
		name, _, hasValue := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		if !strings.HasPrefix(word, "--") || set.Lookup(name) == nil {
			continue
		}
		if sameFlags = append(sameFlags, word); !hasValue && i+1 < len(line) && !strings.HasPrefix(line[i+1], "--") {
			sameFlags = append(sameFlags, line[i+1])
		}
	}
	want, got := proxyCommand(t, sameFlags...), proxyIn(t, namespace, "explain", at)
	if want.stdout == "" || got != want {
		t.Errorf("explain next to the daemon: %+v; %s elsewhere: %+v", got, sameFlags, want)
	}
}

// TestExplainIgnoresAProxyOfAnotherCluster: other manifests have their own settings.
func TestExplainIgnoresAProxyOfAnotherCluster(t *testing.T) {
	namespace, folder, other := netns.New(t), writeManifests(t, settingsManifests), writeManifests(t, settingsManifests)
	const at = "--metrics-bind-address=127.0.0.1:10549"
	daemon := startDaemon(t, namespace, at, "--own-tables", "never", "--default-max-load", "120%", "--manifests", folder)
	defer func() { daemon.stop(t) }()
	for _, test := range []struct {
		args    []string
		bounded bool
	}{
		{nil, true},
		{[]string{"--manifests", folder}, true},
		{[]string{"--node", "node-b"}, true},
		{[]string{"--manifests", other, "--node", "node-a"}, false},
		{[]string{"--default-max-load="}, false},
	} {
		got := proxyIn(t, namespace, append([]string{"explain", at, "shop/web"}, test.args...)...)
		if isBounded := strings.Contains(got.stdout, "120 %"); got.status != 0 || isBounded != test.bounded {
			t.Errorf("explain %s: bounded %v, want %v: %+v", test.args, isBounded, test.bounded, got)
		}
	}
}

// TestCredentialsOfThePodAreNamed: if the proxy's kubeconfig exists only in its pod, commands on the node fail with the
// remedy.
func TestCredentialsOfThePodAreNamed(t *testing.T) {
	namespace, kubeconfig, ownKubeconfig := netns.New(t), newKubeconfig(t), newKubeconfig(t)
	ownKubeconfig.write(t, "..other", kubeconfigOf("6444"))
	const at = "--metrics-bind-address=127.0.0.1:10549"
	log, _ := startWithUnreachableServerIn(t, namespace, at, "--own-tables", "never", "--kubeconfig", kubeconfig.path())
	wait.Until(t, "the proxy has tried to reach the API server", func() bool { return strings.Contains(log(), "watch interrupted") })
	mustSucceed(t, os.Remove(kubeconfig.path()))
	for _, command := range []string{"status", "flows", "explain"} {
		got := proxyIn(t, namespace, command, at)
		want := fmt.Sprintf("the proxy on this node uses %q, a file in its pod, which is not available here: run this command in the pod",
			kubeconfig.path())
		if got.status != 2 || !strings.Contains(got.stderr, want) || !strings.Contains(got.stderr, "or give --kubeconfig FILE") {
			t.Errorf("%s: %+v", command, got)
		}
		got = proxyIn(t, namespace, command, at, "--kubeconfig", ownKubeconfig.path())
		if got.status != 1 || !strings.Contains(got.stderr, "127.0.0.1:6444: connect: connection refused") {
			t.Errorf("%s with a kubeconfig: %+v", command, got)
		}
	}
}

// TestDefaultAddressesAreThoseOfTheManifests covers the proxy in place of kube-proxy and next to it, in both families.
func TestDefaultAddressesAreThoseOfTheManifests(t *testing.T) {
	for _, address := range []string{"127.0.0.1:10249", "0.0.0.0:10249", "[::1]:10249", "127.0.0.1:10349", "127.0.0.1:10549"} {
		namespace := netns.New(t)
		daemon := startDaemon(t, namespace, "--metrics-bind-address", address, "--own-tables", "never", "--manifests",
			writeManifests(t, settingsManifests))
		got := statusIn(t, namespace)
		if isFound := got.status == 0; isFound != !strings.HasSuffix(address, ":10549") {
			t.Errorf("%s: %+v", address, got)
		}
		const message = "no Vicinity proxy answers at 127.0.0.1:10249: "
		isReported := strings.Contains(got.stderr, message) && strings.Contains(got.stderr, "--metrics-bind-address")
		if got.status != 0 && (got.status != 1 || !isReported) {
			t.Errorf("%s: %+v", address, got)
		}
		daemon.stop(t)
	}
}
