//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/config"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// kubeProxyIPVS is the nf_tables state of kube-proxy's IPVS mode, as iptables-nft writes it.
const kubeProxyIPVS = `
table ip nat {
	chain KUBE-SERVICES { }
	chain PREROUTING { type nat hook prerouting priority dstnat; jump KUBE-SERVICES; }
}
table ip filter {
	chain KUBE-FORWARD { ct state invalid drop; }
	chain FORWARD { type filter hook forward priority filter; jump KUBE-FORWARD; }
}
`

// addInterface creates an interface with addresses in the namespace of this thread. Its type does not matter.
func addInterface(t *testing.T, name string, addrs ...string) {
	t.Helper()
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}
	mustSucceed(t, netlink.LinkAdd(bridge))
	for _, text := range addrs {
		addr, err := netlink.ParseAddr(text)
		mustSucceed(t, err)
		mustSucceed(t, netlink.AddrAdd(bridge, addr))
	}
	mustSucceed(t, netlink.LinkSetUp(bridge))
}

const nodeText = "apiVersion: v1\nkind: Node\nmetadata: {name: node-a}\nstatus: {addresses: [{type: InternalIP, address: 192.0.2.1}]}\n"

// nodeFolder returns a folder with a Node and a Service.
func nodeFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	mustSucceed(t, os.WriteFile(filepath.Join(dir, "node.yaml"), []byte(nodeText), 0o600))
	text := strings.Replace(nodePortManifests[:strings.Index(nodePortManifests, "- apiVersion: v1\n  kind: Node")], "NodePort", "ClusterIP", 1)
	mustSucceed(t, os.WriteFile(filepath.Join(dir, "service.yaml"), []byte(strings.Replace(text, ", nodePort: 30080", "", 1)), 0o600))
	return dir
}

// newIPVSNode returns a namespace in the state in which kube-proxy's IPVS mode leaves a node.
func newIPVSNode(t *testing.T) *netns.Namespace {
	namespace := netns.New(t)
	namespace.Load(kubeProxyIPVS)
	namespace.Do(func() {
		addInterface(t, "eth0", "192.0.2.1/24")
		addInterface(t, "eth1", "198.51.100.1/24")
		addInterface(t, "kube-ipvs0", "10.96.0.1/32", "10.96.0.10/32")
	})
	for name, value := range map[string]string{
		"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1", "net/ipv4/conf/all/arp_ignore": "1",
	} {
		namespace.Exec("sh", "-c", "echo "+value+" > /proc/sys/"+name)
	}
	return namespace
}

// onOneLine returns a text on one line, with single spaces.
func onOneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// snapshotOf returns all state that a check must not change.
func snapshotOf(namespace *netns.Namespace) string {
	return namespace.NFT("list", "ruleset") + namespace.Exec("sh", "-c",
		"cat /proc/net/tcp /proc/net/tcp6; cd /proc/sys/net; grep -r . netfilter/nf_conntrack_udp* netfilter/nf_conntrack_tcp* ipv4/conf/all")
}

func TestACheckReportsWhatChangesAndChangesNothing(t *testing.T) {
	namespace := newIPVSNode(t)
	namespace.Do(func() { proxyCommand(t, "status") }) // activates conntrack, so that its sysctls exist
	file := configFile(t, "mode: ipvs", "ipvs:", "  scheduler: sh", "  masqueradeAll: true", "clusterCIDR: 10.244.0.0/16",
		"conntrack: {maxPerCore: 0, udpTimeout: 77s, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}", "oomScoreAdj: 0")
	args := []string{"run", "--check", "--config", file, "--node", "node-a", "--manifests", nodeFolder(t)}
	before := snapshotOf(namespace)
	var text, machine outcome
	namespace.Do(func() {
		text = proxyCommand(t, args...)
		machine = proxyCommand(t, append(args, "-o", "json")...)
	})
	if diff := cmp.Diff(before, snapshotOf(namespace)); diff != "" {
		t.Errorf("the check changed the node (-before +after):\n%s", diff)
	}
	if text.status != 0 || text.stderr != "" || machine.status != 0 {
		t.Fatalf("status %d and %d, %s", text.status, machine.status, text.stderr)
	}
	for _, want := range []string{
		"line 3: mode: ipvs nftables is programmed", "line 5: ipvs.scheduler: sh each connection", "sessionAffinity: ClientIP",
		"there is iptables.masqueradeAll",
		"same effect as in kube-proxy: 6.", "node ports, IPv4: 192.0.2.1, 198.51.100.1 served on 192.0.2.1 to do: let clients of 198.51.100.1",
		"leftover: the node treats Service addresses as its own", "The proxy would start with this file on this node. Nothing was changed.",
	} {
		if !strings.Contains(onOneLine(text.stdout), want) {
			t.Errorf("the text lacks %q:\n%s", want, text.stdout)
		}
	}
	var report config.Report
	mustSucceed(t, json.Unmarshal([]byte(machine.stdout), &report))
	got := map[string]string{}
	for _, result := range report.OnNode {
		got[result.Subject] = fmt.Sprintf("%s: %s", result.Outcome, result.Value)
	}
	want := map[string]string{
		"nf_tables": "same: IPv4, IPv6", "Node": "same: node-a", "kube-ipvs0": "leftover: addresses: 2",
		"kube-proxy's chains":                    "leftover: ip nat KUBE-SERVICES, ip filter KUBE-FORWARD",
		"net.ipv4.conf.all.arp_ignore":           "leftover: 1",
		"net.netfilter.nf_conntrack_udp_timeout": "differs: 30",
		"node ports, IPv4":                       "differs: 192.0.2.1, 198.51.100.1",
		"node ports, IPv6":                       "same: no address",
		"net.ipv4.conf.all.route_localnet":       "",
		"net.ipv4.ip_forward":                    "",
	}
	for subject, result := range want {
		if got[subject] != result {
			t.Errorf("%s is %q, want %q", subject, got[subject], result)
		}
	}
	if !report.Starts || report.Node != "node-a" || report.File != file || len(report.Settings) == 0 {
		t.Errorf("%+v", report)
	}
}

func TestACheckReportsRulesThatMatchFirst(t *testing.T) {
	namespace := netns.New(t)
	namespace.Load(kubeProxyRules)
	var got outcome
	namespace.Do(func() {
		got = proxyCommand(t, "run", "--check", "--config", configFile(t, "mode: nftables"), "--node", "node-a", "--manifests", nodeFolder(t))
	})
	for _, want := range []string{"kube-proxy-nftables", "ip kube-proxy",
		"leftover: kube-proxy in nftables mode also has rules on this node"} {
		if got.status != 0 || !strings.Contains(onOneLine(got.stdout), want) {
			t.Errorf("status %d; the text lacks %q:\n%s", got.status, want, got.stdout)
		}
	}
}

func TestCheckHasTheExitStatusOfTheProxy(t *testing.T) {
	t.Setenv(serviceHostEnv, "")
	file := func(lines ...string) string { return configFile(t, lines...) }
	for name, test := range map[string]struct {
		args   []string
		status int
		stdout string
		stderr string
	}{
		"the proxy would start, and the Node is unknown": {[]string{"--config", file("mode: iptables")}, 0, "give --kubeconfig FILE", ""},
		"a missing kubeconfig": {
			[]string{"--config", file("clientConnection: {kubeconfig: /nowhere}")}, 0,
			`unknown: connect to the API server: read kubeconfig "/nowhere"`, "",
		},
		"a misspelled setting": {
			[]string{"--config", file("clusterCDIR: 10.0.0.0/8")}, 2, "clusterCDIR: - refused: unknown field", "",
		},
		"no Service": {
			[]string{"--config", file(), "--manifests", writeManifests(t, nodeText)}, 2, "Node: node-a names 192.0.2.1",
			"prints Services; found: Node (1)",
		},
		"an invalid Service": {
			[]string{"--config", file(), "--manifests", writeManifests(t, strings.Replace(nodePortManifests, "10.96.0.10", "nonsense", 1))}, 2,
			"The proxy would start with this file on this node.", "warning: state.yaml: Service shop/web: spec.clusterIPs[0]: ",
		},
		"a file of other kinds": {[]string{"--config", file("---", "a: b")}, 2, `refused: line 4: apiVersion "" and kind "" are not`, ""},
		"a file that is absent": {[]string{"--config", "/nowhere"}, 1, "", "open /nowhere"},
		"no file":               {nil, 2, "", "--check needs --config FILE"},
		"a flag that is wrong":  {[]string{"--config", file(), "--own-tables", "always"}, 2, "", "--own-tables"},
		"an unknown format":     {[]string{"--config", file(), "-o", "xml"}, 2, "", "--output"},
	} {
		t.Run(name, func(t *testing.T) {
			var got outcome
			netns.New(t).Do(func() { got = proxyCommand(t, append(splitArgs("run --check --node node-a"), test.args...)...) })
			if got.status != test.status || !strings.Contains(onOneLine(got.stdout), test.stdout) || !strings.Contains(got.stderr, test.stderr) {
				t.Errorf("got %+v, want %+v", got, test)
			}
			if refused := string(config.Rejected) + ": "; strings.Contains(got.stdout, refused) != strings.Contains(test.stdout, refused) {
				t.Errorf("the text wrongly has or lacks %q", refused)
			}
		})
	}
}

func TestRunHasNoOutputWithoutCheck(t *testing.T) {
	got := proxyCommand(t, "run", "--manifests", t.TempDir(), "--node", "node-a", "-o", "json")
	if got.status != 2 || !strings.Contains(got.stderr, "--output needs --check") {
		t.Errorf("%+v", got)
	}
}
