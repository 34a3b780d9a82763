package packets_test

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// manyRanges sets count source ranges with a gap after each, and the ranges of the given clients.
func manyRanges(count int, clients ...*fabric.Namespace) func(*model.Service) {
	return func(s *model.Service) {
		for number := range count {
			var ipv4 [4]byte
			binary.BigEndian.PutUint32(ipv4[:], 11<<24|uint32(number)<<9)
			ipv6 := [16]byte{0: 0x20, 1: 0x01, 2: 0x0d, 3: 0xb8, 4: 0xff}
			binary.BigEndian.PutUint16(ipv6[6:], uint16(number)<<1)
			s.SourceRanges = append(s.SourceRanges,
				netip.PrefixFrom(netip.AddrFrom4(ipv4), 24), netip.PrefixFrom(netip.AddrFrom16(ipv6), 64))
		}
		clientRanges(clients...)(s)
	}
}

// TestARestartDropsNoConnectionThatSourceRangesAllow checks that allowed clients can connect at any time while a new
// proxy rewrites the tables of the previous one. If the first packet of a client was dropped, the client retransmits
// it, and the kernel counts that.
func TestARestartDropsNoConnectionThatSourceRangesAllow(t *testing.T) {
	c := newCluster(t, 1)
	node := c.nodes[0]
	client := c.addPod(node, "client").Namespace
	c.apply(service(web.withLoadBalancer, manyRanges(1000, client)).Merge(endpoints(c.addServer(node, "server"))))
	const enoughRestarts, enoughDials = 20, 3000
	var dials atomic.Int32
	ended := make(chan struct{})
	var dialling sync.WaitGroup
	stop := sync.OnceFunc(func() {
		close(ended)
		dialling.Wait()
	})
	defer stop() // also if a sync fails
	balancer := overNetworks(web.paths(node, model.LoadBalancerIP), "tcp")
	expect(t, "before the first restart", []*fabric.Namespace{client}, balancer, servedBy("server"))
	sentAgain := synRetransmissions(t, client)
	for _, to := range balancer {
		for range 2 {
			dialling.Go(func() { dialUntil(t, ended, client, to, &dials) })
		}
	}
	for restarts := 0; restarts < enoughRestarts || dials.Load() < enoughDials && !t.Failed(); restarts++ {
		c.restart(node)
		c.sync(node)
	}
	stop()
	if now := synRetransmissions(t, client); now != sentAgain {
		t.Errorf("%d SYNs of %d connections were retransmitted", now-sentAgain, dials.Load())
	}
}

// dialUntil dials over TCP, one connection after the other, and counts them.
func dialUntil(t *testing.T, ended <-chan struct{}, client *fabric.Namespace, to path, dials *atomic.Int32) {
	for {
		select {
		case <-ended:
			return
		default:
		}
		conn, err := client.Dial("tcp", to.addr.String(), fabric.Timeout)
		if err != nil {
			t.Errorf("%s: %v", to, err)
			return
		}
		// A reset instead of a FIN leaves no port of the client in TIME_WAIT.
		if err := errors.Join(conn.(*net.TCPConn).SetLinger(0), conn.Close()); err != nil {
			t.Errorf("%s: %v", to, err)
		}
		dials.Add(1)
	}
}

// synRetransmissions returns the number of SYNs that a machine has retransmitted.
func synRetransmissions(t *testing.T, n *fabric.Namespace) int {
	t.Helper()
	var text []byte
	err := n.Do(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/netstat")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	// Each kind has two lines, the names and then the numbers.
	var names []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		for i, name := range names {
			if name != "TCPSynRetrans" || len(fields) != len(names) || fields[0] != names[0] {
				continue
			}
			count, err := strconv.Atoi(fields[i])
			if err != nil {
				t.Fatal(err)
			}
			return count
		}
		names = fields
	}
	t.Fatal("/proc/net/netstat has no TCPSynRetrans")
	return 0
}
