package neighbours_test

import (
	"net/netip"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// expectClosed checks that the firewall blocks a port of the node for clients outside the cluster.
func (tb *testbed) expectClosed(port uint16) {
	tb.t.Helper()
	first := tb.nodes[0]
	if first.listener == nil {
		server, err := first.Serve(port)
		must.Succeed(tb.t, err)
		first.listener = server
	}
	for _, to := range addrPorts(port, first.IPv4, first.IPv6) {
		if reply, err := tb.outside.Request("tcp", to, briefTimeout); err == nil {
			tb.t.Errorf("%s replied at %s: the firewall is open", reply.Pod, to)
		}
	}
}

// expectHealthy checks that clients outside the cluster reach the node's health check.
func (tb *testbed) expectHealthy() {
	tb.t.Helper()
	for _, to := range addrPorts(healthPort, tb.nodes[0].IPv4, tb.nodes[0].IPv6) {
		if _, err := site.Page(tb.outside, to.String(), "/healthz"); err != nil {
			tb.t.Error(err)
		}
	}
}

// briefTimeout is long enough for a response to arrive, if there is one.
const briefTimeout = 500 * time.Millisecond

// expectBlocked checks that connections fail: they time out or are rejected.
func (tb *testbed) expectBlocked(what string, from *fabric.Namespace, to ...netip.AddrPort) {
	tb.t.Helper()
	for _, addr := range to {
		if reply, err := from.Request("tcp", addr, briefTimeout); err == nil {
			tb.t.Errorf("%s: %s reaches %s at %s, want it blocked", what, from.Name, reply.Pod, addr)
		}
	}
}
