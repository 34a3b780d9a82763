package endure_test

import (
	"net"
	"sync"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// wire is the proxy's connection to the API server: a forwarder on the node's loopback that a test can cut, block and
// remove.
type wire struct {
	t       *testing.T
	node    *fabric.Namespace
	target  string // the API server's address
	serving sync.WaitGroup

	mu         sync.Mutex
	listener   net.Listener // nil while connections are refused
	conns      map[net.Conn]bool
	forwarding chan struct{} // closed while data is forwarded
}

// wireAddress is below the kernel's ephemeral ports. Otherwise a client that dials it repeatedly while no program
// listens could get that port as its own and connect to itself.
const wireAddress = "127.0.0.1:6443"

func newWire(t *testing.T, node *fabric.Namespace, target string) *wire {
	t.Helper()
	w := &wire{t: t, node: node, target: target, conns: map[net.Conn]bool{}, forwarding: make(chan struct{})}
	close(w.forwarding)
	w.heal()
	t.Cleanup(func() {
		w.rejectConnections()
		w.thaw()
		w.serving.Wait()
	})
	return w
}

// heal forwards connections again, whatever the fault was.
func (w *wire) heal() {
	w.t.Helper()
	w.thaw()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listener != nil {
		return
	}
	listener, err := w.node.Listen("tcp", wireAddress)
	must.Succeed(w.t, err)
	w.listener = listener
	w.serving.Go(func() { w.accept(listener) })
}

func (w *wire) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return // the listener was closed
		}
		w.serving.Go(func() { w.forward(client) })
	}
}

// forward connects a client with the API server. While that does not run, it closes the client's connection.
func (w *wire) forward(client net.Conn) {
	defer client.Close()
	w.waitUntilForwarding()
	server, err := w.node.Dial("tcp", w.target, waitTimeout)
	if err != nil {
		return
	}
	defer server.Close()
	if !w.add(client, server) {
		return
	}
	w.serving.Go(func() { w.copy(server, client) })
	w.copy(client, server)
}

// add registers both ends of a connection. It returns false while connections are refused.
func (w *wire) add(client, server net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listener == nil {
		return false
	}
	w.conns[client], w.conns[server] = true, true
	return true
}

// copy copies data from one end to the other, and closes both when one is closed.
func (w *wire) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	for buffer := make([]byte, 32<<10); ; {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		w.waitUntilForwarding()
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// waitUntilForwarding returns when data is forwarded.
func (w *wire) waitUntilForwarding() {
	w.mu.Lock()
	flows := w.forwarding
	w.mu.Unlock()
	<-flows
}

// cut closes all connections. New ones are forwarded.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for conn := range w.conns {
		_ = conn.Close() // its peer may have been quicker
	}
	clear(w.conns)
}

// rejectConnections closes all connections and refuses new ones, like a machine without a running API server.
func (w *wire) rejectConnections() {
	w.mu.Lock()
	if w.listener != nil {
		_ = w.listener.Close() // nothing is lost with it
		w.listener = nil
	}
	w.mu.Unlock()
	w.cut()
}

// freeze accepts connections and data from now on but forwards nothing, like a network that loses packets.
func (w *wire) freeze() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forwarding = make(chan struct{})
}

// thaw forwards again, including the delayed data.
func (w *wire) thaw() {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.forwarding:
	default:
		close(w.forwarding)
	}
}
