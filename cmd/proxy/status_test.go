//go:build linux

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/drift"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// statusIn runs `proxy status` in a namespace.
func statusIn(t *testing.T, namespace *netns.Namespace, args ...string) outcome {
	t.Helper()
	return proxyIn(t, namespace, append([]string{"status"}, args...)...)
}

func nodeStatusIn(t *testing.T, namespace *netns.Namespace, args ...string) (drift.Node, int) {
	t.Helper()
	got := statusIn(t, namespace, append(args, "-o", "json")...)
	var node drift.Node
	if err := json.Unmarshal([]byte(got.stdout), &node); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	return node, got.status
}

func TestStatusComparesTheKernelWithWhatItShouldHold(t *testing.T) {
	namespace, folder := netns.New(t), goodManifests(t)
	args := []string{
		"--manifests", folder, "--own-tables", "never", "--cluster-cidr", "10.244.0.0/16,fd00:10:244::/56",
		"--nodeport-addresses", "127.0.0.0/8", "--metrics-bind-address", "127.0.0.1:10549",
	}
	daemon := startDaemon(t, namespace, args...)
	const at = "--metrics-bind-address=127.0.0.1:10549"

	node, exit := nodeStatusIn(t, namespace, at)
	if exit != 0 || !node.InSync || !node.Kernel.InSync || node.Kernel.Elements == 0 || node.Proxy == nil ||
		node.Proxy.Node != "node-a" || node.Proxy.Services != 1 || node.Proxy.InSyncSince == nil || node.Proxy.Newest == nil {
		t.Errorf("exit status %d, %+v, %+v", exit, node, node.Proxy)
	}
	text := statusIn(t, namespace, at).stdout
	for _, want := range []string{
		"node node-a", "in sync", "newest change", "not applied", "not used: the manifests are in " + folder,
		"their labels come from Nodes in the manifests", "has the desired state",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	// The proxy repairs changes of other processes. It has done so by the second check.
	namespace.NFT("flush", "map", "ip", "vicinity", "services")
	if node, exit := nodeStatusIn(t, namespace, at); exit != 0 || !node.Kernel.InSync {
		t.Errorf("after a repair: exit status %d, %+v", exit, node.Kernel)
	}

	if result := daemon.stop(t); result.status != 0 && result.status != -1 {
		t.Fatalf("%+v", result)
	}
	got := statusIn(t, namespace, at)
	if got.status != 1 || !strings.Contains(got.stderr, "no Vicinity proxy answers at 127.0.0.1:10549: ") {
		t.Errorf("without a proxy: %+v", got)
	}
	alone := append([]string{"--node", "node-a"}, args...)
	if node, exit := nodeStatusIn(t, namespace, alone...); exit != 1 || node.InSync || node.Proxy != nil || !node.Kernel.InSync {
		t.Errorf("without a proxy, with its flags: exit status %d, %+v", exit, node)
	}
	namespace.NFT("flush", "map", "ip", "vicinity", "endpoints")
	namespace.NFT("add", "chain", "ip6", "vicinity", "stranger")
	node, exit = nodeStatusIn(t, namespace, alone...)
	if exit != 1 || node.Kernel.InSync || len(node.Kernel.Differences) < 2 {
		t.Errorf("after changes by another program: exit status %d, %+v", exit, node.Kernel)
	}
	text = statusIn(t, namespace, alone...).stdout
	for _, want := range []string{
		"no response from", "differs from the desired state", "ip vicinity map endpoints:", "ip6 vicinity chain stranger is stray",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
}

// TestStatusCountsTheSameOnBothSides: the proxy and the kernel check agree about a Service in the kernel, one that DNS
// serves, one that DNS does not serve because no endpoint is ready, and one without topology keys.
func TestStatusCountsTheSameOnBothSides(t *testing.T) {
	const headless = `
- {apiVersion: v1, kind: Service, metadata: {name: NAME, namespace: shop, annotations: {vicinity.dev/topology-keys: "KEYS"}},
    spec: {clusterIP: None, ports: [{port: 80}]}}
- {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: NAME-1, namespace: shop, labels:
    {kubernetes.io/service-name: NAME, service.kubernetes.io/headless: ""}}, addressType: IPv4, ports: [{port: 80}],
    endpoints: [{addresses: [10.244.0.1], nodeName: node-a, conditions: {ready: READY}}]}
`
	state := nodePortManifests
	for name, words := range map[string][2]string{"db": {"*", "true"}, "starting": {"*", "false"}, "plain": {"", "true"}} {
		state += strings.NewReplacer("NAME", name, "KEYS", words[0], "READY", words[1]).Replace(headless)
	}
	namespace, folder := netns.New(t), writeManifests(t, state)
	const at = "--metrics-bind-address=127.0.0.1:10549"
	daemon := startDaemon(t, namespace, "--manifests", folder, "--own-tables", "never", "--dns-bind-address", "127.0.0.1:10553", at)
	defer func() { daemon.stop(t) }()
	node, exit := nodeStatusIn(t, namespace, at)
	if exit != 0 || node.Proxy == nil || node.Proxy.Services != 1 || node.Kernel.Services != 1 ||
		node.Proxy.DNSServices != 1 || node.Kernel.DNSServices != 1 || node.Proxy.Newest.Services != 3 {
		t.Errorf("exit status %d, %+v, %+v", exit, node.Proxy, node.Kernel)
	}
	const want = "\nServices        1 in the kernel (1 expected); 1 served by DNS (1 expected)\n"
	if text := statusIn(t, namespace, at).stdout; !strings.Contains(text, want) {
		t.Errorf("the text lacks %q:\n%s", want, text)
	}
}

// TestStatusOfNothingIsNotSuccess: a folder that is empty by mistake would match an empty kernel.
func TestStatusOfNothingIsNotSuccess(t *testing.T) {
	const at = "--metrics-bind-address=127.0.0.1:10549"
	beta := strings.Replace(nodePortManifests, "discovery.k8s.io/v1", "discovery.k8s.io/v1beta1", 1)
	for first, want := range map[string]string{nodePortManifests: "there is no Service in ", beta: "there is no EndpointSlice in "} {
		namespace, folder := netns.New(t), writeManifests(t, first)
		daemon := startDaemon(t, namespace, "--manifests", folder, "--own-tables", "never", at)
		if first == nodePortManifests {
			mustSucceed(t, os.Remove(filepath.Join(folder, "state.yaml")))
		}
		wait.Until(t, want, func() bool {
			node, exit := nodeStatusIn(t, namespace, at)
			return exit == 2 && node.InSync && strings.HasPrefix(node.Missing, want)
		})
		if text := statusIn(t, namespace, at).stdout; !strings.Contains(text, "\nmissing         "+want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
		isLogged := strings.Contains(daemon.stop(t).stderr, "EndpointSlices are missing")
		if isLogged != (first == beta) {
			t.Errorf("%s: the daemon logs missing EndpointSlices: %v", want, isLogged)
		}
	}
}
