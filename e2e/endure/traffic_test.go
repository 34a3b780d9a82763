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

// slowest is the timeout of one connection or reply. It is long, so that a busy machine loses none.
const slowest = 20 * time.Second

// traffic runs clients that continue until it ends. Each failure of a client fails the test.
type traffic struct {
	t       *testing.T
	ended   chan struct{}
	clients sync.WaitGroup

	// dials counts new connections, sticky those of clients with session affinity, replies those on open connections,
	// datagrams those over UDP, and sentAgain datagrams that got a reply only after a retransmission.
	dials, replies, sticky, datagrams, sentAgain atomic.Int64
}

func newTraffic(t *testing.T) *traffic { return &traffic{t: t, ended: make(chan struct{})} }

// end stops the clients and waits until all have ended.
func (f *traffic) end() {
	close(f.ended)
	f.clients.Wait()
}

// goOn calls step until the traffic ends or the step fails.
func (f *traffic) goOn(step func() error) {
	f.clients.Go(func() {
		for {
			select {
			case <-f.ended:
				return
			default:
			}
			if err := step(); err != nil {
				f.t.Error(err)
				return
			}
		}
	})
}

// dial makes new TCP connections, one after the other, as fast as possible.
func (f *traffic) dial(client *fabric.Namespace, to netip.AddrPort) {
	f.goOn(func() error {
		conn, err := client.Dial("tcp", to.String(), slowest)
		if err != nil {
			return err
		}
		f.dials.Add(1)
		// A reset instead of a FIN leaves no client port in TIME_WAIT.
		return errors.Join(conn.(*net.TCPConn).SetLinger(0), conn.Close())
	})
}

// openTo opens a connection that stays open until the test ends. It retries if the machine was too slow for the
// fabric's timeout.
func openTo(t *testing.T, client *fabric.Namespace, network string, to netip.AddrPort) *fabric.Conversation {
	t.Helper()
	for deadline := time.Now().Add(slowest); ; {
		conversation, err := client.Open(network, to)
		if err == nil {
			t.Cleanup(func() { _ = conversation.Close() })
			return conversation
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// converse sends requests over one open connection, which must stay with its endpoint.
func (f *traffic) converse(client *fabric.Namespace, network string, to netip.AddrPort) {
	f.t.Helper()
	conversation := openTo(f.t, client, network, to)
	first, err := conversation.Request(slowest)
	must.Succeed(f.t, err)
	f.goOn(func() error {
		reply, err := conversation.Request(slowest)
		if err != nil {
			return err
		}
		if reply.Pod != first.Pod {
			return fmt.Errorf("an open connection of %s to %s over %s: %s responds, %s did before", client.Name, to, network, reply.Pod, first.Pod)
		}
		f.replies.Add(1)
		time.Sleep(5 * time.Millisecond)
		return nil
	})
}

// stick makes new connections to a Service with session affinity, which must all reach the same endpoint.
func (f *traffic) stick(client *fabric.Namespace, to netip.AddrPort) {
	f.t.Helper()
	first, err := client.Request("tcp", to, slowest)
	must.Succeed(f.t, err)
	f.goOn(func() error {
		reply, err := client.Request("tcp", to, slowest)
		if err != nil {
			return err
		}
		if reply.Pod != first.Pod {
			return fmt.Errorf("%s reached %s at %s, but %s before", client.Name, reply.Pod, to, first.Pod)
		}
		f.sticky.Add(1)
		time.Sleep(5 * time.Millisecond)
		return nil
	})
}

// query sends requests over UDP, each from another port. A datagram to or from an endpoint that is removed may be lost,
// as in any network; the retransmission must get a reply.
func (f *traffic) query(client *fabric.Namespace, to netip.AddrPort) {
	f.goOn(func() error {
		_, err := client.Request("udp", to, time.Second)
		for range 5 {
			if err == nil {
				break
			}
			f.sentAgain.Add(1)
			_, err = client.Request("udp", to, slowest)
		}
		f.datagrams.Add(1)
		return err
	})
}
