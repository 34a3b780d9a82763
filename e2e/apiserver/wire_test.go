package apiserver_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/reserve"
)

// wire is the connection between a client and the API server: a forwarder on loopback that a test can cut.
type wire struct {
	t       *testing.T
	address string
	serving sync.WaitGroup

	mu       sync.Mutex
	target   string
	isCut    bool
	listener net.Listener
	conns    map[net.Conn]bool
}

// newWire returns a wire to the API server, and the configuration of a client that uses it.
func newWire(t *testing.T, config *rest.Config) (*wire, *rest.Config) {
	t.Helper()
	w := &wire{t: t, address: reserve.OnLoopback(t).String(), conns: map[net.Conn]bool{}}
	w.listen()
	t.Cleanup(func() { w.rejectConnections(); w.serving.Wait() })
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		w.mu.Lock()
		w.target = address
		w.mu.Unlock()
		return (&net.Dialer{}).DialContext(ctx, network, w.address)
	}
	return w, config
}

// listen accepts connections.
func (w *wire) listen() {
	w.t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(w.t.Context(), "tcp", w.address)
	if err != nil {
		w.t.Fatal(err)
	}
	w.listener = listener
	w.serving.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			w.serving.Go(func() { w.forward(client) })
		}
	})
}

func (w *wire) forward(client net.Conn) {
	defer client.Close()
	w.mu.Lock()
	target := w.target
	w.mu.Unlock()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	if !w.add(client, server) {
		return
	}
	w.serving.Go(func() { _, _ = io.Copy(server, client); server.Close() }) // tests cut connections, so errors are expected
	_, _ = io.Copy(client, server)
}

// add registers connections. It returns false while the wire is cut.
func (w *wire) add(conns ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isCut {
		return false
	}
	for _, conn := range conns {
		w.conns[conn] = true
	}
	return true
}

// closeConns closes all connections, and each new one, like a load balancer without an API server behind it.
func (w *wire) closeConns() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = true
	for conn := range w.conns {
		conn.Close()
	}
	clear(w.conns)
}

// rejectConnections closes all connections and refuses new ones, like a machine without a running API server.
func (w *wire) rejectConnections() {
	w.listener.Close()
	w.closeConns()
}

// heal lets connections through again.
func (w *wire) heal(wasRefused bool) {
	w.t.Helper()
	w.mu.Lock()
	w.isCut = false
	w.mu.Unlock()
	if wasRefused {
		w.listen()
	}
}
