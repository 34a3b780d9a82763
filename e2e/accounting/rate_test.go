package accounting_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// loadPort is the port of a load generator's listener.
const loadPort = 8082

// loadGenerator makes short connections as fast as one thread can. It is their client and their server.
type loadGenerator struct {
	t         testing.TB
	client    *fabric.Pod
	server    *fabric.Pod
	listener  int
	opened    int
	latencies []time.Duration // duration of each connect(2)
}

func newLoadGenerator(t testing.TB, client, server *fabric.Pod) *loadGenerator {
	t.Helper()
	g := &loadGenerator{t: t, client: client, server: server}
	must.Succeed(t, server.Do(func() (err error) {
		if g.listener, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return errors.Join(unix.Bind(g.listener, socketAddr(netip.AddrPortFrom(server.IPv4, loadPort))), unix.Listen(g.listener, 128))
	}))
	t.Cleanup(func() { _ = unix.Close(g.listener) })
	return g
}

func socketAddr(addr netip.AddrPort) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Addr: addr.Addr().As4(), Port: int(addr.Port())}
}

// dial makes the given number of connections, each of which ends with a reset, and returns the number per second.
func (g *loadGenerator) dial(to netip.AddrPort, connections, perSecond int) (rate float64) {
	g.t.Helper()
	began := time.Now()
	must.Succeed(g.t, g.client.Do(func() error {
		for i := range connections {
			if perSecond > 0 {
				time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(perSecond))))
			}
			if err := g.dialOne(to); err != nil {
				return fmt.Errorf("connection %d: %w", i, err)
			}
		}
		return nil
	}))
	return float64(connections) / time.Since(began).Seconds()
}

func (g *loadGenerator) dialOne(to netip.AddrPort) error {
	// Each connection uses the next port: when a port is reused, conntrack has deleted its last entry.
	const first, count = 10_000, 50_000
	from := netip.AddrPortFrom(g.client.IPv4, uint16(first+g.opened%count))
	g.opened++
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	if err := errors.Join(
		unix.SetsockoptLinger(socket, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
		unix.Bind(socket, socketAddr(from)),
	); err != nil {
		return err
	}
	began := time.Now()
	if err := unix.Connect(socket, socketAddr(to)); err != nil {
		return err
	}
	g.latencies = append(g.latencies, time.Since(began))
	accepted, _, err := unix.Accept4(g.listener, unix.SOCK_CLOEXEC)
	if err != nil {
		return err
	}
	return unix.Close(accepted)
}

// TestNoConnectionIsLostAt5000PerSecond has connections whose entries expire by themselves, a second after the reset.
func TestNoConnectionIsLostAt5000PerSecond(t *testing.T) {
	t.Parallel()
	const connections, perSecond = 15_000, 5000
	s := newSetup(t)
	server := s.addPod(s.otherZone, "server")
	loaded := s.add("loaded", allKeys, endpoint{pod: server})
	loaded.port = loadPort
	s.write()
	must.Succeed(t, s.local.SetSysctl("net.netfilter.nf_conntrack_tcp_timeout_close", "1"))
	s.addReferenceCounters(s.client.Namespace)
	s.startCounting(s.local)
	rate := newLoadGenerator(t, s.client, server).dial(loaded.clusterIP(model.IPv4), connections, perSecond)
	t.Logf("%.0f connections a second", rate)
	labels := expectedSeries{"other_zone", "*", "zone-b"}
	wait.Equal(t, "the connections", map[string]uint64{totalOf(labels): connections, connectionsOf(loaded, labels): connections},
		func() map[string]uint64 {
			return s.nonzeroSeries(s.local, "vicinity_connections_total", "vicinity_service_connections_total",
				"vicinity_accounting_not_counted_total")
		})
	s.expectBytes(map[*service]expectedSeries{loaded: labels}, s.referenceBytes(s.client.Namespace))
}

// TestRestartCountsEachConnectionOnce checks that a restarted proxy does not count connections that the previous one
// counted, and that it counts connections that are still open.
func TestRestartCountsEachConnectionOnce(t *testing.T) {
	t.Parallel()
	const times, megabyte = 5, 1_000_000
	s := newSetup(t)
	server := s.addPod(s.otherZone, "server")
	small, long := s.add("small", allKeys, endpoint{pod: server}), s.add("long", allKeys, endpoint{pod: server})
	long.port = transferPort
	s.write()
	s.addReferenceCounters(s.client.Namespace)
	smallSeries, longSeries := connectionsOf(small, expectedSeries{"other_zone", "*", ""}),
		connectionsOf(long, expectedSeries{"other_zone", "*", ""})
	counted := func() map[string]uint64 {
		return s.nonzeroSeries(s.local, "vicinity_service_connections_total")
	}
	earlier := s.startCounting(s.local)
	conn := s.dial(long, model.IPv4)
	must.Succeed(t, fabric.Transfer(conn, 20*megabyte, 5*megabyte))
	made := s.request(s.client.Namespace, small, times)[server.Name]
	s.endAllBut(long)
	wait.Equal(t, "the counts of the previous proxy", map[string]uint64{smallSeries: made}, counted)

	more := s.request(s.client.Namespace, small, 2*times)[server.Name] // they end while the restarted proxy listens
	before := s.referenceBytes(s.client.Namespace)
	must.Succeed(t, earlier.Stop(time.Minute))
	s.waitForTracked(s.startCounting(s.local), 1)
	if diff := cmp.Diff(map[string]uint64{}, counted()); diff != "" {
		t.Errorf("counts of the restarted proxy at its start (-want +got):\n%s", diff)
	}
	must.Succeed(t, fabric.Transfer(conn, 3*megabyte, 2*megabyte))
	must.Succeed(t, conn.Close())
	s.end()
	wait.Equal(t, "the counts of the restarted proxy", map[string]uint64{smallSeries: more}, counted)
	after := s.referenceBytes(s.client.Namespace)
	got := s.nonzeroSeries(s.local, "vicinity_service_traffic_bytes_total")
	for _, direction := range []string{"sent", "received"} {
		const labels = `locality="other_zone",namespace="shop",service="long",tier="*"`
		series := fmt.Sprintf("vicinity_service_traffic_bytes_total{direction=%q,%s}", direction, labels)
		if want := after[direction+" long"] - before[direction+" long"]; got[series] != want {
			t.Errorf("%s over the long connection since the restart: %d bytes, want %d", direction, got[series], want)
		}
	}
	if got[longSeries] != 0 {
		t.Errorf("the restarted proxy counted the long connection %d times, want 0", got[longSeries])
	}
}

// waitForTracked waits until the proxy tracks the given number of connections from before its start: then it has dumped
// the table.
func (s *setup) waitForTracked(proxy *site.Process, connections int) {
	s.t.Helper()
	proxy.Log.WaitFor(s.t, fmt.Sprintf(`msg="started to count connections" alreadyOpen=%d`, connections))
}

// endAllBut ends the closed connections, except for those to one Service.
func (s *setup) endAllBut(except *service) {
	s.t.Helper()
	s.endMatching(func(origDst netip.AddrPort) bool { return origDst != except.clusterIP(model.FamilyOf(origDst.Addr())) })
}

// TestLongConnectionIsCountedWhileOpen transfers a gigabyte over a connection that stays open, and expects its count
// within a bit more than a minute.
func TestLongConnectionIsCountedWhileOpen(t *testing.T) {
	t.Parallel()
	const megabyte, gigabyte = 1_000_000, 1_000_000_000
	s := newSetup(t)
	server := s.addPod(s.otherZone, "server")
	long, earlier := s.add("long", allKeys, endpoint{pod: server}), s.add("earlier", allKeys, endpoint{pod: server})
	long.port, earlier.port = transferPort, transferPort
	s.write()
	s.addReferenceCounters(s.client.Namespace)
	must.Succeed(t, s.startCounting(s.local).Stop(time.Minute))
	must.Succeed(t, fabric.Transfer(s.dial(earlier, model.IPv6), 2*megabyte, 2*megabyte))
	s.waitForTracked(s.startCounting(s.local), 1)
	must.Succeed(t, fabric.Transfer(s.dial(long, model.IPv6), gigabyte, gigabyte/10))
	moved := time.Now()
	series := expectedSeries{"other_zone", "*", "zone-b"}
	wait.Equal(t, "the count of an open connection", map[string]uint64{
		totalOf(series): 1, connectionsOf(long, series): 1,
	}, func() map[string]uint64 {
		return s.nonzeroSeries(s.local, "vicinity_connections_total", "vicinity_service_connections_total")
	})
	t.Logf("counted after %s", time.Since(moved).Round(time.Second))
	s.expectBytes(map[*service]expectedSeries{long: series}, s.referenceBytes(s.client.Namespace))
}
