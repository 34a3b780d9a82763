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

// cluster returns the addresses that the firewalls of a cluster's nodes must trust: those of pods, for connections
// between them, and of nodes, for connections that another node has masqueraded.
func (s *town) cluster() []string {
	all := []string{fabric.PodsIPv4.String(), fabric.PodsIPv6.String()}
	for _, node := range s.nodes {
		all = append(all, node.IPv4.String(), node.IPv6.String())
	}
	return all
}

// startFirewalld starts firewalld, which needs a message bus, and waits until its rules are in the kernel.
func (m *machine) startFirewalld() {
	m.town.t.Helper()
	d := m.inDebian()
	const socket = "/run/dbus/system_bus_socket"
	if d.try("test", "-S", socket) != nil {
		d.run("mkdir", "-p", "/run/dbus")
		d.start("the message bus", func() error { return d.try("test", "-S", socket) },
			"dbus-daemon", "--system", "--nofork", "--nopidfile")
	}
	m.service = d.start("firewalld", func() error { return d.try("firewall-cmd", "--state") },
		"firewalld", "--nofork", "--nopid")
}

// stop stops the neighbour as a service manager does.
func (m *machine) stop() {
	m.town.t.Helper()
	must.Succeed(m.town.t, m.service.Stop(wait.Timeout))
}

// trustTheCluster runs the commands of manifests/coexistence.md for a firewalld that does not run.
func (m *machine) trustTheCluster() {
	m.town.t.Helper()
	arguments := []string{"--zone=trusted"}
	for _, addrs := range m.town.cluster() {
		arguments = append(arguments, "--add-source="+addrs)
	}
	m.inDebian().run("firewall-offline-cmd", arguments...)
	m.inDebian().run("firewall-offline-cmd", "--zone=public", fmt.Sprintf("--add-port=%d/tcp", healthPort))
}

// TestFirewalld uses the default zone, and adds the addresses of pods and nodes to the trusted zone.
func TestFirewalld(t *testing.T) {
	t.Parallel()
	beside(t, neighbour{
		start:  func(m *machine) { m.trustTheCluster(); m.startFirewalld() },
		update: func(m *machine) { m.inDebian().run("firewall-cmd", "--reload") },
		restart: func(m *machine) {
			m.stop()
			m.startFirewalld()
		},
		promise: func(here *town) {
			here.isClosed(9000)
			here.isHealthy()
		},
	})
}

// TestFirewalldAsShipped checks that firewalld accepts packets that the proxy translates on this node, and no other
// packets to pods. The commands of manifests/coexistence.md change that at run time.
func TestFirewalldAsShipped(t *testing.T) {
	t.Parallel()
	here := newTown(t)
	here.each((*machine).startProxy)
	here.each((*machine).startFirewalld)
	for _, to := range (spec{app: nearApp}).frontends(here.nodes[0]) {
		here.expect("translated, and to a pod of the node", check{here.outside, to, cell{onlyNear, node}})
	}
	here.stopped("a pod of another node", here.outside, (spec{app: farApp}).frontends(here.nodes[0])...)
	here.stopped("a pod directly", here.client.Namespace, at(podPort, here.near.IPv4, here.near.IPv6)...)
	here.stopped("the health check", here.outside, at(healthPort, here.nodes[0].IPv4, here.nodes[0].IPv6)...)
	here.each(func(m *machine) { m.inDebian().follow("firewalld") })
	here.holds("with the documented commands")
	here.isHealthy()
}

// TestFirewalldPanics checks that panic mode blocks everything, and that everything passes afterwards.
func TestFirewalldPanics(t *testing.T) {
	t.Parallel()
	here := newTown(t)
	here.each((*machine).startProxy)
	here.each(func(m *machine) { m.trustTheCluster(); m.startFirewalld() })
	here.holds("at first")
	first := here.nodes[0]
	first.inDebian().run("firewall-cmd", "--panic-on")
	if answer := strings.TrimSpace(first.inDebian().run("firewall-cmd", "--query-panic")); answer != "yes" {
		t.Errorf("panic mode: %s, want yes", answer)
	}
	here.stopped("panic", here.client.Namespace, (spec{app: nearApp, internal: true}).frontends(first)...)
	here.stopped("panic", here.outside, (spec{app: nearApp}).frontends(first)...)
	first.inDebian().run("firewall-cmd", "--panic-off")
	here.holds("after the panic")
}
