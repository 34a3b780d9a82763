package neighbours_test

import (
	"net/netip"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// isClosed checks that the firewall blocks a port of the node for clients outside the cluster.
func (s *town) isClosed(port uint16) {
	s.t.Helper()
	first := s.nodes[0]
	if first.listener == nil {
		server, err := first.Serve(port)
		must.Succeed(s.t, err)
		first.listener = server
	}
	for _, to := range at(port, first.IPv4, first.IPv6) {
		if reply, err := s.outside.Request("tcp", to, shortly); err == nil {
			s.t.Errorf("%s replied at %s: the firewall is open", reply.Pod, to)
		}
	}
}

// isHealthy checks that clients outside the cluster reach the node's health check.
func (s *town) isHealthy() {
	s.t.Helper()
	for _, to := range at(healthPort, s.nodes[0].IPv4, s.nodes[0].IPv6) {
		if _, err := site.Page(s.outside, to.String(), "/healthz"); err != nil {
			s.t.Error(err)
		}
	}
}

// shortly is long enough for a response to arrive, if there is one.
const shortly = 500 * time.Millisecond

// stopped checks that connections fail: they time out or are rejected.
func (s *town) stopped(what string, from *fabric.Namespace, to ...netip.AddrPort) {
	s.t.Helper()
	for _, addr := range to {
		if reply, err := from.Request("tcp", addr, shortly); err == nil {
			s.t.Errorf("%s: %s reaches %s at %s, want it blocked", what, from.Name, reply.Pod, addr)
		}
	}
}
