package packets_test

import (
	"errors"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// atOnce is well below a second, after which TCP sends its next SYN and would be refused even if it overlooked the first answer.
const atOnce = 500 * time.Millisecond

// mustBeRefused dials from a pod and from the node and expects a refusal at once. A datagram socket on the node learns it from
// send itself, with EPERM, as the kernel tells every sender whose packet a reject stops on the way out.
func mustBeRefused(t *testing.T, c *cluster, client *fabric.Pod, why string, to path) {
	t.Helper()
	for _, from := range []*fabric.Namespace{client.Namespace, c.nodes[0].Namespace} {
		started := time.Now()
		_, err := from.Ask(to.network, to.addr, fabric.Patience)
		refused := errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EPERM) && from == c.nodes[0].Namespace
		if !refused || time.Since(started) > atOnce {
			t.Errorf("%s: %s from %s: %v after %s, want a refusal at once", why, to, from.Name, err, time.Since(started))
		}
	}
}

// mustBeSilent dials from a pod and from the node and expects no answer at all.
func mustBeSilent(t *testing.T, c *cluster, client *fabric.Pod, why string, to path) {
	t.Helper()
	for _, from := range []*fabric.Namespace{client.Namespace, c.nodes[0].Namespace} {
		const patience = 300 * time.Millisecond
		started := time.Now()
		_, err := from.Ask(to.network, to.addr, patience)
		// What the node itself sends is stopped before it leaves, so that a datagram socket is told.
		told := errors.Is(err, syscall.EPERM) && from == c.nodes[0].Namespace
		silent := errors.Is(err, os.ErrDeadlineExceeded) && time.Since(started) >= patience
		if !silent && !told {
			t.Errorf("%s: %s from %s: %v after %s, want silence", why, to, from.Name, err, time.Since(started))
		}
	}
}

// TestRefusalsDoNotRunOut: the kernel bounds ICMP errors to six in a row for each receiver, which would leave a client that
// tries again and again waiting. TCP is refused by resets, which it does not bound.
func TestRefusalsDoNotRunOut(t *testing.T) {
	c := newCluster(t, 1)
	client := c.addPod(c.nodes[0], "client")
	meetNeighbours(t, client, c.addServer(c.nodes[0], "server"))
	c.apply(service())
	for _, to := range []path{paths[0], paths[3]} {
		for range 30 {
			mustBeRefused(t, c, client, "the thirtieth time like the first", to)
		}
	}
}

// meetNeighbours lets a client and its node learn each other's link addresses in both families, for which a first packet on a
// new link may have to wait.
func meetNeighbours(t *testing.T, client *fabric.Pod, server *pod) {
	t.Helper()
	for _, addr := range []netip.Addr{server.IPv4, server.IPv6} {
		mustAsk(t, client.Namespace, path{"tcp", netip.AddrPortFrom(addr, podPort)})
	}
}

func TestRefusals(t *testing.T) {
	c := newCluster(t, 2)
	far := c.addServer(c.nodes[1], "far")
	client := c.addPod(c.nodes[0], "client")
	meetNeighbours(t, client, far)

	c.apply(service())
	for _, to := range paths {
		mustBeRefused(t, c, client, "a Service without endpoints", to)
	}
	c.apply(endpoints(far))
	for _, to := range paths {
		mustAsk(t, client.Namespace, to)
		to.addr = netip.AddrPortFrom(to.addr.Addr(), 81)
		mustBeRefused(t, c, client, "a port that the Service does not define", to)
	}
	c.apply(service(func(s *model.Service) { s.Topology.Keys = []policy.Key{"kubernetes.io/hostname"} }))
	for _, to := range paths {
		mustBeRefused(t, c, client, "a hard key that nothing matches", to)
	}
	c.apply(service(func(s *model.Service) { s.InternalTrafficLocal = true }))
	for _, to := range paths {
		mustBeSilent(t, c, client, "internalTrafficPolicy Local with endpoints only elsewhere", to)
	}
	c.apply(endpoints())
	for _, to := range paths {
		mustBeRefused(t, c, client, "internalTrafficPolicy Local without any endpoint", to)
	}
	c.apply(service())
	c.apply(endpoints(far))
	for _, to := range paths {
		mustAsk(t, client.Namespace, to)
	}
}
