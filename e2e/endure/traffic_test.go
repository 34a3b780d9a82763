package endure_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// requestTimeout is the timeout of one connection or reply. It is long, so that a busy machine loses none.
const requestTimeout = 20 * time.Second

// traffic runs clients that continue until it ends. Each failure of a client fails the test.
type traffic struct {
	t       *testing.T
	ended   chan struct{}
	clients sync.WaitGroup

	// dials counts new connections, sticky those of clients with session affinity, replies those on open connections,
	// datagrams those over UDP, and retransmitted datagrams that got a reply only after a retransmission.
	dials, replies, withAffinity, datagrams, retransmitted atomic.Int64
}

func newTraffic(t *testing.T) *traffic { return &traffic{t: t, ended: make(chan struct{})} }

// end stops the clients and waits until all have ended.
func (tr *traffic) end() {
	close(tr.ended)
	tr.clients.Wait()
}

// repeat calls step until the traffic ends or the step fails.
func (tr *traffic) repeat(step func() error) {
	tr.clients.Go(func() {
		for {
			select {
			case <-tr.ended:
				return
			default:
			}
			if err := step(); err != nil {
				tr.t.Error(err)
				return
			}
		}
	})
}

// dial makes new TCP connections, one after the other, as fast as possible.
func (tr *traffic) dial(client *fabric.Namespace, to netip.AddrPort) {
	tr.repeat(func() error {
		conn, err := client.Dial("tcp", to.String(), requestTimeout)
		if err != nil {
			return err
		}
		tr.dials.Add(1)
		// A reset instead of a FIN leaves no client port in TIME_WAIT.
		return errors.Join(conn.(*net.TCPConn).SetLinger(0), conn.Close())
	})
}

// openTo opens a connection that stays open until the test ends. It retries if the machine was too slow for the
// fabric's timeout.
func openTo(t *testing.T, client *fabric.Namespace, network string, to netip.AddrPort) *fabric.Connection {
	t.Helper()
	for deadline := time.Now().Add(requestTimeout); ; {
		conn, err := client.Open(network, to)
		if err == nil {
			t.Cleanup(func() { _ = conn.Close() })
			return conn
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// requestOnOneConnection sends requests over one open connection, which must stay with its endpoint.
func (tr *traffic) requestOnOneConnection(client *fabric.Namespace, network string, to netip.AddrPort) {
	tr.t.Helper()
	conn := openTo(tr.t, client, network, to)
	first, err := conn.Request(requestTimeout)
	must.Succeed(tr.t, err)
	tr.repeat(func() error {
		reply, err := conn.Request(requestTimeout)
		if err != nil {
			return err
		}
		if reply.Pod != first.Pod {
			return fmt.Errorf("an open connection of %s to %s over %s: %s responds, %s did before", client.Name, to, network, reply.Pod, first.Pod)
		}
		tr.replies.Add(1)
		time.Sleep(5 * time.Millisecond)
		return nil
	})
}

// dialWithAffinity makes new connections to a Service with session affinity, which must all reach the same endpoint.
func (tr *traffic) dialWithAffinity(client *fabric.Namespace, to netip.AddrPort) {
	tr.t.Helper()
	first, err := client.Request("tcp", to, requestTimeout)
	must.Succeed(tr.t, err)
	tr.repeat(func() error {
		reply, err := client.Request("tcp", to, requestTimeout)
		if err != nil {
			return err
		}
		if reply.Pod != first.Pod {
			return fmt.Errorf("%s reached %s at %s, but %s before", client.Name, reply.Pod, to, first.Pod)
		}
		tr.withAffinity.Add(1)
		time.Sleep(5 * time.Millisecond)
		return nil
	})
}

// query sends requests over UDP, each from another port. A datagram to or from an endpoint that is removed may be lost,
// as in any network; the retransmission must get a reply.
func (tr *traffic) query(client *fabric.Namespace, to netip.AddrPort) {
	tr.repeat(func() error {
		_, err := client.Request("udp", to, time.Second)
		for range 5 {
			if err == nil {
				break
			}
			tr.retransmitted.Add(1)
			_, err = client.Request("udp", to, requestTimeout)
		}
		tr.datagrams.Add(1)
		return err
	})
}
