package neighbours_test

import (
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// startDocker starts docker's daemon, and waits until it answers.
func (m *machine) startDocker() {
	m.town.t.Helper()
	d := m.inDebian()
	m.service = d.start("docker", func() error { return d.try("docker", "version") },
		"dockerd", "--storage-driver=vfs", "--log-level=warn")
}

// startDockerOnBoot starts it where the node does not forward yet. Then it drops what is forwarded, and turns that on;
// where it is on already it drops nothing.
func (m *machine) startDockerOnBoot() {
	m.town.t.Helper()
	must.Succeed(m.town.t, m.SetSysctl("net.ipv4.ip_forward", "0"))
	m.startDocker()
}

// TestDocker on a node that it makes forward, and with the pods' addresses in its chain for users.
func TestDocker(t *testing.T) {
	t.Parallel()
	beside(t, neighbour{
		start: func(m *machine) {
			m.startDockerOnBoot()
			for _, direction := range []string{"-s", "-d"} {
				m.inDebian().run("iptables", "-I", "DOCKER-USER", direction, fabric.PodsIPv4.String(), "-j", "ACCEPT")
			}
		},
		update:  func(m *machine) { m.inDebian().run("docker", "network", "create", "another") },
		restart: func(m *machine) { m.stop(); m.startDocker() },
	})
}

// TestDockerAsShipped: over IPv4 it drops what is forwarded, to pods too. It has no rules for IPv6.
func TestDockerAsShipped(t *testing.T) {
	t.Parallel()
	here := newTown(t)
	here.each((*machine).startProxy)
	here.each((*machine).startDockerOnBoot)
	for _, internal := range []bool{true, false} {
		to := (spec{app: nearApp, internal: internal}).overIPv4(here.nodes[0])
		here.stopped("translated", here.client.Namespace, to...)
		here.stopped("translated", here.outside, to...)
	}
	here.stopped("a pod directly", here.client.Namespace, at(podPort, here.near.IPv4)...)
}

// TestDockerOnANodeThatForwards, as nodes of Kubernetes do from the start: nothing has to be set.
func TestDockerOnANodeThatForwards(t *testing.T) {
	t.Parallel()
	here := newTown(t)
	here.each((*machine).startDocker)
	here.each((*machine).startProxy)
	here.holds("docker has found that the node forwards")
}
