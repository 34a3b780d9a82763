package neighbours_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// healthPort is the proxy's health check port for load balancers.
const healthPort = 10256

// trustedAddrs returns the addresses that the firewalls of a cluster's nodes must trust: those of pods, for connections
// between them, and of nodes, for connections that another node has masqueraded.
func (tb *testbed) trustedAddrs() []string {
	all := []string{fabric.PodsIPv4.String(), fabric.PodsIPv6.String()}
	for _, node := range tb.nodes {
		all = append(all, node.IPv4.String(), node.IPv6.String())
	}
	return all
}

// startFirewalld starts firewalld, which needs a message bus, and waits until its rules are in the kernel.
func (m *machine) startFirewalld() {
	m.testbed.t.Helper()
	d := m.inDebian()
	const socket = "/run/dbus/system_bus_socket"
	if d.tryRun("test", "-S", socket) != nil {
		d.run("mkdir", "-p", "/run/dbus")
		d.start("the message bus", func() error { return d.tryRun("test", "-S", socket) },
			"dbus-daemon", "--system", "--nofork", "--nopidfile")
	}
	m.service = d.start("firewalld", func() error { return d.tryRun("firewall-cmd", "--state") },
		"firewalld", "--nofork", "--nopid")
}

// stop stops the neighbour as a service manager does.
func (m *machine) stop() {
	m.testbed.t.Helper()
	must.Succeed(m.testbed.t, m.service.Stop(wait.Timeout))
}

// trustTheCluster runs the commands of manifests/coexistence.md for a firewalld that does not run.
func (m *machine) trustTheCluster() {
	m.testbed.t.Helper()
	arguments := []string{"--zone=trusted"}
	for _, addrs := range m.testbed.trustedAddrs() {
		arguments = append(arguments, "--add-source="+addrs)
	}
	m.inDebian().run("firewall-offline-cmd", arguments...)
	m.inDebian().run("firewall-offline-cmd", "--zone=public", fmt.Sprintf("--add-port=%d/tcp", healthPort))
}

// TestFirewalld uses the default zone, and adds the addresses of pods and nodes to the trusted zone.
func TestFirewalld(t *testing.T) {
	t.Parallel()
	testNeighbour(t, neighbour{
		start:  func(m *machine) { m.trustTheCluster(); m.startFirewalld() },
		update: func(m *machine) { m.inDebian().run("firewall-cmd", "--reload") },
		restart: func(m *machine) {
			m.stop()
			m.startFirewalld()
		},
		check: func(tb *testbed) {
			tb.expectClosed(9000)
			tb.expectHealthy()
		},
	})
}

// TestFirewalldAsShipped checks that firewalld accepts packets that the proxy translates on this node, and no other
// packets to pods. The commands of manifests/coexistence.md change that at run time.
func TestFirewalldAsShipped(t *testing.T) {
	t.Parallel()
	tb := newTestbed(t)
	tb.forEachNode((*machine).startProxy)
	tb.forEachNode((*machine).startFirewalld)
	for _, to := range (spec{app: nearApp}).frontends(tb.nodes[0]) {
		tb.expect("translated, and to a pod of the node", check{tb.outside, to, cell{onlyNear, node}})
	}
	tb.expectBlocked("a pod of another node", tb.outside, (spec{app: farApp}).frontends(tb.nodes[0])...)
	tb.expectBlocked("a pod directly", tb.client.Namespace, addrPorts(podPort, tb.near.IPv4, tb.near.IPv6)...)
	tb.expectBlocked("the health check", tb.outside, addrPorts(healthPort, tb.nodes[0].IPv4, tb.nodes[0].IPv6)...)
	tb.forEachNode(func(m *machine) { m.inDebian().runDocumented("firewalld") })
	tb.expectAllServed("with the documented commands")
	tb.expectHealthy()
}

// TestFirewalldPanics checks that panic mode blocks everything, and that everything passes afterwards.
func TestFirewalldPanics(t *testing.T) {
	t.Parallel()
	tb := newTestbed(t)
	tb.forEachNode((*machine).startProxy)
	tb.forEachNode(func(m *machine) { m.trustTheCluster(); m.startFirewalld() })
	tb.expectAllServed("at first")
	first := tb.nodes[0]
	first.inDebian().run("firewall-cmd", "--panic-on")
	if output := strings.TrimSpace(first.inDebian().run("firewall-cmd", "--query-panic")); output != "yes" {
		t.Errorf("panic mode: %s, want yes", output)
	}
	tb.expectBlocked("panic", tb.client.Namespace, (spec{app: nearApp, internal: true}).frontends(first)...)
	tb.expectBlocked("panic", tb.outside, (spec{app: nearApp}).frontends(first)...)
	first.inDebian().run("firewall-cmd", "--panic-off")
	tb.expectAllServed("after the panic")
}
