//go:build linux

package main

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// dnsManifests has a Service with a node port and a health check. Both of its endpoints are on this node.
const dnsManifests = `apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {name: dns, namespace: shop}
  spec:
    type: LoadBalancer
    externalTrafficPolicy: Local
    healthCheckNodePort: 32000
    clusterIP: 10.96.0.53
    clusterIPs: [10.96.0.53]
    ipFamilies: [IPv4]
    ports:
    - {name: dns, port: 53, protocol: UDP, nodePort: 30053}
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: dns-1, namespace: shop, labels: {kubernetes.io/service-name: dns}}
  addressType: IPv4
  ports:
  - {name: dns, port: 5353, protocol: UDP}
  endpoints:
  - {addresses: [10.244.1.5], nodeName: node-a, conditions: {ready: true}}
  - {addresses: [10.244.1.6], nodeName: node-a, conditions: {ready: true}}
- apiVersion: v1
  kind: Node
  metadata: {name: node-a}
`

const (
	firstEndpoint = "  - {addresses: [10.244.1.5], nodeName: node-a, conditions: {ready: true}}\n"
	dnsService    = "10.96.0.53:53"
)

// TestTheDaemonFollowsAddressesAndEndpoints: the daemon connects the packages that health checks, node ports and the
// deletion of flows need.
func TestTheDaemonFollowsAddressesAndEndpoints(t *testing.T) {
	namespace := netns.New(t)
	addLink(t, namespace, "10.244.1.5/32", "10.244.1.6/32")
	for _, addr := range []string{"10.244.1.5:5353", "10.244.1.6:5353"} {
		startUDPEcho(t, namespace, addr)
	}
	folder := writeManifests(t, dnsManifests)
	d := startDaemon(t, namespace, "--manifests", folder, "--nodeport-addresses", "192.0.2.0/24")

	t.Run("an address that appears serves health checks and node ports, until it vanishes", func(t *testing.T) {
		d.expectServedWhileAssigned(t, "192.0.2.1")
		d.expectServedWhileAssigned(t, "192.0.2.2") // a second time: the daemon still receives the kernel's events
	})
	t.Run("a UDP flow ends with its endpoint, and is counted", func(t *testing.T) {
		d.removeEndpoint(t, folder)
	})
	if result := d.stop(t); result.status != 0 {
		t.Errorf("the daemon exited with %+v, want 0", result)
	}
}

// expectServedWhileAssigned adds an address to the node and removes it. In between it must be served.
func (d *daemonUnderTest) expectServedWhileAssigned(t *testing.T, addr string) {
	t.Helper()
	check := net.JoinHostPort(addr, "32000")
	changeAddress(t, d.namespace, netlink.AddrAdd, addr+"/24")
	wait.Until(t, "health checks are answered on "+addr, func() bool { return d.listens(check) })
	if status, body := d.get(t, check, "/"); status != http.StatusOK || !strings.Contains(body, `"localEndpoints": 2`) {
		t.Errorf("the health check on %s returns %d, %s; want 200 and two local endpoints", addr, status, body)
	}
	wait.Until(t, "the node port is served on "+addr, func() bool { return d.responds(t, net.JoinHostPort(addr, "30053")) })

	changeAddress(t, d.namespace, netlink.AddrDel, addr+"/24")
	wait.Until(t, addr+" no longer serves node ports", func() bool { return !strings.Contains(listRules(d.namespace), addr) })
}

// removeEndpoint removes the endpoint of a flow from the folder.
func (d *daemonUnderTest) removeEndpoint(t *testing.T, folder string) {
	t.Helper()
	wait.Until(t, "a flow goes to the first endpoint", func() bool {
		return d.responds(t, dnsService) && d.flowsTo(t, "10.244.1.5") > 0
	})
	text := strings.Replace(dnsManifests, firstEndpoint, "", 1)
	if err := os.WriteFile(filepath.Join(folder, "state.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the flow is gone", func() bool { return d.flowsTo(t, "10.244.1.5") == 0 })
	wait.Until(t, "the flow is counted", func() bool {
		_, metrics := d.get(t, "127.0.0.1:10249", "/metrics")
		for _, counter := range []string{
			`kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family="IPv4"} `,
			`kubeproxy_conntrack_reconciler_sync_duration_seconds_count{ip_family="IPv4"} `,
		} {
			_, count, found := strings.Cut(metrics, counter)
			if !found || strings.HasPrefix(count, "0\n") {
				return false
			}
		}
		return true
	})
	if !d.responds(t, dnsService) {
		t.Error("the remaining endpoint does not respond")
	}
}

// flowsTo returns how many UDP flows to the Service conntrack translates to an endpoint.
func (d *daemonUnderTest) flowsTo(t *testing.T, endpoint string) int {
	t.Helper()
	return d.countFlows(t, unix.IPPROTO_UDP, func(flow *netlink.ConntrackFlow) bool {
		to := net.JoinHostPort(flow.Forward.DstIP.String(), strconv.Itoa(int(flow.Forward.DstPort)))
		return to == dnsService && flow.Reverse.SrcIP.String() == endpoint
	})
}

// countFlows counts the node's IPv4 flows of a protocol for which matches returns true.
func (d *daemonUnderTest) countFlows(t *testing.T, protocol uint8, matches func(*netlink.ConntrackFlow) bool) int {
	t.Helper()
	var flows []*netlink.ConntrackFlow
	var err error
	d.namespace.Do(func() { flows, err = netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET) })
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, flow := range flows {
		if flow.Forward.Protocol == protocol && matches(flow) {
			count++
		}
	}
	return count
}

// listens reports whether a process listens at an address.
func (d *daemonUnderTest) listens(address string) bool {
	var err error
	d.namespace.Do(func() {
		var connection net.Conn
		if connection, err = net.DialTimeout("tcp", address, time.Second); err == nil {
			_ = connection.Close()
		}
	})
	return err == nil
}

// responds reports whether a datagram from a new socket is returned.
func (d *daemonUnderTest) responds(t *testing.T, address string) bool {
	t.Helper()
	var connection net.Conn
	var err error
	d.namespace.Do(func() { connection, err = net.Dial("udp", address) })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	sent, got := []byte("who is there?"), make([]byte, 64)
	if _, err := connection.Write(sent); err != nil {
		return false
	}
	if err := connection.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	n, err := connection.Read(got)
	return err == nil && bytes.Equal(got[:n], sent)
}

// startUDPEcho starts a UDP server that sends each datagram back to its sender, until the test ends.
func startUDPEcho(t *testing.T, namespace *netns.Namespace, address string) {
	t.Helper()
	var socket net.PacketConn
	var err error
	namespace.Do(func() { socket, err = net.ListenPacket("udp", address) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	go func() {
		datagram := make([]byte, 64)
		for {
			n, from, err := socket.ReadFrom(datagram)
			if err != nil {
				return
			}
			_, _ = socket.WriteTo(datagram[:n], from)
		}
	}()
}

// addLink adds the link eth0 with some addresses and the default route to a namespace.
func addLink(t *testing.T, namespace *netns.Namespace, addresses ...string) {
	t.Helper()
	var err error
	namespace.Do(func() {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}}
		if err = netlink.LinkAdd(bridge); err != nil {
			return
		}
		if err = netlink.LinkSetUp(bridge); err != nil {
			return
		}
		everything := &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}
		err = netlink.RouteAdd(&netlink.Route{LinkIndex: bridge.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: everything})
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		changeAddress(t, namespace, netlink.AddrAdd, address)
	}
}

// changeAddress adds an address to eth0, or removes it.
func changeAddress(t *testing.T, namespace *netns.Namespace, change func(netlink.Link, *netlink.Addr) error, address string) {
	t.Helper()
	addr, err := netlink.ParseAddr(address)
	if err != nil {
		t.Fatal(err)
	}
	namespace.Do(func() {
		var link netlink.Link
		if link, err = netlink.LinkByName("eth0"); err == nil {
			err = change(link, addr)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
