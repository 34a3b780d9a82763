package xds

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/reserve"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// TestOverloadDoesNotBlockOthers: one address keeps opening connections, sends data that is not HTTP, opens streams,
// and keeps subscribing to other names. A client at another address still gets all changes, and afterwards no usage is
// left.
func TestOverloadDoesNotBlockOthers(t *testing.T) {
	address := reserve.OnLoopback(t).String()
	s := startServer(t, address, allowAll)
	otherStream := open(t, s.socket(t))
	must.Succeed(t, otherStream.SendMsg(requestOf(assignments, "", web)))
	receiveAndAck(t, otherStream)

	stop := make(chan struct{})
	var load sync.WaitGroup
	repeat := func(step func(dialer net.Dialer)) {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					step(net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 3)}, Timeout: time.Second})
				}
			}
		})
	}
	var held sync.Map
	for range 2 {
		repeat(func(dialer net.Dialer) { // connections that stay open
			if conn, err := dialer.Dial("tcp", address); err == nil {
				held.Store(conn, true)
				time.Sleep(time.Millisecond)
			}
		})
		repeat(func(dialer net.Dialer) { // data that is not HTTP
			if conn, err := dialer.Dial("tcp", address); err == nil {
				noise := make([]byte, 1000)
				_, _ = rand.Read(noise)
				_, _ = conn.Write(noise)
				_ = conn.Close()
			}
		})
	}
	conn := s.socket(t)
	for i := range 3 {
		load.Go(func() { // always new names
			stream := open(t, conn)
			for k := 0; ; k++ {
				select {
				case <-stop:
					return
				default:
				}
				if stream.SendMsg(requestOf(listeners, "", fmt.Sprintf("w%d-%d.shop:80", i, k))) != nil {
					return
				}
			}
		})
	}
	for i := range 50 {
		began := time.Now()
		s.addService("web", "", []uint16{80}, fmt.Sprintf("%d@node-1/a", 1+i))
		if got := receiveAndAck(t, otherStream); got.tiers != fmt.Sprintf("%d (a, 1)", 1+i) {
			t.Errorf("got %+v", got)
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("a change took %v", took)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if s.count(string(TooManyConnections)) == 0 {
		t.Error("no connection was rejected: the load was too small")
	}
	close(stop)
	must.Succeed(t, conn.Close())
	load.Wait()
	held.Range(func(conn, _ any) bool { _ = conn.(net.Conn).Close(); return true })
	wait.Equal(t, "streams and names", "1 1", s.usageText)
}

// TestConnectionsAreCounted: each connection counts for its address until it is closed.
func TestConnectionsAreCounted(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer func() { _ = listener.Close() }()
	server := Server{IsLocalClient: allowAll, Log: slog.New(slog.DiscardHandler)}
	limited := limitListener{Listener: listener, admit: server.admitConnection}
	accepted := make(chan net.Conn, 10)
	go func() {
		for {
			conn, err := limited.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", listener.Addr().String())
		must.Succeed(t, err)
		return conn
	}
	var last net.Conn
	for range maxPerClient {
		dial()
		last = wait.Receive(t, "a connection", accepted)
	}
	if n, err := dial().Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error("a connection beyond the limit is admitted")
	}
	must.Succeed(t, last.Close())
	_ = last.Close() // closing twice counts once
	dial()
	wait.Receive(t, "a connection in the freed slot", accepted)
	if n, err := dial().Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error("a second connection beyond the limit is admitted")
	}
	if got := server.Counts().Rejected[TooManyConnections]; got != 2 {
		t.Errorf("%d connections are counted as rejected, want 2", got)
	}
}
