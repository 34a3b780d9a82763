//go:build linux

package flows

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// dial opens a client's socket on the node's second address.
func (g *ground) dial(network string, at netip.Addr, port uint16) *client {
	g.t.Helper()
	c := &client{t: g.t}
	g.namespace.Do(func() {
		dialer := net.Dialer{LocalAddr: &net.UDPAddr{IP: g.portless.AsSlice()}}
		if network == "tcp" {
			dialer.LocalAddr = &net.TCPAddr{IP: g.portless.AsSlice()}
		}
		var err error
		if c.Conn, err = dialer.DialContext(g.t.Context(), network, netip.AddrPortFrom(at, port).String()); err != nil {
			g.t.Fatal(err)
		}
	})
	g.t.Cleanup(func() { _ = c.Close() })
	return c
}

// client is a client that keeps its source port, as a resolver or a metrics agent does.
type client struct {
	t *testing.T
	net.Conn
}

// ask sends a packet and returns the endpoint that answers, or the error, as text.
func (c *client) ask() string {
	c.t.Helper()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.Write([]byte("who?")); err != nil {
		return reason(err)
	}
	buffer := make([]byte, 64)
	n, err := c.Read(buffer)
	if err != nil {
		return reason(err)
	}
	return string(buffer[:n])
}

func reason(err error) string {
	text := err.Error()
	return text[strings.LastIndex(text, ": ")+2:]
}

func (c *client) wantAnswer(want, when string) {
	c.t.Helper()
	if got := c.ask(); got != want {
		c.t.Fatalf("%s: the answer is %q, want %q", when, got, want)
	}
}
