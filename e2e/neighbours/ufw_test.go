package neighbours_test

import (
	"fmt"
	"testing"
)

// ufw runs ufw.
func (m *machine) ufw(args ...string) {
	m.testbed.t.Helper()
	m.inDebian().run("ufw", args...)
}

// TestUFW uses ufw's default policies, and allows the pod ranges and the health check.
func TestUFW(t *testing.T) {
	t.Parallel()
	testNeighbour(t, neighbour{
		start: func(m *machine) {
			m.inDebian().runDocumented("ufw")
			m.ufw("--force", "enable")
		},
		update: func(m *machine) { m.ufw("reload") },
		restart: func(m *machine) {
			m.ufw("disable")
			m.ufw("--force", "enable")
		},
		check: func(tb *testbed) {
			tb.expectClosed(9000)
			tb.expectHealthy()
		},
	})
}

// TestUFWAsShipped checks that ufw blocks packets to pods. A rule that denies the number of a node port does not block
// the node port, because nothing on the node listens there.
func TestUFWAsShipped(t *testing.T) {
	t.Parallel()
	tb := newTestbed(t)
	tb.forEachNode((*machine).startProxy)
	tb.forEachNode(func(m *machine) { m.ufw("--force", "enable") })
	first := tb.nodes[0]
	tb.expectBlocked("translated", tb.client.Namespace, (spec{app: nearApp, internal: true}).frontends(first)...)
	tb.expectBlocked("translated", tb.outside, (spec{app: nearApp}).frontends(first)...)
	tb.expectBlocked("a pod directly", tb.client.Namespace, addrPorts(podPort, tb.near.IPv4, tb.near.IPv6)...)
	tb.expectBlocked("the health check", tb.outside, addrPorts(healthPort, first.IPv4, first.IPv6)...)
	tb.forEachNode(func(m *machine) { m.ufw("default", "allow", "routed") })
	tb.expectAllServed("with allow as the default policy for routed packets")
	first.ufw("deny", fmt.Sprint(nearApp.nodePort()))
	tb.expectAllServed("with a rule that denies a node port")
}
