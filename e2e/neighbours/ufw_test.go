package neighbours_test

import (
	"fmt"
	"testing"
)

// ufw runs ufw.
func (m *machine) ufw(args ...string) {
	m.town.t.Helper()
	m.inDebian().run("ufw", args...)
}

// TestUFW uses ufw's default policies, and allows the pod ranges and the health check.
func TestUFW(t *testing.T) {
	t.Parallel()
	beside(t, neighbour{
		start: func(m *machine) {
			m.inDebian().follow("ufw")
			m.ufw("--force", "enable")
		},
		update: func(m *machine) { m.ufw("reload") },
		restart: func(m *machine) {
			m.ufw("disable")
			m.ufw("--force", "enable")
		},
		promise: func(here *town) {
			here.isClosed(9000)
			here.isHealthy()
		},
	})
}

// TestUFWAsShipped checks that ufw blocks packets to pods. A rule that denies the number of a node port does not block
// the node port, because nothing on the node listens there.
func TestUFWAsShipped(t *testing.T) {
	t.Parallel()
	here := newTown(t)
	here.each((*machine).startProxy)
	here.each(func(m *machine) { m.ufw("--force", "enable") })
	first := here.nodes[0]
	here.stopped("translated", here.client.Namespace, (spec{app: nearApp, internal: true}).frontends(first)...)
	here.stopped("translated", here.outside, (spec{app: nearApp}).frontends(first)...)
	here.stopped("a pod directly", here.client.Namespace, at(podPort, here.near.IPv4, here.near.IPv6)...)
	here.stopped("the health check", here.outside, at(healthPort, first.IPv4, first.IPv6)...)
	here.each(func(m *machine) { m.ufw("default", "allow", "routed") })
	here.holds("with allow as the default policy for routed packets")
	first.ufw("deny", fmt.Sprint(nearApp.nodePort()))
	here.holds("with a rule that denies a node port")
}
