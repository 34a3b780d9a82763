package endure_test

import (
	"net"
	"sync"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// wire is the proxy's way to the API server: a forwarder on the node's loopback that a test can cut, stop up and take
// away.
type wire struct {
	t       *testing.T
	node    *fabric.Namespace
	target  string // the API server
	serving sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener // nil while connections are refused
	conns    map[net.Conn]bool
	flows    chan struct{} // closed while bytes are let through
}

// wireAddress lies below the ports that the kernel gives to clients: a client that dials it again and again while no
// program listens could be given that very port and connect to itself.
const wireAddress = "127.0.0.1:6443"

func newWire(t *testing.T, node *fabric.Namespace, target string) *wire {
	t.Helper()
	w := &wire{t: t, node: node, target: target, conns: map[net.Conn]bool{}, flows: make(chan struct{})}
	close(w.flows)
	w.heal()
	t.Cleanup(func() {
		w.rejectConnections()
		w.thaw()
		w.serving.Wait()
	})
	return w
}

// heal lets connections through again, whatever was in their way.
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
			return // it was closed
		}
		w.serving.Go(func() { w.forward(client) })
	}
}

// forward connects a client with the API server. While that does not run, the client's connection ends without an
// answer.
func (w *wire) forward(client net.Conn) {
	defer client.Close()
	w.waitFor()
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

// add takes in the two ends of a connection, unless none is let through any more.
func (w *wire) add(client, server net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listener == nil {
		return false
	}
	w.conns[client], w.conns[server] = true, true
	return true
}

// copy carries bytes from one end to the other, and closes both when one is closed.
func (w *wire) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	for buffer := make([]byte, 32<<10); ; {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		w.waitFor()
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// waitFor returns when bytes are let through.
func (w *wire) waitFor() {
	w.mu.Lock()
	flows := w.flows
	w.mu.Unlock()
	<-flows
}

// cut ends all connections. Those that come are let through.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for conn := range w.conns {
		_ = conn.Close() // its peer may have been quicker
	}
	clear(w.conns)
}

// rejectConnections ends all connections and refuses those that come, as a machine does on which no API server runs.
func (w *wire) rejectConnections() {
	w.mu.Lock()
	if w.listener != nil {
		_ = w.listener.Close() // nothing is lost with it
		w.listener = nil
	}
	w.mu.Unlock()
	w.cut()
}

// freeze accepts everything from now on and carries nothing, as a network that loses packets does.
func (w *wire) freeze() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flows = make(chan struct{})
}

// thaw carries on, with what has waited.
func (w *wire) thaw() {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.flows:
	default:
		close(w.flows)
	}
}
