//go:build linux

package conntrack_test

import (
	"net/netip"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/connections"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// kernel is a namespace's connection table, as the package reads it and as a test fills it.
type kernel struct {
	t         *testing.T
	namespace *netns.Namespace
	conn      *conntrack.Conn
	table     *connections.Table
}

func newKernel(t *testing.T) *kernel {
	t.Helper()
	k := &kernel{t: t, namespace: netns.New(t)}
	k.table = connections.Open(t, k.namespace)
	k.namespace.Do(func() {
		var err error
		if k.conn, err = conntrack.Dial(); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() {
		if err := k.conn.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return k
}

// connection returns an unreplied connection of a client to a Service. The number distinguishes it from others.
func connection(protocol model.Protocol, family model.Family, number int) connections.Connection {
	client, service, endpoint := "10.244.1.9", "10.96.0.10", "10.244.2.1"
	if family == model.IPv6 {
		client, service, endpoint = "fd00:244:1::9", "fd00:96::a", "fd00:244:2::1"
	}
	at := func(addr string, port int) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr(addr), uint16(port))
	}
	c := connections.Connection{
		Protocol: protocol, OrigSrc: at(client, 1000+number), OrigDst: at(service, 80), ReplySrc: at(endpoint, 8080),
	}
	switch protocol {
	case model.TCP:
		c.State = conntrack.TCPSynSent
	case model.SCTP:
		c.State = conntrack.SCTPCookieWait
	case model.UDP: // conntrack has no state for UDP
	}
	return c
}

// replied returns the connection after a reply.
func replied(c connections.Connection) connections.Connection {
	c.IsReplied = true
	switch c.Protocol {
	case model.TCP:
		c.State = conntrack.TCPEstablished
	case model.SCTP:
		c.State = conntrack.SCTPEstablished
	case model.UDP:
	}
	return c
}

// list returns the entries that a filter selects.
func (k *kernel) list(filter conntrack.Filter) []conntrack.Entry {
	k.t.Helper()
	return list(k.t, k.conn, filter)
}

func list(t *testing.T, table conntrack.Table, filter conntrack.Filter) []conntrack.Entry {
	t.Helper()
	var entries []conntrack.Entry
	if _, err := table.Dump(t.Context(), filter, func(e *conntrack.Entry) bool { entries = append(entries, *e); return true }); err != nil {
		t.Fatalf("list %+v: %v", filter, err)
	}
	return entries
}
