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

// Reply is what a server of the fabric answers: who it is and whom it sees.
type Reply struct {
	// Pod is the name of the namespace that answered, be it a pod's, a node's or a host's.
	Pod string `json:"pod"`
	// Node is the node it is on; empty for a host.
	Node string `json:"node"`
	// Server is the address and port at which the question arrived.
	Server netip.AddrPort `json:"server"`
	// Client is the address and port from which the server saw the question come.
	Client netip.AddrPort `json:"client"`
	// Own is the address and port from which the client asked, as it knows them itself. It differs from Client if a
	// machine on the way translated the source.
	Own netip.AddrPort `json:"-"`
}

// Timeout is how long Get waits for a connection and its answer: far more than they take, for a machine may be busy with
// other tests.
const Timeout = 30 * time.Second

// The source ports that Ask uses, in turn. The kernel's own choice may come back to a port whose connection conntrack
// still remembers, and with it to the same endpoint.
const (
	firstPort = 20000
	portCount = 40000
)

// Get asks a server over TCP. The connection is a new one, from a port not used lately.
func (n *Namespace) Get(addr netip.AddrPort) (Reply, error) { return n.Request("tcp", addr, Timeout) }

// Request asks a server over tcp, udp or sctp, waiting for the answer no longer than patience. The connection is a new
// one, from a port not used lately. An error keeps what the kernel said, so that errors.Is finds syscall.ECONNREFUSED
// or os.ErrDeadlineExceeded in it.
func (n *Namespace) Request(network string, addr netip.AddrPort, timeout time.Duration) (Reply, error) {
	return n.RequestFrom(network, netip.Addr{}, addr, timeout)
}

// RequestFrom is Ask from an address of the machine, such as one that AddAddr gave it. Without an address the kernel
// chooses.
func (n *Namespace) RequestFrom(network string, own netip.Addr, addr netip.AddrPort, timeout time.Duration) (Reply, error) {
	deadline := time.Now().Add(timeout)
	conversation, err := n.open(network, own, addr, deadline)
	var reply Reply
	if err == nil {
		reply, err = conversation.request(deadline)
		err = errors.Join(err, conversation.Close())
	}
	if err != nil {
		err = fmt.Errorf("asking %s over %s from %s: %w", addr, network, n.Name, explainTimeout(err))
	}
	return reply, err
}

// explainTimeout gives every timeout one name: that of a net.Dialer is not os.ErrDeadlineExceeded.
func explainTimeout(err error) error {
	var network net.Error
	if errors.As(err, &network) && network.Timeout() && !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w: %w", os.ErrDeadlineExceeded, err)
	}
	return err
}

// dialFresh connects from a port not used lately.
func (n *Namespace) dialFresh(network string, own netip.Addr, addr netip.AddrPort, deadline time.Time) (net.Conn, error) {
	for {
		dialer := &net.Dialer{LocalAddr: localEnd(network, netip.AddrPortFrom(own, n.freshPort())), Deadline: deadline}
		dialer.SetMultipathTCP(false)
		conn, err := n.dial(dialer, network, addr.String())
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(deadline) {
			return conn, err
		}
	}
}

func (n *Namespace) freshPort() uint16 { return uint16(firstPort + n.lastPort.Add(1)%portCount) }

func localEnd(network string, own netip.AddrPort) net.Addr {
	if network == "udp" {
		return net.UDPAddrFromAddrPort(own)
	}
	return net.TCPAddrFromAddrPort(own)
}
