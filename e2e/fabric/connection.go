package fabric

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// Connection is a long-lived connection: all requests use the same source port and the same destination. It must not
// be used concurrently.
type Connection struct {
	network   string
	addr      netip.AddrPort
	client    *Namespace
	transport transport
}

// transport carries requests, one after the other.
type transport interface {
	// exchange sends a request and waits for its response until the deadline.
	exchange(deadline time.Time) ([]byte, error)
	// local returns the client's address and port.
	local() netip.AddrPort
	Close() error
}

// Open connects to a server over tcp, udp or sctp and keeps the connection. Over UDP it sends nothing yet.
func (n *Namespace) Open(network string, addr netip.AddrPort) (*Connection, error) {
	conn, err := n.open(network, netip.Addr{}, addr, time.Now().Add(Timeout))
	if err != nil {
		return nil, fmt.Errorf("open connection to %s over %s from %s: %w", addr, network, n.Name, explainTimeout(err))
	}
	return conn, nil
}

// OpenFrom opens a connection over UDP from the given source address. The address need not be on an interface.
func (n *Namespace) OpenFrom(source netip.Addr, addr netip.AddrPort) (*Connection, error) {
	dialer := &net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(source, n.freshPort()))}
	conn, err := n.dial(dialer, "udp", addr.String())
	if err != nil {
		return nil, fmt.Errorf("open connection to %s over udp from %s of %s: %w", addr, source, n.Name, err)
	}
	return &Connection{network: "udp", addr: addr, client: n, transport: messages{conn}}, nil
}

func (n *Namespace) open(network string, source netip.Addr, addr netip.AddrPort, deadline time.Time) (*Connection, error) {
	connection := &Connection{network: network, addr: addr, client: n}
	if network == "sctp" {
		association, err := n.openSCTP(source, addr, deadline)
		if err != nil {
			return nil, err
		}
		connection.transport = association
		return connection, nil
	}
	conn, err := n.dialFresh(network, source, addr, deadline)
	if err != nil {
		return nil, err
	}
	if network == "udp" {
		connection.transport = messages{conn}
	} else {
		connection.transport = &requests{Conn: conn, reader: bufio.NewReader(conn), host: addr.String()}
	}
	return connection, nil
}

// Request sends another request and waits at most timeout for the response. Its errors are those of Namespace.Request.
func (c *Connection) Request(timeout time.Duration) (Reply, error) {
	return c.request(time.Now().Add(timeout))
}

func (c *Connection) request(deadline time.Time) (Reply, error) {
	response, err := c.transport.exchange(deadline)
	if err != nil {
		return Reply{}, fmt.Errorf("request to %s over %s from %s: %w", c.addr, c.network, c.client.Name, explainTimeout(err))
	}
	reply := Reply{Local: c.transport.local()}
	if err := json.Unmarshal(response, &reply); err != nil {
		return Reply{}, fmt.Errorf("decode response of %s over %s: %w", c.addr, c.network, err)
	}
	return reply, nil
}

// Close closes the connection. It may be called twice.
func (c *Connection) Close() error {
	if err := c.transport.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// messages is a transport in which each request and each response is one message.
type messages struct{ net.Conn }

func (m messages) exchange(deadline time.Time) ([]byte, error) {
	if err := m.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if _, err := m.Write([]byte("?")); err != nil {
		return nil, err
	}
	reply := make([]byte, maxMessage)
	size, err := m.Read(reply)
	return reply[:size], err
}

func (m messages) local() netip.AddrPort { return localAddrPort(m.Conn) }

// requests is a transport for HTTP requests.
type requests struct {
	net.Conn
	reader *bufio.Reader
	host   string
}

func (r *requests) exchange(deadline time.Time) ([]byte, error) {
	if err := r.SetDeadline(deadline); err != nil {
		return nil, err
	}
	request, err := http.NewRequest(http.MethodGet, "http://"+r.host+"/", nil)
	if err != nil {
		return nil, err
	}
	if err := request.Write(r); err != nil {
		return nil, err
	}
	response, err := http.ReadResponse(r.reader, request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("server responded with %s", response.Status)
	}
	var reply json.RawMessage
	err = json.NewDecoder(response.Body).Decode(&reply)
	return reply, err
}

func (r *requests) local() netip.AddrPort { return localAddrPort(r.Conn) }

func localAddrPort(conn net.Conn) netip.AddrPort {
	local, _ := netip.ParseAddrPort(conn.LocalAddr().String()) // the kernel always returns a valid address
	return unmapped(local)
}
