package neighbours_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// startDocker starts Docker's daemon, and waits until it responds.
func (m *machine) startDocker() {
	m.town.t.Helper()
	d := m.inDebian()
	m.service = d.start("docker", func() error { return d.try("docker", "version") },
		"dockerd", "--storage-driver=vfs", "--log-level=warn")
}

// startDockerOnBoot starts Docker on a node that does not forward yet. Docker then enables forwarding and drops
// forwarded packets; if forwarding is already enabled, it drops nothing.
func (m *machine) startDockerOnBoot() {
	m.town.t.Helper()
	must.Succeed(m.town.t, m.SetSysctl("net.ipv4.ip_forward", "0"))
	m.startDocker()
}

// TestDocker starts Docker on a node where it enables forwarding, with the pod ranges in its chain for users.
func TestDocker(t *testing.T) {
	t.Parallel()
	beside(t, neighbour{
		start: func(m *machine) {
			m.startDockerOnBoot()
			m.inDebian().follow("docker")
		},
		update:  func(m *machine) { m.inDebian().run("docker", "network", "create", "another") },
		restart: func(m *machine) { m.stop(); m.startDocker() },
	})
}

// TestDockerAsShipped checks that Docker drops forwarded packets over IPv4, also to pods. It has no rules for IPv6.
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

// TestDockerOnANodeThatForwards covers nodes that forward from the start, as Kubernetes nodes do: no configuration is
// necessary.
func TestDockerOnANodeThatForwards(t *testing.T) {
	t.Parallel()
	here := newTown(t)
	here.each((*machine).startDocker)
	here.each((*machine).startProxy)
	here.holds("after Docker found forwarding enabled")
}

// contained is the program of a container: a static server that the tests already have, and that identifies itself over
// HTTP.
const contained = "etcd"

// publish runs a container from an image with one static program, and publishes its port on the node.
func (m *machine) publish(port uint16) {
	m.town.t.Helper()
	d := m.inDebian()
	if d.try("docker", "image", "inspect", contained) != nil {
		d.run("sh", "-c", fmt.Sprintf("tar -C %s -c %s | docker import - %s", programs.Folder(binaries.Etcd), contained, contained))
	}
	name := fmt.Sprintf("port-%d", port)
	m.town.t.Cleanup(func() { _ = d.try("docker", "rm", "--force", name) }) // it would outlive a daemon that is killed
	d.run("docker", "run", "--detach", "--restart=always", "--name", name,
		"--publish", fmt.Sprintf("%d:%d", port, podPort), contained, "/"+contained, "--data-dir=/data",
		fmt.Sprintf("--listen-client-urls=http://0.0.0.0:%d", podPort), "--advertise-client-urls=http://127.0.0.1:1")
	m.waitForContainer(port)
}

// waitForContainer waits until a container responds on its own address, which changes when Docker starts.
func (m *machine) waitForContainer(port uint16) {
	m.town.t.Helper()
	wait.Success(m.town.t, "a container", func() error {
		inspect := []string{"inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", fmt.Sprintf("port-%d", port)}
		printed, err := m.Run(m.inDebian().command("docker", inspect...))
		if err != nil {
			return err
		}
		addr, err := netip.ParseAddr(strings.TrimSpace(printed))
		if err != nil {
			return err
		}
		return isContainer(m.Namespace, netip.AddrPortFrom(addr, podPort))
	})
}

// isContainer fails unless a container responds.
func isContainer(from *fabric.Namespace, addr netip.AddrPort) error {
	_, page, err := site.Get(from, addr.String(), "/version")
	if err == nil && !strings.Contains(page, contained) {
		err = errors.New("another server replied")
	}
	return err
}

// clients are the sources of connections.
func (s *town) clients() []*fabric.Namespace {
	return []*fabric.Namespace{s.client.Namespace, s.outside, s.nodes[0].Namespace}
}

// isPublished checks that the container responds on a port of the first node, at the given addresses.
func (s *town) isPublished(when string, port uint16, addrs ...netip.Addr) {
	s.t.Helper()
	for _, to := range at(port, addrs...) {
		for _, from := range s.clients() {
			if err := isContainer(from, to); err != nil {
				s.t.Errorf("%s: %s dials %s: %v", when, from.Name, to, err)
			}
		}
	}
}

// TestDockerPublishesPorts publishes the number of a ClusterIP's port, with node ports on all addresses.
func TestDockerPublishesPorts(t *testing.T) {
	t.Parallel()
	beside(t, neighbour{
		flags:  []string{"--nodeport-addresses", "all"},
		start:  func(m *machine) { m.startDocker(); m.publish(servicePort) },
		update: func(m *machine) { m.publish(servicePort + 1) },
		restart: func(m *machine) {
			m.stop()
			m.startDocker()
			m.waitForContainer(servicePort)
		},
		promise: func(here *town) {
			here.isPublished("published", servicePort, here.nodes[0].IPv4, here.nodes[0].IPv6)
		},
	})
}

// TestAPublishedPortThatIsANodePortToo checks that over IPv4 the program that started last serves the port. Over IPv6
// the Service serves it, because this Docker has no rules there, only a listening process.
func TestAPublishedPortThatIsANodePortToo(t *testing.T) {
	t.Parallel()
	port := nearApp.nodePort()
	isNodePort := func(here *town, when string, addrs ...netip.Addr) {
		t.Helper()
		var checks []check
		for _, to := range at(port, addrs...) {
			for _, from := range here.clients() {
				checks = append(checks, check{from, to, cell{onlyNear, node}})
			}
		}
		here.expectOver([]string{"tcp"}, when, checks...)
	}
	t.Run("the proxy started last", func(t *testing.T) {
		t.Parallel()
		here := newTown(t)
		first := here.nodes[0]
		first.startDocker()
		first.publish(port)
		first.startProxy()
		isNodePort(here, "at first", first.IPv4, first.IPv6)
		first.restartProxy()
		isNodePort(here, "after a restart of the proxy", first.IPv4, first.IPv6)
	})
	t.Run("docker started last", func(t *testing.T) {
		t.Parallel()
		here := newTown(t)
		first := here.nodes[0]
		first.startProxy()
		first.startDocker()
		first.publish(port)
		here.isPublished("at first", port, first.IPv4)
		isNodePort(here, "at first", first.IPv6)
		first.restartProxy()
		here.isPublished("after a restart of the proxy", port, first.IPv4)
		isNodePort(here, "after a restart of the proxy", first.IPv6)
		first.inDebian().run("docker", "rm", "--force", fmt.Sprintf("port-%d", port))
		isNodePort(here, "after the container was removed", first.IPv4, first.IPv6)
	})
}
