package fabric

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
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
	// Client is the address and port from which the server saw the question come.
	Client netip.AddrPort `json:"client"`
}

// Patience is how long Get waits for a connection and its answer.
const Patience = 2 * time.Second

// The source ports that Ask uses, in turn. The kernel's own choice may come back to a port whose connection conntrack still
// remembers, and with it to the same endpoint.
const (
	firstPort = 20000
	portCount = 40000
)

// Get asks a server over TCP. The connection is a new one, from a port not used lately.
func (n *Namespace) Get(addr netip.AddrPort) (Reply, error) { return n.Ask("tcp", addr, Patience) }

// Ask asks a server over tcp, udp or sctp, waiting for the answer no longer than patience. The connection is a new one, from
// a port not used lately. An error keeps what the kernel said, so that errors.Is finds syscall.ECONNREFUSED or
// os.ErrDeadlineExceeded in it.
func (n *Namespace) Ask(network string, addr netip.AddrPort, patience time.Duration) (Reply, error) {
	deadline := time.Now().Add(patience)
	answer, err := n.exchange(network, addr, deadline)
	if err != nil {
		return Reply{}, fmt.Errorf("asking %s over %s from %s: %w", addr, network, n.Name, sayTimeout(err))
	}
	var reply Reply
	if err := json.Unmarshal(answer, &reply); err != nil {
		return Reply{}, fmt.Errorf("reading the answer of %s over %s: %w", addr, network, err)
	}
	return reply, nil
}

// sayTimeout gives every timeout one name: that of a net.Dialer is not os.ErrDeadlineExceeded.
func sayTimeout(err error) error {
	var network net.Error
	if errors.As(err, &network) && network.Timeout() && !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w: %w", os.ErrDeadlineExceeded, err)
	}
	return err
}

func (n *Namespace) exchange(network string, addr netip.AddrPort, deadline time.Time) ([]byte, error) {
	if network == "sctp" {
		return n.exchangeSCTP(addr, deadline)
	}
	conn, err := n.dialFresh(network, addr, deadline)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if network == "udp" {
		return exchangeMessage(conn)
	}
	return exchangeHTTP(conn, addr)
}

// exchangeMessage sends a question and reads the answer, each in one message.
func exchangeMessage(conn net.Conn) ([]byte, error) {
	if _, err := conn.Write([]byte("?")); err != nil {
		return nil, err
	}
	answer := make([]byte, maxMessage)
	size, err := conn.Read(answer)
	return answer[:size], err
}

func exchangeHTTP(conn net.Conn, addr netip.AddrPort) ([]byte, error) {
	request, err := http.NewRequest(http.MethodGet, "http://"+addr.String()+"/", nil)
	if err != nil {
		return nil, err
	}
	request.Close = true
	if err := request.Write(conn); err != nil {
		return nil, err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server answered %s", response.Status)
	}
	var answer json.RawMessage
	err = json.NewDecoder(response.Body).Decode(&answer)
	return answer, err
}

// dialFresh connects from a port not used lately.
func (n *Namespace) dialFresh(network string, addr netip.AddrPort, deadline time.Time) (net.Conn, error) {
	for {
		dialer := &net.Dialer{LocalAddr: localPort(network, n.freshPort()), Deadline: deadline}
		dialer.SetMultipathTCP(false)
		conn, err := n.dial(dialer, network, addr.String())
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(deadline) {
			return conn, err
		}
	}
}

func (n *Namespace) freshPort() uint16 { return uint16(firstPort + n.lastPort.Add(1)%portCount) }

func localPort(network string, port uint16) net.Addr {
	if network == "udp" {
		return &net.UDPAddr{Port: int(port)}
	}
	return &net.TCPAddr{Port: int(port)}
}
