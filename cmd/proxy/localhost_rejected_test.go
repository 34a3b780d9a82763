//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// noEndpointManifests has a Service without endpoints, with a node port of each protocol.
const noEndpointManifests = `apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {name: names, namespace: shop}
  spec:
    type: NodePort
    clusterIP: 10.96.0.53
    clusterIPs: [10.96.0.53, "fd00:96::53"]
    ipFamilies: [IPv4, IPv6]
    ports:
    - {name: dns, port: 53, protocol: UDP, nodePort: 30053}
    - {name: dns-tcp, port: 53, protocol: TCP, nodePort: 30053}
    - {name: dns-sctp, port: 53, protocol: SCTP, nodePort: 30053}
- apiVersion: v1
  kind: Node
  metadata: {name: node-a}
`

const rejectedMetrics = "127.0.0.1:10549"

// TestWhatLoopbackDoesNotServeIsRefusedAndCounted: connections are refused as by kube-proxy with the gate, even if
// another process listens there. The counters survive a restart of the proxy.
func TestWhatLoopbackDoesNotServeIsRefusedAndCounted(t *testing.T) {
	namespace := netns.New(t)
	const gate = "--feature-gates KubeProxyNFTablesLocalhostNodePorts=true"
	folder := writeManifests(t, noEndpointManifests)
	args := splitArgs("--own-tables never --metrics-bind-address " + rejectedMetrics + " --manifests " + folder)
	nodePortListener, otherListener := listenUDP(t, namespace, ":30053"), listenUDP(t, namespace, ":30054")
	for _, test := range []struct {
		title, flags string
		want         map[string]string // by family and protocol
		refused      bool
	}{
		{"without the gate", "--nodeport-addresses primary,localhost", nil, false},
		{
			"where loopback is served", "--nodeport-addresses primary,localhost " + gate,
			map[string]string{"IPv4,UDP": "3", "IPv4,SCTP": "3", "IPv6,UDP": "3", "IPv6,SCTP": "3"}, true,
		},
		{
			"after a restart, where it is served over IPv4", "--nodeport-addresses primary,127.0.0.0/8 " + gate,
			map[string]string{"IPv4,UDP": "6", "IPv4,SCTP": "6", "IPv6,TCP": "1", "IPv6,UDP": "6", "IPv6,SCTP": "6"}, true,
		},
		{
			"where it is not served", gate,
			map[string]string{
				"IPv4,TCP": "1", "IPv4,UDP": "9", "IPv4,SCTP": "9", "IPv6,TCP": "2", "IPv6,UDP": "9", "IPv6,SCTP": "9",
			}, true,
		},
		{"without the gate again", "", nil, false},
	} {
		d := startDaemon(t, namespace, append(args, splitArgs(test.flags)...)...)
		for _, address := range []string{"127.0.0.1", "::1"} {
			for _, network := range []string{"udp", "sctp"} {
				for range 3 {
					refused := isRefused(t, namespace, network, net.JoinHostPort(address, "30053"))
					if refused != test.refused {
						t.Errorf("%s: %s refuses %s: %t, want %t", test.title, address, network, refused, test.refused)
					}
				}
				if isRefused(t, namespace, network, net.JoinHostPort(address, "30054")) {
					t.Errorf("%s: %s refuses a port that no Service has, over %s", test.title, address, network)
				}
			}
			if !isRefused(t, namespace, "tcp", net.JoinHostPort(address, "30053")) {
				t.Errorf("%s: %s accepts TCP without an endpoint", test.title, address)
			}
		}
		if got := d.rejectedPackets(t); fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("%s: %v packets are counted, want %v", test.title, got, test.want)
		}
		if got := strings.Contains(namespace.NFT("list", "ruleset"), "localhost-nodeport"); got != test.refused {
			t.Errorf("%s: the tables have the counters: %t", test.title, got)
		}
		if result := d.stop(t); result.status != 0 {
			t.Errorf("%s: %+v", test.title, result)
		}
	}
	// Six datagrams of each family were received while the gate was off.
	if got := received(nodePortListener); got != 12 {
		t.Errorf("another process got %d datagrams to a node port, want 12", got)
	}
	if got := received(otherListener); got != 10 {
		t.Errorf("another process got %d datagrams to its own port, want 10", got)
	}
}

// TestNeighboursAreCountedToo covers a node that accepts packets from the network to its loopback addresses.
func TestNeighboursAreCountedToo(t *testing.T) {
	namespace, neighbour := netns.New(t), netns.New(t)
	joinNodes(t, namespace, neighbour)
	namespace.Exec("sysctl", "-qw", "net.ipv4.conf.near.route_localnet=1")
	neighbour.Exec("sysctl", "-qw", "net.ipv4.conf.far.route_localnet=1")
	neighbour.Exec("ip", "addr", "del", "127.0.0.1/8", "dev", "lo")
	neighbour.Exec("ip", "route", "add", "127.0.0.1", "via", "192.0.2.1")
	nodePortListener, otherListener := listenUDP(t, namespace, ":30053"), listenUDP(t, namespace, ":30054")
	d := startDaemon(t, namespace, splitArgs("--own-tables never --metrics-bind-address "+rejectedMetrics+" --manifests "+
		writeManifests(t, noEndpointManifests)+
		" --feature-gates KubeProxyNFTablesLocalhostNodePorts=true")...)
	for range 5 {
		isRefused(t, neighbour, "udp", "127.0.0.1:30053")
		isRefused(t, neighbour, "udp", "127.0.0.1:30054")
		isRefused(t, neighbour, "sctp", "127.0.0.1:30053")
	}
	for _, protocol := range []string{"UDP", "SCTP"} {
		if got := d.rejectedPackets(t)["IPv4,"+protocol]; got != "5" {
			t.Errorf("%s packets of a neighbour over %s are counted, want 5", got, protocol)
		}
	}
	if toPort, toOther := received(nodePortListener), received(otherListener); toPort != 0 || toOther != 5 {
		t.Errorf("a neighbour's datagrams: %d reached the listener at the node port, and %d the one at another port; want 0 and 5", toPort,
			toOther)
	}
	if result := d.stop(t); result.status != 0 {
		t.Errorf("%+v", result)
	}
}

// rejectedPackets returns the counted packets by family and protocol; nil if there is no series.
func (d *daemonUnderTest) rejectedPackets(t *testing.T) map[string]string {
	t.Helper()
	_, page := d.get(t, rejectedMetrics, "/metrics")
	var counts map[string]string
	for line := range strings.Lines(page) {
		labels, matches := strings.CutPrefix(strings.TrimSpace(line), "kubeproxy_nftables_localhost_nodeport_rejected_packets_total{")
		if !matches {
			continue
		}
		labels, value, _ := strings.Cut(strings.NewReplacer(`ip_family=`, "", `protocol=`, "", `"`, "").Replace(labels), "} ")
		if counts == nil {
			counts = map[string]string{}
		}
		counts[labels] = value
	}
	return counts
}

// isRefused sends a packet from a namespace, or opens a TCP connection, and reports whether that is refused.
func isRefused(t *testing.T, namespace *netns.Namespace, network, address string) bool {
	t.Helper()
	var connection net.Conn
	var err error
	packet := []byte("ping")
	if network == "sctp" {
		network, address, packet = rawSCTP(t, address)
	}
	namespace.Do(func() {
		if connection, err = net.DialTimeout(network, address, waitTimeout); err == nil {
			_, err = connection.Write(packet)
		}
	})
	if err == nil {
		defer func() { _ = connection.Close() }()
		_ = connection.SetDeadline(time.Now().Add(50 * time.Millisecond)) // loopback replies immediately, if at all
		_, err = connection.Read(make([]byte, 1))
	}
	// The kernel reports an error to the sender immediately if it drops the packet on output.
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EPERM)
}

// sctpPorts is the last source port of rawSCTP: each packet has its own, so that conntrack has no entry for it.
var sctpPorts uint16 = 40000

// rawSCTP returns a packet of SCTP that needs no SCTP socket, which many kernels lack: the network and the address for
// package net, and the packet, an INIT (RFC 9260, section 3.3.2).
func rawSCTP(t *testing.T, address string) (network, host string, packet []byte) {
	t.Helper()
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		t.Fatal(err)
	}
	network = "ip4:132"
	if to.Addr().Is6() {
		network = "ip6:132"
	}
	sctpPorts++
	big := binary.BigEndian
	packet = big.AppendUint16(nil, sctpPorts)
	packet = big.AppendUint16(packet, to.Port())
	packet = append(packet, 0, 0, 0, 0, 0, 0, 0, 0) // no tag yet; the checksum is computed with zeros in its place
	packet = append(packet, 1, 0, 0, 20)            // INIT, no flags, its length
	packet = big.AppendUint32(packet, 0x56696369)   // tag
	packet = big.AppendUint32(packet, 1<<16)        // window
	packet = append(packet, 0, 1, 0, 1)             // one stream each way
	packet = big.AppendUint32(packet, 1)            // the first sequence number
	binary.LittleEndian.PutUint32(packet[8:], crc32.Checksum(packet, crc32.MakeTable(crc32.Castagnoli)))
	return network, to.Addr().String(), packet
}

// listenUDP opens a socket in a namespace for datagrams of both families.
func listenUDP(t *testing.T, namespace *netns.Namespace, address string) net.PacketConn {
	t.Helper()
	var listener net.PacketConn
	var err error
	namespace.Do(func() { listener, err = net.ListenPacket("udp", address) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// received reads the datagrams that have arrived, and returns their number.
func received(listener net.PacketConn) (n int) {
	_ = listener.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	for {
		if _, _, err := listener.ReadFrom(make([]byte, 64)); err != nil {
			return n
		}
		n++
	}
}
