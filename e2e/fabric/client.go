package fabric

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// Reply is the response of a fabric server: its own identity and the client address that it sees.
type Reply struct {
	// Pod is the name of the namespace that responded: a pod's, a node's or a host's.
	Pod string `json:"pod"`
	// Node is the node of that namespace; empty for a host.
	Node string `json:"node"`
	// Server is the address and port that received the request.
	Server netip.AddrPort `json:"server"`
	// Client is the client's address and port as the server sees them.
	Client netip.AddrPort `json:"client"`
	// Local is the client's address and port as the client sees them. It differs from Client if a machine on the path
	// translated the source.
	Local netip.AddrPort `json:"-"`
}

// Timeout bounds how long Get waits for a connection and its response. It is far more than they take, because other
// tests may load the machine.
const Timeout = 30 * time.Second

// Requests use these source ports in rotation. A port that the kernel chooses may belong to a connection that conntrack
// still tracks, which would lead to the same endpoint.
const (
	firstPort = 20000
	portCount = 40000
)

// Get sends a request over TCP on a new connection, from a port that was not used recently.
func (n *Namespace) Get(addr netip.AddrPort) (Reply, error) { return n.Request("tcp", addr, Timeout) }

// Request sends a request over tcp, udp or sctp and waits at most timeout for the response. The connection is new, from
// a port that was not used recently. The error wraps the kernel's error, so that errors.Is finds syscall.ECONNREFUSED
// or os.ErrDeadlineExceeded.
func (n *Namespace) Request(network string, addr netip.AddrPort, timeout time.Duration) (Reply, error) {
	return n.RequestFrom(network, netip.Addr{}, addr, timeout)
}

// RequestFrom is Request from the given address of the machine, such as one that AddAddr added. If source is invalid,
// the kernel chooses the address.
func (n *Namespace) RequestFrom(network string, source netip.Addr, addr netip.AddrPort, timeout time.Duration) (Reply, error) {
	deadline := time.Now().Add(timeout)
	conn, err := n.open(network, source, addr, deadline)
	var reply Reply
	if err == nil {
		reply, err = conn.request(deadline)
		err = errors.Join(err, conn.Close())
	}
	if err != nil {
		err = fmt.Errorf("request to %s over %s from %s: %w", addr, network, n.Name, explainTimeout(err))
	}
	return reply, err
}

// explainTimeout makes every timeout os.ErrDeadlineExceeded; the timeout error of net.Dialer is not.
func explainTimeout(err error) error {
	var network net.Error
	if errors.As(err, &network) && network.Timeout() && !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w: %w", os.ErrDeadlineExceeded, err)
	}
	return err
}

// dialFresh connects from a port that was not used recently.
func (n *Namespace) dialFresh(network string, source netip.Addr, addr netip.AddrPort, deadline time.Time) (net.Conn, error) {
	for {
		dialer := &net.Dialer{LocalAddr: localAddr(network, netip.AddrPortFrom(source, n.freshPort())), Deadline: deadline}
		dialer.SetMultipathTCP(false)
		conn, err := n.dial(dialer, network, addr.String())
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(deadline) {
			return conn, err
		}
	}
}

func (n *Namespace) freshPort() uint16 { return uint16(firstPort + n.lastPort.Add(1)%portCount) }

func localAddr(network string, source netip.AddrPort) net.Addr {
	if network == "udp" {
		return net.UDPAddrFromAddrPort(source)
	}
	return net.TCPAddrFromAddrPort(source)
}
