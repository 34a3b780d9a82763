//go:build linux

package main

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// loopbackManifests has a dual-stack Service with a node port, and an endpoint of each family.
const loopbackManifests = `apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {name: web, namespace: shop}
  spec:
    type: NodePort
    clusterIP: 10.96.0.80
    clusterIPs: [10.96.0.80, "fd00:96::80"]
    ipFamilies: [IPv4, IPv6]
    ports: [{name: http, port: 80, protocol: TCP, nodePort: 30080}]
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: web-4, namespace: shop, labels: {kubernetes.io/service-name: web}}
  addressType: IPv4
  ports: [{name: http, port: 8080, protocol: TCP}]
  endpoints: [{addresses: [10.244.1.5], nodeName: node-a, conditions: {ready: true}}]
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata: {name: web-6, namespace: shop, labels: {kubernetes.io/service-name: web}}
  addressType: IPv6
  ports: [{name: http, port: 8080, protocol: TCP}]
  endpoints: [{addresses: ["fd00:244::5"], nodeName: node-a, conditions: {ready: true}}]
- apiVersion: v1
  kind: Node
  metadata: {name: node-a}
`

// TestNodePortsOnLoopback: node ports are served there only if the gate and --nodeport-addresses enable it.
func TestNodePortsOnLoopback(t *testing.T) {
	namespace, folder := netns.New(t), writeManifests(t, loopbackManifests)
	for _, address := range []string{"10.244.1.5/32", "fd00:244::5/128"} {
		namespace.Exec("ip", "addr", "add", address, "dev", "lo", "nodad")
	}
	startTCPEcho(t, namespace, "10.244.1.5:8080")
	startTCPEcho(t, namespace, "[fd00:244::5]:8080")
	const ipv4, ipv6, at = "127.0.0.1:30080", "[::1]:30080", "127.0.0.1:10549"
	const gate, localhost = "KubeProxyNFTablesLocalhostNodePorts=true", "primary,localhost"
	args := splitArgs("--own-tables never --metrics-bind-address " + at + " --manifests " + folder + " ")
	for title, flags := range map[string]string{
		"by default": "", "without the gate": "--nodeport-addresses " + localhost, "without the range": "--feature-gates " + gate,
		"all addresses are not loopback": "--nodeport-addresses all --feature-gates " + gate,
	} {
		d := startDaemon(t, namespace, append(args, splitArgs(flags)...)...)
		if d.listens(ipv4) || d.listens(ipv6) {
			t.Errorf("%s: node ports are served on loopback", title)
		}
		result := d.stop(t)
		warned := strings.Contains(result.stderr, "names loopback, which serves node ports only if the feature gate")
		if result.status != 0 || warned != (title == "without the gate") {
			t.Errorf("%s: warned %v: %+v", title, warned, result)
		}
	}

	var other net.Listener
	var err error
	namespace.Do(func() { other, err = net.Listen("tcp6", ipv6) })
	if err != nil {
		t.Fatal(err)
	}
	d := startDaemon(t, namespace, append(args, "--nodeport-addresses", localhost, "--feature-gates", gate)...)
	metric := func(name, labels string) string {
		_, page := d.get(t, at, "/metrics")
		_, line, _ := strings.Cut(page, "\n"+name+"{"+labels+"} ")
		value, _, _ := strings.Cut(line, "\n")
		return value
	}
	const listeners = "kubeproxy_nftables_localhost_nodeport_listeners"
	wait.Until(t, "IPv4 is served", func() bool { return metric(listeners, `ip_family="IPv4"`) == "1" })
	if _, findings := d.get(t, at, "/findings"); !strings.Contains(findings, "LocalhostNodePortNotServed") {
		t.Errorf("the findings lack the port that another process uses: %s", findings)
	}
	if failures := metric("kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total", `ip_family="IPv6"`); failures == "0" {
		t.Error("the failure to listen is not counted")
	}
	_ = other.Close()
	wait.Until(t, "IPv6 is served, too", func() bool { return metric(listeners, `ip_family="IPv6"`) == "1" })
	for range 25 {
		d.expectEcho(t, d.dialTCP(t, ipv4))
	}
	open := d.dialTCP(t, ipv6)
	d.expectEcho(t, open)
	if got := metric("vicinity_localhost_nodeport_connections_total", `ip_family="IPv4",result="forwarded"`); got != "25" {
		t.Errorf("%s connections are counted, want 25", got)
	}
	result := d.stop(t)
	if _, err := io.Copy(io.Discard, open); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Error("a connection stays open after the proxy has exited")
	}
	if lines := strings.Count(result.stderr, "\n"); result.status != 0 || lines > 20 || strings.Count(result.stderr, "30080") != 2 {
		t.Errorf("%d lines, want one that the port is not served, one that it is, and none for a connection: %+v", lines, result)
	}
}

// startTCPEcho starts a TCP server that sends the data that it receives back, until the test ends.
func startTCPEcho(t *testing.T, namespace *netns.Namespace, address string) {
	t.Helper()
	listener := listenIn(t, namespace, address)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(connection, connection)
				_ = connection.Close()
			}()
		}
	}()
}

func (d *daemonUnderTest) dialTCP(t *testing.T, address string) net.Conn {
	t.Helper()
	var connection net.Conn
	var err error
	d.namespace.Do(func() { connection, err = net.DialTimeout("tcp", address, waitTimeout) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	_ = connection.SetDeadline(time.Now().Add(waitTimeout))
	return connection
}

// expectEcho fails unless the server returns the data that is sent.
func (d *daemonUnderTest) expectEcho(t *testing.T, connection net.Conn) {
	t.Helper()
	got := make([]byte, 4)
	if _, err := fmt.Fprint(connection, "ping"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(connection, got); err != nil || string(got) != "ping" {
		t.Errorf("got %q, error %v, want \"ping\"", got, err)
	}
}
