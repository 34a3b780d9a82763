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
	m.testbed.t.Helper()
	d := m.inDebian()
	m.service = d.start("docker", func() error { return d.tryRun("docker", "version") },
		"dockerd", "--storage-driver=vfs", "--log-level=warn")
}

// startDockerOnBoot starts Docker on a node that does not forward yet. Docker then enables forwarding and drops
// forwarded packets; if forwarding is already enabled, it drops nothing.
func (m *machine) startDockerOnBoot() {
	m.testbed.t.Helper()
	must.Succeed(m.testbed.t, m.SetSysctl("net.ipv4.ip_forward", "0"))
	m.startDocker()
}

// TestDocker starts Docker on a node where it enables forwarding, with the pod ranges in its chain for users.
func TestDocker(t *testing.T) {
	t.Parallel()
	testNeighbour(t, neighbour{
		start: func(m *machine) {
			m.startDockerOnBoot()
			m.inDebian().runDocumented("docker")
		},
		update:  func(m *machine) { m.inDebian().run("docker", "network", "create", "another") },
		restart: func(m *machine) { m.stop(); m.startDocker() },
	})
}

// TestDockerAsShipped checks that Docker drops forwarded packets over IPv4, also to pods. It has no rules for IPv6.
func TestDockerAsShipped(t *testing.T) {
	t.Parallel()
	tb := newTestbed(t)
	tb.forEachNode((*machine).startProxy)
	tb.forEachNode((*machine).startDockerOnBoot)
	for _, internal := range []bool{true, false} {
		to := (spec{app: nearApp, internal: internal}).ipv4Frontends(tb.nodes[0])
		tb.expectBlocked("translated", tb.client.Namespace, to...)
		tb.expectBlocked("translated", tb.outside, to...)
	}
	tb.expectBlocked("a pod directly", tb.client.Namespace, addrPorts(podPort, tb.near.IPv4)...)
}

// TestDockerOnANodeThatForwards covers nodes that forward from the start, as Kubernetes nodes do: no configuration is
// necessary.
func TestDockerOnANodeThatForwards(t *testing.T) {
	t.Parallel()
	tb := newTestbed(t)
	tb.forEachNode((*machine).startDocker)
	tb.forEachNode((*machine).startProxy)
	tb.expectAllServed("after Docker found forwarding enabled")
}

// containerProgram is the program of a container: a static server that the tests already have, and that identifies itself over
// HTTP.
const containerProgram = "etcd"

// publish runs a container from an image with one static program, and publishes its port on the node.
func (m *machine) publish(port uint16) {
	m.testbed.t.Helper()
	d := m.inDebian()
	if d.tryRun("docker", "image", "inspect", containerProgram) != nil {
		d.run("sh", "-c", fmt.Sprintf("tar -C %s -c %s | docker import - %s", programs.Folder(binaries.Etcd), containerProgram, containerProgram))
	}
	name := fmt.Sprintf("port-%d", port)
	m.testbed.t.Cleanup(func() { _ = d.tryRun("docker", "rm", "--force", name) }) // it would outlive a daemon that is killed
	d.run("docker", "run", "--detach", "--restart=always", "--name", name,
		"--publish", fmt.Sprintf("%d:%d", port, podPort), containerProgram, "/"+containerProgram, "--data-dir=/data",
		fmt.Sprintf("--listen-client-urls=http://0.0.0.0:%d", podPort), "--advertise-client-urls=http://127.0.0.1:1")
	m.waitForContainer(port)
}

// waitForContainer waits until a container responds on its own address, which changes when Docker starts.
func (m *machine) waitForContainer(port uint16) {
	m.testbed.t.Helper()
	wait.Success(m.testbed.t, "a container", func() error {
		inspect := []string{"inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", fmt.Sprintf("port-%d", port)}
		printed, err := m.Run(m.inDebian().command("docker", inspect...))
		if err != nil {
			return err
		}
		addr, err := netip.ParseAddr(strings.TrimSpace(printed))
		if err != nil {
			return err
		}
		return requestContainer(m.Namespace, netip.AddrPortFrom(addr, podPort))
	})
}

// requestContainer fails unless a container responds.
func requestContainer(from *fabric.Namespace, addr netip.AddrPort) error {
	_, page, err := site.Get(from, addr.String(), "/version")
	if err == nil && !strings.Contains(page, containerProgram) {
		err = errors.New("another server replied")
	}
	return err
}

// clients returns the sources of connections.
func (tb *testbed) clients() []*fabric.Namespace {
	return []*fabric.Namespace{tb.client.Namespace, tb.outside, tb.nodes[0].Namespace}
}

// expectPublished checks that the container responds on a port of the first node, at the given addresses.
func (tb *testbed) expectPublished(when string, port uint16, addrs ...netip.Addr) {
	tb.t.Helper()
	for _, to := range addrPorts(port, addrs...) {
		for _, from := range tb.clients() {
			if err := requestContainer(from, to); err != nil {
				tb.t.Errorf("%s: connection from %s to %s: %v", when, from.Name, to, err)
			}
		}
	}
}

// TestDockerPublishesPorts publishes the number of a ClusterIP's port, with node ports on all addresses.
func TestDockerPublishesPorts(t *testing.T) {
	t.Parallel()
	testNeighbour(t, neighbour{
		flags:  []string{"--nodeport-addresses", "all"},
		start:  func(m *machine) { m.startDocker(); m.publish(servicePort) },
		update: func(m *machine) { m.publish(servicePort + 1) },
		restart: func(m *machine) {
			m.stop()
			m.startDocker()
			m.waitForContainer(servicePort)
		},
		check: func(tb *testbed) {
			tb.expectPublished("published", servicePort, tb.nodes[0].IPv4, tb.nodes[0].IPv6)
		},
	})
}

// TestAPublishedPortThatIsANodePortToo checks that over IPv4 the program that started last serves the port. Over IPv6
// the Service serves it, because this Docker has no rules there, only a listening process.
func TestAPublishedPortThatIsANodePortToo(t *testing.T) {
	t.Parallel()
	port := nearApp.nodePort()
	expectNodePort := func(tb *testbed, when string, addrs ...netip.Addr) {
		t.Helper()
		var checks []check
		for _, to := range addrPorts(port, addrs...) {
			for _, from := range tb.clients() {
				checks = append(checks, check{from, to, cell{onlyNear, node}})
			}
		}
		tb.expectOver([]string{"tcp"}, when, checks...)
	}
	t.Run("the proxy started last", func(t *testing.T) {
		t.Parallel()
		tb := newTestbed(t)
		first := tb.nodes[0]
		first.startDocker()
		first.publish(port)
		first.startProxy()
		expectNodePort(tb, "at first", first.IPv4, first.IPv6)
		first.restartProxy()
		expectNodePort(tb, "after a restart of the proxy", first.IPv4, first.IPv6)
	})
	t.Run("docker started last", func(t *testing.T) {
		t.Parallel()
		tb := newTestbed(t)
		first := tb.nodes[0]
		first.startProxy()
		first.startDocker()
		first.publish(port)
		tb.expectPublished("at first", port, first.IPv4)
		expectNodePort(tb, "at first", first.IPv6)
		first.restartProxy()
		tb.expectPublished("after a restart of the proxy", port, first.IPv4)
		expectNodePort(tb, "after a restart of the proxy", first.IPv6)
		first.inDebian().run("docker", "rm", "--force", fmt.Sprintf("port-%d", port))
		expectNodePort(tb, "after the container was removed", first.IPv4, first.IPv6)
	})
}
