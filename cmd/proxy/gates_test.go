//go:build linux

package main

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// externalIPManifests has a Service with two external IPs, which any user who may write Services can set.
var externalIPManifests = strings.Replace(dnsManifests, "    clusterIP: 10.96.0.53\n",
	"    externalIPs: [203.0.113.10, 203.0.113.11]\n    clusterIP: 10.96.0.53\n", 1)

const (
	externalIP = "203.0.113.10"
	gateOff    = "featureGates: {AllowServiceExternalIPs: false}"
	notServed  = `is not served: the feature gate AllowServiceExternalIPs of the proxy is off`
)

// TestExternalIPsAreNotServedWithTheGateOff: the gate can be set in the file and by a flag, and every command that
// decides which addresses are served obeys it.
func TestExternalIPsAreNotServedWithTheGateOff(t *testing.T) {
	folder := writeManifests(t, externalIPManifests)
	off, on := configFile(t, gateOff), configFile(t, "featureGates: {AllowServiceExternalIPs: true}")
	for name, test := range map[string]struct {
		args   string
		served bool
	}{
		"by default":                             {"", true},
		"on":                                     {"--feature-gates AllowServiceExternalIPs=true", true},
		"off by a flag":                          {"--feature-gates AllowServiceExternalIPs=false", false},
		"off by the second of two flags":         {"--feature-gates WinDSR=true --feature-gates AllowServiceExternalIPs=false", false},
		"off by the file":                        {"--config " + off, false},
		"off by the file, with a flag":           {"--config " + off + " --feature-gates WinDSR=true,AllBeta=true", false},
		"off by the file, on by a flag":          {"--config " + off + " --feature-gates AllowServiceExternalIPs=true", true},
		"on by the file, off by a flag":          {"--config " + on + " --feature-gates AllowServiceExternalIPs=false", false},
		"other gates of the file change nothing": {"--config " + configFile(t, "featureGates: {AllBeta: false, WinDSR: true}"), true},
		"a file without gates, off by a flag":    {"--config " + configFile(t) + " --feature-gates AllowServiceExternalIPs=false", false},
	} {
		t.Run(name, func(t *testing.T) {
			args := splitArgs("--manifests " + folder + " --node node-a " + test.args)
			rendered := proxyCommand(t, append(splitArgs("render"), args...)...)
			if served := strings.Contains(rendered.stdout, externalIP); rendered.status != 0 || served != test.served {
				t.Errorf("render: served %v, want %v: %+v", served, test.served, rendered)
			}
			explained := proxyCommand(t, append(splitArgs("explain shop/dns"), args...)...)
			reason := `Ignored in the Service: spec.externalIPs[0]: Forbidden: "` + externalIP + `" ` + notServed
			hasReason := strings.Contains(strings.Join(strings.Fields(explained.stdout), " "), reason)
			if explained.status != 0 || hasReason == test.served {
				t.Errorf("explain has the reason why external IPs are not served: %v: %+v", hasReason, explained)
			}
		})
	}
}

// TestTheGateIsOffAfterARestart: external IPs that the daemon served before are removed, including open UDP flows.
func TestTheGateIsOffAfterARestart(t *testing.T) {
	namespace := netns.New(t)
	addLink(t, namespace, "10.244.1.5/32", "10.244.1.6/32")
	for _, addr := range []string{"10.244.1.5:5353", "10.244.1.6:5353"} {
		startUDPEcho(t, namespace, addr)
	}
	folder := writeManifests(t, externalIPManifests)
	const externalDNS = externalIP + ":53"

	d := startDaemon(t, namespace, "--manifests", folder)
	if !d.responds(t, externalDNS) || d.flowsFrom(t, externalIP) == 0 {
		t.Fatal("the external IP is not served by default")
	}
	if result := d.stop(t); result.status != 0 || strings.Contains(result.stderr, notServed) {
		t.Fatalf("%+v", result)
	}
	d = startDaemon(t, namespace, "--manifests", folder, "--config", configFile(t, gateOff))
	if d.responds(t, externalDNS) || !d.responds(t, dnsService) || strings.Contains(listRules(namespace), externalIP) {
		t.Error("the external IP is served, or the ClusterIP is not")
	}
	wait.Until(t, "the flows to the external IP have ended", func() bool { return d.flowsFrom(t, externalIP) == 0 })
	result := d.stop(t)
	if result.status != 0 || strings.Count(result.stderr, notServed) != 2 || strings.Contains(result.stderr, "has no effect here") {
		t.Errorf("the log lacks a line for each external IP, or has one about a setting without effect: %+v", result)
	}
}

// flowsFrom counts the UDP flows that were sent to an address and translated to an endpoint.
func (d *daemonUnderTest) flowsFrom(t *testing.T, origDst string) int {
	t.Helper()
	return d.countFlows(t, unix.IPPROTO_UDP, func(flow *netlink.ConntrackFlow) bool {
		return flow.Forward.DstIP.String() == origDst && flow.Reverse.SrcIP.String() != origDst
	})
}

// TestGatesDisablePages: 'status' works without /flagz.
func TestGatesDisablePages(t *testing.T) {
	namespace, folder := netns.New(t), goodManifests(t)
	const at = "127.0.0.1:10549"
	args := []string{"--manifests", folder, "--own-tables", "never", "--metrics-bind-address", at}
	d := startDaemon(t, namespace, append(args, "--feature-gates", "AllBeta=false,ComponentStatusz=true")...)
	got := map[string]int{}
	for _, path := range []string{"/flagz", "/statusz", "/configz"} {
		got[path], _ = d.get(t, at, path)
	}
	want := map[string]int{"/flagz": http.StatusNotFound, "/statusz": http.StatusOK, "/configz": http.StatusOK}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status codes (-want +got):\n%s", diff)
	}
	if _, page := d.get(t, at, "/statusz"); strings.Contains(page, "/flagz") {
		t.Errorf("/statusz lists a disabled page:\n%s", page)
	}
	node, exit := nodeStatusIn(t, namespace, "--metrics-bind-address", at)
	if exit != 0 || !node.InSync || node.Proxy == nil {
		t.Errorf("without /flagz: exit status %d, %+v", exit, node)
	}
	if result := d.stop(t); result.status != 0 {
		t.Errorf("%+v", result)
	}
}

// TestTheBindAddressIsThePrimaryOne: node ports are served on --bind-address instead of the Node's address of the same
// family.
func TestTheBindAddressIsThePrimaryOne(t *testing.T) {
	folder := writeManifests(t, dnsManifests+"  status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}\n")
	for name, test := range map[string]struct{ args, want string }{
		"by default the Node's address":        {"", "192.0.2.1"},
		"by a flag":                            {"--bind-address 192.0.2.2", "192.0.2.2"},
		"by the file":                          {"--config " + configFile(t, "bindAddress: 192.0.2.3"), "192.0.2.3"},
		"a flag overrides the file":            {"--bind-address 192.0.2.2 --config " + configFile(t, "bindAddress: 192.0.2.3"), "192.0.2.2"},
		"an unspecified address has no effect": {"--bind-address 0.0.0.0", "192.0.2.1"},
		"a loopback address has no effect":     {"--bind-address 127.0.0.1", "192.0.2.1"},
		"another family has no effect":         {"--bind-address 2001:db8::1", "192.0.2.1"},
	} {
		t.Run(name, func(t *testing.T) {
			got := proxyCommand(t, splitArgs("render --manifests "+folder+" --node node-a "+test.args)...)
			found := map[string]bool{}
			for _, addr := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"} {
				if strings.Contains(got.stdout, addr) {
					found[addr] = true
				}
			}
			if served := slices.Collect(maps.Keys(found)); got.status != 0 || !slices.Equal(served, []string{test.want}) {
				t.Errorf("node ports on %v, want %s: %s", served, test.want, got.stderr)
			}
		})
	}
}

// TestDisabledServerIsRejected: with --healthz-port=0 kube-proxy has no health server.
func TestDisabledServerIsRejected(t *testing.T) {
	for _, flag := range []string{"healthz-port", "metrics-port"} {
		_, err := parseRunFlags(t, "--manifests x --"+flag+"=0")
		expectError(t, err, "--"+flag+" 0: this server cannot be disabled; --"+strings.TrimSuffix(flag, "port")+"bind-address 127.0.0.1 keeps")
		_, err = parseRunFlags(t, "--manifests x --"+flag+"=10256")
		expectError(t, err, "")
	}
}

// TestUnknownGateIsRejected covers the file and the command line. The gate may be intended to disable something.
func TestUnknownGateIsRejected(t *testing.T) {
	const reason = `"AllowServiceExternalIP" is not a feature gate of Kubernetes 1.30 to 1.37; did you mean AllowServiceExternalIPs?`
	path := filepath.Join(t.TempDir(), "x")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	file := configFile(t, "featureGates: {AllowServiceExternalIP: false}")
	for args, want := range map[string]string{
		"--feature-gates AllowServiceExternalIP=false":  "proxy: --feature-gates: " + reason,
		"--feature-gates AllowServiceExternalIPs":       "malformed pair, expect string=bool",
		"--feature-gates AllowServiceExternalIPs=never": "invalid value of AllowServiceExternalIPs: never",
		"--config " + file:                              "proxy: read configuration " + file + ": featureGates: " + reason,
	} {
		for _, command := range []string{"run", "render", "explain"} {
			if got := proxyCommand(t, splitArgs(command+" --manifests "+path+" "+args)...); got.status == 0 || !strings.Contains(got.stderr, want) {
				t.Errorf("%s %s: %+v", command, args, got)
			}
		}
	}
}
