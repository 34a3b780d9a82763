//go:build linux

package main

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// TestNodePortsOnLoopbackReachTheEndpointsOfAllNodes: endpoints see the node as the client. With externalTrafficPolicy
// Local, only endpoints on this node are reached.
func TestNodePortsOnLoopbackReachTheEndpointsOfAllNodes(t *testing.T) {
	namespace, other := netns.New(t), netns.New(t)
	joinNodes(t, namespace, other)
	for _, family := range []struct{ title, localPod, remotePod, loopback, clientAddr, gateway string }{
		{"IPv4", "10.244.1.5", "10.244.2.5", "127.0.0.1", "192.0.2.1", "192.0.2.2"},
		{"IPv6", "fd00:244::5", "fd00:244:2::5", "::1", "2001:db8::1", "2001:db8::2"},
	} {
		namespace.Exec("ip", "addr", "add", family.localPod, "dev", "lo", "nodad")
		other.Exec("ip", "addr", "add", family.remotePod, "dev", "lo", "nodad")
		namespace.Exec("ip", "route", "add", family.remotePod, "via", family.gateway)
		startAddressServer(t, namespace, family.localPod)
		startAddressServer(t, other, family.remotePod)
		state := strings.ReplaceAll(loopbackManifests, fmt.Sprintf("[{addresses: [%s], nodeName: node-a, conditions: {ready: true}}]",
			quotedIPv6(family.localPod)), fmt.Sprintf("\n  - {addresses: [%q], nodeName: node-a, conditions: {ready: true}}"+
			"\n  - {addresses: [%q], nodeName: node-b, conditions: {ready: true}}", family.localPod, family.remotePod))
		local := strings.Replace(state, "type: NodePort", "type: NodePort\n    externalTrafficPolicy: Local", 1)
		near, far := family.localPod+" sees "+family.localPod, family.remotePod+" sees "+family.clientAddr
		for title, test := range map[string]struct {
			state string
			want  map[string]bool
		}{
			"Cluster": {state, map[string]bool{near: true, far: true}},
			"Local":   {local, map[string]bool{near: true}},
		} {
			t.Run(family.title+" "+title, func(t *testing.T) {
				d := startDaemon(t, namespace, splitArgs("--own-tables never --nodeport-addresses primary,localhost --feature-gates "+
					"KubeProxyNFTablesLocalhostNodePorts=true --manifests "+writeManifests(t, test.state))...)
				addrPort := net.JoinHostPort(family.loopback, "30080")
				wait.Until(t, "the proxy listens", func() bool { return d.listens(addrPort) })
				answers := map[string]bool{}
				for range 40 {
					text, err := io.ReadAll(d.dialTCP(t, addrPort))
					if err != nil {
						t.Fatal(err)
					}
					answers[string(text)] = true
				}
				if diff := cmp.Diff(test.want, answers); diff != "" {
					t.Errorf("endpoints and the client addresses that they see (-want +got):\n%s", diff)
				}
				d.stop(t)
			})
		}
	}
}

// quotedIPv6 formats an address as in loopbackManifests.
func quotedIPv6(addr string) string {
	if strings.Contains(addr, ":") {
		return strconv.Quote(addr)
	}
	return addr
}

// joinNodes connects two nodes by a link, with an address of each family at either end.
func joinNodes(t *testing.T, one, other *netns.Namespace) {
	t.Helper()
	holder := other.Command("sleep", "60")
	var err error
	other.Do(func() { err = holder.Start() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = holder.Process.Kill(); _ = holder.Wait() })
	one.Exec("ip", "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", strconv.Itoa(holder.Process.Pid))
	for i, end := range []struct {
		*netns.Namespace
		link string
	}{{one, "near"}, {other, "far"}} {
		end.Exec("ip", "addr", "add", fmt.Sprintf("192.0.2.%d/24", i+1), "dev", end.link)
		end.Exec("ip", "addr", "add", fmt.Sprintf("2001:db8::%d/64", i+1), "dev", end.link, "nodad")
		end.Exec("ip", "link", "set", end.link, "up")
	}
}

// startAddressServer starts a server at port 8080 of an address. It sends its own address and the client's.
func startAddressServer(t *testing.T, namespace *netns.Namespace, addr string) {
	t.Helper()
	listener := listenIn(t, namespace, net.JoinHostPort(addr, "8080"))
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			host, _, _ := net.SplitHostPort(connection.RemoteAddr().String())
			_, _ = fmt.Fprintf(connection, "%s sees %s", addr, host)
			_ = connection.Close()
		}
	}()
}
