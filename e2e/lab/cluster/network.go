package cluster

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
)

const dialTimeout = 10 * time.Second

// nodeSysctls are the settings that manifests/README.md recommends for nodes.
var nodeSysctls = map[string]string{
	"net.netfilter.nf_conntrack_tcp_timeout_established": "86400",
	"net.netfilter.nf_conntrack_tcp_timeout_close_wait":  "3600",
}

// makeNetworks creates the networks of all nodes and of the control plane. The control plane has routes to pods through
// their nodes: the API server dials pods for its clients, and webhooks for itself.
func (c *Cluster) makeNetworks() (err error) {
	if c.network, err = fabric.New(); err != nil {
		return err
	}
	for number := range c.config.Nodes {
		if _, err := c.network.AddNode(nodeName(number + 1)); err != nil {
			return err
		}
	}
	nodes := c.network.Nodes()
	for _, node := range nodes {
		for name, value := range nodeSysctls {
			if err := node.SetSysctl(name, value); err != nil {
				return err
			}
		}
		if !c.config.NodeDNS {
			continue
		}
		if err := node.AddAddr(nodeDNS); err != nil {
			return err
		}
	}
	if c.host, err = c.network.AddHost("control-plane", nodes[0]); err != nil {
		return err
	}
	for _, node := range nodes {
		ipv4, ipv6 := node.PodCIDRs()
		if err := errors.Join(c.host.RouteVia(ipv4, node.Namespace), c.host.RouteVia(ipv6, node.Namespace)); err != nil {
			return err
		}
	}
	return nil
}

// forwarder accepts connections on the machine's loopback and forwards them to one address inside a network namespace.
// Clients still have to authenticate: the connections carry TLS.
type forwarder struct {
	listener net.Listener
	from     *fabric.Host
	to       string

	mu   sync.Mutex
	open map[net.Conn]struct{} // nil once closed
	wait sync.WaitGroup
}

func newForwarder(from *fabric.Host, to string) (*forwarder, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for API server clients: %w", err)
	}
	f := &forwarder{listener: listener, from: from, to: to, open: map[net.Conn]struct{}{}}
	f.wait.Go(f.accept)
	return f, nil
}

func (f *forwarder) address() string { return f.listener.Addr().String() }

func (f *forwarder) accept() {
	for {
		client, err := f.listener.Accept()
		if err != nil {
			return // closed
		}
		f.wait.Go(func() { f.serve(client) })
	}
}

// serve copies data in both directions until either side closes.
func (f *forwarder) serve(client net.Conn) {
	defer f.untrack(client)
	if !f.track(client) {
		return
	}
	server, err := f.from.Dial("tcp", f.to, dialTimeout)
	if err != nil {
		return // the client's connection is closed
	}
	defer f.untrack(server)
	if !f.track(server) {
		return
	}
	done := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1]) // closing the pair ends the other direction
			done <- struct{}{}
		}()
	}
	<-done
}

func (f *forwarder) track(conn net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open == nil {
		return false
	}
	f.open[conn] = struct{}{}
	return true
}

func (f *forwarder) untrack(conn net.Conn) {
	conn.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, conn)
}

func (f *forwarder) close() {
	f.listener.Close()
	f.mu.Lock()
	for conn := range f.open {
		conn.Close()
	}
	f.open = nil
	f.mu.Unlock()
	f.wait.Wait()
}
