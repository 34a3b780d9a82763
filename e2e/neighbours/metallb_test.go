package neighbours_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// balancers is an API server with the nodes and Services, and a machine on the nodes' link with a link route to
// the addresses of load balancers: the machine learns by ARP or neighbour discovery which node has an address.
type balancers struct {
	api        *site.Site
	kubeconfig string
	lan        *fabric.Namespace
}

// balancerRanges contain the addresses of load balancers.
var balancerRanges = servedPrefixes[2:]

const metallbNamespace = "metallb-system"

// newBalancers starts an API server on a separate machine.
func newBalancers(tb *testbed) *balancers {
	t := tb.t
	t.Helper()
	server, err := tb.fabric.AddHost("api", tb.nodes[0].Node)
	must.Succeed(t, err)
	lan, err := tb.fabric.AddHost("lan", tb.nodes[0].Node)
	must.Succeed(t, err)
	for _, prefix := range balancerRanges {
		_, err := lan.Run(exec.Command("ip", "route", "add", prefix.String(), "dev", "eth0"))
		must.Succeed(t, err)
	}
	b := &balancers{lan: lan.Namespace, api: site.New(t, site.Config{Namespace: server.Namespace, Flags: []string{
		"--service-cluster-ip-range=" + fabric.ClusterIPv4.String() + "," + fabric.ClusterIPv6.String(),
	}})}
	b.kubeconfig = site.Kubeconfig(t, b.api.AdminConfig())
	b.api.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metallbNamespace}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metallbNamespace, Name: "default"}})
	b.apply(t, metallbKinds())
	for _, node := range tb.nodes {
		tb.createNode(b.api, node)
		b.createSpeaker(t, node)
	}
	wait.Success(t, "a pool of addresses", func() error {
		_, err := b.api.TryKubectl(t.Context(), "apply", "-f", b.file(t, fmt.Sprintf(poolManifest, balancerRanges[0], balancerRanges[1])))
		return err
	})
	for _, a := range apps {
		b.add(tb, a)
	}
	return b
}

// metallbKinds returns the CRDs of the kinds that a speaker watches. Their content is not validated.
func metallbKinds() string {
	var text strings.Builder
	for plural, name := range map[string]string{
		"bfdprofiles": "BFDProfile", "bgpadvertisements": "BGPAdvertisement", "bgppeers": "BGPPeer", "communities": "Community",
		"configurationstates": "ConfigurationState", "ipaddresspools": "IPAddressPool", "l2advertisements": "L2Advertisement",
		"servicebgpstatuses": "ServiceBGPStatus", "servicel2statuses": "ServiceL2Status",
	} {
		fmt.Fprintf(&text, kindManifest, plural, name, strings.ToLower(name))
	}
	return text.String()
}

const (
	kindManifest = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.metallb.io}
spec:
  group: metallb.io
  scope: Namespaced
  names: {kind: %[2]s, listKind: %[2]sList, plural: %[1]s, singular: %[3]s}
  versions:
  - &any
    name: v1beta1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
  - {<<: *any, name: v1beta2, storage: false}
`
	poolManifest = `apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: all, namespace: metallb-system}
spec: {addresses: ["%s", "%s"]}
---
apiVersion: metallb.io/v1beta1
kind: L2Advertisement
metadata: {name: all, namespace: metallb-system}
spec: {ipAddressPools: [all]}
`
	statusPatch = `{"status": {"loadBalancer": {"ingress": [{"ip": "%s"}, {"ip": "%s"}]}}}`
)

func (b *balancers) file(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "objects.yaml")
	must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func (b *balancers) apply(t *testing.T, text string) {
	t.Helper()
	b.api.Kubectl(t, "apply", "-f", b.file(t, text))
}

// createSpeaker creates the pod of a speaker, by which speakers discover each other.
func (b *balancers) createSpeaker(t *testing.T, node *machine) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metallbNamespace, Name: "speaker-" + node.Name, Labels: map[string]string{"component": "speaker"},
		},
		Spec: corev1.PodSpec{NodeName: node.Name, Containers: []corev1.Container{{Name: "speaker", Image: "none"}}},
	}
	b.api.Create(t, pod)
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, HostIP: node.IPv4.String(), HostIPs: []corev1.HostIP{{IP: node.IPv4.String()}},
		PodIP: node.IPv4.String(), PodIPs: []corev1.PodIP{{IP: node.IPv4.String()}},
	}
	_, err := b.api.Admin.CoreV1().Pods(pod.Namespace).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	must.Succeed(t, err)
}

// add creates a Service at the API server as the proxies have it, with its load balancer addresses.
func (b *balancers) add(tb *testbed, a app) {
	tb.t.Helper()
	b.api.Kubectl(tb.t, "apply", "-f", filepath.Join(tb.manifests, a.name+".yaml"))
	addrs := a.balancerIPs()
	b.api.Kubectl(tb.t, "patch", "service", a.name, "--subresource=status", "--type=merge",
		"--patch", fmt.Sprintf(statusPatch, addrs[0], addrs[1]))
}

// startSpeaker starts MetalLB's speaker, and waits until it watches the API server.
func (m *machine) startSpeaker() {
	tb := m.testbed
	tb.t.Helper()
	if tb.balancers == nil {
		tb.balancers = newBalancers(tb)
	}
	const health = "127.0.0.1:17472"
	m.service = m.inDebian().start("speaker", func() error {
		code, page, err := site.Get(m.Namespace, health, "/readyz")
		if err == nil && code != 200 {
			err = errors.New(page)
		}
		return err
	}, programs.Path(binaries.MetalLB, "speaker"), "--kubeconfig="+tb.balancers.kubeconfig, "--namespace="+metallbNamespace,
		"--node-name="+m.Name, "--pod-name=speaker-"+m.Name, "--ml-bindaddr="+m.IPv4.String(), "--ml-labels=component=speaker")
}

// announced are the Services, the pods that respond for each of them, and the client that these see.
var announced = []struct {
	app     app
	answers []string
	sees    source
}{{nearApp, onlyNear, node}, {farApp, onlyFar, node}, {bothApp, both, node}, {localApp, both, client}}

// expectAnnounced waits until the machine on the link reaches all Services at the addresses that speakers announce. The
// announcing node masquerades. With externalTrafficPolicy Local it has the endpoint, which sees the client.
func (tb *testbed) expectAnnounced(when string) {
	tb.t.Helper()
	for _, one := range announced {
		for _, to := range addrPorts(servicePort, one.app.balancerIPs()...) {
			wait.Success(tb.t, fmt.Sprintf("%s: %s reaches %s", when, tb.balancers.lan.Name, to), func() error {
				reply, err := tb.balancers.lan.Request("tcp", to, briefTimeout)
				switch {
				case err != nil:
					return err
				case !slices.Contains(one.answers, reply.Pod):
					return fmt.Errorf("%s replied, want one of %v", reply.Pod, one.answers)
				case (reply.Client.Addr() == reply.Local.Addr()) != (one.sees == client):
					return fmt.Errorf("%s sees %s, want %s (%s)", reply.Pod, reply.Client.Addr(), one.sees, reply.Local.Addr())
				}
				return nil
			})
		}
	}
}

// TestMetalLB runs speakers in L2 mode.
func TestMetalLB(t *testing.T) {
	t.Parallel()
	testNeighbour(t, neighbour{
		start: (*machine).startSpeaker,
		update: func(m *machine) {
			m.testbed.balancers.api.Kubectl(m.testbed.t, "annotate", "--overwrite", "-n", metallbNamespace, "l2advertisement", "all",
				"touched="+m.Name)
		},
		restart: func(m *machine) { m.stop(); m.startSpeaker() },
		check:   func(tb *testbed) { tb.expectAnnounced("announced") },
	})
}

// TestTheNodeThatAnnouncesLosesPower checks that another node announces the addresses, and serves them.
func TestTheNodeThatAnnouncesLosesPower(t *testing.T) {
	t.Parallel()
	tb := newTestbed(t)
	tb.forEachNode((*machine).startProxy)
	tb.forEachNode((*machine).startSpeaker)
	tb.expectAnnounced("at first")
	to := addrPorts(servicePort, localApp.balancerIPs()...)
	reply, err := tb.balancers.lan.Request("tcp", to[0], requestTimeout)
	must.Succeed(t, err)
	announcer := tb.nodes[slices.IndexFunc(tb.nodes, func(m *machine) bool { return m.Name == reply.Node })]
	must.Succeed(t, announcer.PowerOff(func() error {
		return errors.Join(announcer.service.Kill(), announcer.proxy.Kill())
	}))
	for _, addr := range to {
		wait.Success(t, "another node replies at "+addr.String(), func() error {
			got, err := tb.balancers.lan.Request("tcp", addr, briefTimeout)
			if err == nil && (got.Node == announcer.Name || got.Client.Addr() != got.Local.Addr()) {
				err = fmt.Errorf("%s on %s replied, and sees %s", got.Pod, got.Node, got.Client.Addr())
			}
			return err
		})
	}
}

// TestMetalLBAndTheAnnotationsOfAService checks that announcing nodes apply spec.loadBalancerSourceRanges, and that
// with ipMode Proxy they announce addresses that the proxy does not serve.
func TestMetalLBAndTheAnnotationsOfAService(t *testing.T) {
	t.Parallel()
	tb := newTestbed(t)
	tb.forEachNode((*machine).startProxy)
	tb.forEachNode((*machine).startSpeaker)
	lan := tb.balancers.lan
	ranged, proxyMode := app{"ranged", 30, "Cluster", both}, app{"foreign", 31, "Cluster", both}
	edit := func(a app, old, replacement string) {
		t.Helper()
		tb.write(a)
		file := filepath.Join(tb.manifests, a.name+".yaml")
		text, err := os.ReadFile(file)
		must.Succeed(t, err)
		if !strings.Contains(string(text), old) {
			t.Fatalf("%s has no %q", file, old)
		}
		tb.replace(a.name+".yaml", strings.ReplaceAll(string(text), old, replacement))
	}
	allowed := fmt.Sprintf(`loadBalancerSourceRanges: ["%s/32", "%s/128"]`, lan.IPv4, lan.IPv6)
	edit(ranged, "  externalIPs:", "  "+allowed+"\n  externalIPs:")
	edit(proxyMode, "{ip: ", "{ipMode: Proxy, ip: ")
	for _, a := range []app{ranged, proxyMode} {
		tb.balancers.add(tb, a)
	}
	expectReached := func(from *fabric.Namespace, to netip.AddrPort) {
		t.Helper()
		wait.Success(t, fmt.Sprintf("%s reaches %s", from.Name, to), func() error {
			_, err := from.Request("tcp", to, briefTimeout)
			return err
		})
	}
	for _, to := range addrPorts(servicePort, ranged.balancerIPs()...) {
		expectReached(lan, to)
		tb.expectBlocked("another client of a Service with source ranges", tb.outside, to)
	}
	for _, to := range addrPorts(servicePort, proxyMode.balancerIPs()...) {
		wait.Success(t, "a node announces "+to.String(), func() error { return tb.checkAnnounced(to.Addr()) })
		tb.expectBlocked("ipMode Proxy", lan, to)
		tb.expectBlocked("ipMode Proxy", tb.client.Namespace, to)
	}
	edit(proxyMode, "{ip: ", "{ipMode: VIP, ip: ")
	for _, to := range addrPorts(servicePort, proxyMode.balancerIPs()...) {
		expectReached(lan, to)
		expectReached(tb.client.Namespace, to)
	}
}

// checkAnnounced returns an error unless the machine on the link can resolve an address.
func (tb *testbed) checkAnnounced(addr netip.Addr) error {
	_, _ = tb.balancers.lan.Request("tcp", netip.AddrPortFrom(addr, servicePort), briefTimeout)
	route, err := tb.balancers.lan.Run(exec.Command("ip", "neigh", "show", addr.String()))
	if err == nil && !strings.Contains(route, "lladdr") {
		err = fmt.Errorf("ip neigh printed %q", route)
	}
	return err
}
