//go:build linux

// Package connections inserts entries into the kernel's connection tracking table, as if packets had created them. So a
// test need not wait for entries, nor have a machine for each end of a connection. The kernel of the tests has no SCTP
// sockets: its SCTP connections come from this package.
package connections

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// Connection is the content of a conntrack entry.
type Connection struct {
	Protocol                   model.Protocol
	OrigSrc, OrigDst, ReplySrc netip.AddrPort
	IsReplied                  bool
	// State is a TCP or SCTP state, depending on the protocol.
	State uint8
	Zone  uint16
	// Label is the number of a connection label (ct label). 0 means none.
	Label uint8
	// Timeout is the timeout in seconds. 0 means an hour.
	Timeout uint32
}

// Kernel constants that are missing in the library.
const (
	attrNATDestination  = 13 // CTA_NAT_DST
	attrNATMinIPv4      = 1  // CTA_NAT_V4_MINIP
	attrNATMaxIPv4      = 2
	attrNATPorts        = 3 // CTA_NAT_PROTO
	attrNATMinIPv6      = 4
	attrNATMaxIPv6      = 5
	attrMinPort         = 1 // CTA_PROTONAT_PORT_MIN
	attrMaxPort         = 2
	attrSCTPState       = 1 // CTA_PROTOINFO_SCTP_STATE
	attrSCTPTagOriginal = 2 // CTA_PROTOINFO_SCTP_VTAG_ORIGINAL
	attrSCTPTagReply    = 3
	seenReply           = 1 << 1
	assured             = 1 << 2
	confirmed           = 1 << 3
)

// Table is the connection tracking table of a namespace.
type Table struct {
	t      testing.TB
	socket *netlink.Conn
}

// Open opens the table. It adds rules for tracking and labels, because a namespace without such rules tracks no
// connection and has no labels.
func Open(t testing.TB, namespace *netns.Namespace) (table *Table) {
	t.Helper()
	namespace.Load("add table inet tracked\nadd chain inet tracked input { type filter hook input priority 0; }\n" +
		"add rule inet tracked input ct state invalid drop\n" +
		"add chain inet tracked labelled\nadd rule inet tracked labelled ct label set 86\n")
	namespace.Do(func() {
		var err error
		if table, err = OpenCurrent(t); err != nil {
			t.Fatal(err)
		}
	})
	return table
}

// OpenCurrent opens the table of the calling thread's namespace, which must already have rules that track connections.
func OpenCurrent(t testing.TB) (*Table, error) {
	t.Helper()
	socket, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = socket.Close() })
	return &Table{t, socket}, nil
}

// Insert inserts a connection. If ReplySrc differs from OrigDst, the entry has destination NAT, as if a rule had
// translated it.
func (table *Table) Insert(c Connection) {
	table.t.Helper()
	if err := table.TryInsert(c); err != nil {
		table.t.Fatalf("insert a connection from %s to %s: %v", c.OrigSrc, c.OrigDst, err)
	}
}

// Flush removes all entries of a family at once, as conntrack -F does.
func (table *Table) Flush(family model.Family) error {
	const byFamily = 1 // a version: without it the kernel ignores the family
	return table.query(nl.IPCTNL_MSG_CT_DELETE, netlink.Acknowledge, family, byFamily)
}

// ZeroCounters sets all counters of a family to zero, as conntrack -L -z does.
func (table *Table) ZeroCounters(family model.Family) error {
	const listAndZero = 3 // IPCTNL_MSG_CT_GET_CTRZERO
	return table.query(listAndZero, netlink.Dump, family, nl.NFNETLINK_V0)
}

func (table *Table) query(kind int, flags netlink.HeaderFlags, family model.Family, version byte) error {
	nfproto := byte(unix.NFPROTO_IPV4)
	if family == model.IPv6 {
		nfproto = unix.NFPROTO_IPV6
	}
	_, err := table.socket.Execute(netlink.Message{
		Header: netlink.Header{
			Type: netlink.HeaderType(unix.NFNL_SUBSYS_CTNETLINK<<8 | kind), Flags: netlink.Request | flags,
		},
		Data: []byte{nfproto, version, 0, 0},
	})
	return err
}

// TryInsert is Insert for any goroutine. It returns the error instead of failing the test.
func (table *Table) TryInsert(c Connection) error {
	attributes, err := c.encode()
	if err != nil {
		return err
	}
	family := byte(unix.NFPROTO_IPV6)
	if c.OrigSrc.Addr().Is4() {
		family = unix.NFPROTO_IPV4
	}
	_, err = table.socket.Execute(netlink.Message{
		Header: netlink.Header{
			Type:  netlink.HeaderType(unix.NFNL_SUBSYS_CTNETLINK<<8 | nl.IPCTNL_MSG_CT_NEW),
			Flags: netlink.Request | netlink.Acknowledge | netlink.Create | netlink.Excl,
		},
		Data: append([]byte{family, nl.NFNETLINK_V0, 0, 0}, attributes...),
	})
	return err
}

func (c Connection) encode() ([]byte, error) {
	attributes := netlink.NewAttributeEncoder()
	attributes.ByteOrder = binary.BigEndian
	attributes.Nested(nl.CTA_TUPLE_ORIG, c.encodeTuple(c.OrigSrc, c.OrigDst))
	attributes.Nested(nl.CTA_TUPLE_REPLY, c.encodeTuple(c.OrigDst, c.OrigSrc))
	if c.ReplySrc != c.OrigDst {
		attributes.Nested(attrNATDestination, c.encodeDNAT)
	}
	status := uint32(confirmed)
	if c.IsReplied {
		status |= seenReply | assured
	}
	attributes.Uint32(nl.CTA_STATUS, status)
	if c.Timeout == 0 {
		c.Timeout = 3600
	}
	attributes.Uint32(nl.CTA_TIMEOUT, c.Timeout)
	if c.Zone != 0 {
		attributes.Uint16(nl.CTA_ZONE, c.Zone)
	}
	if c.Label != 0 {
		labels := make([]byte, 16)
		word := labels[int(c.Label)/64*8:]
		binary.NativeEndian.PutUint64(word, 1<<(c.Label%64))
		attributes.Bytes(nl.CTA_LABELS, labels)
	}
	attributes.Nested(nl.CTA_PROTOINFO, c.encodeState)
	return attributes.Encode()
}

func (c Connection) encodeTuple(source, destination netip.AddrPort) func(*netlink.AttributeEncoder) error {
	srcAttr, dstAttr := uint16(nl.CTA_IP_V6_SRC), uint16(nl.CTA_IP_V6_DST)
	if source.Addr().Is4() {
		srcAttr, dstAttr = nl.CTA_IP_V4_SRC, nl.CTA_IP_V4_DST
	}
	return func(tuple *netlink.AttributeEncoder) error {
		tuple.Nested(nl.CTA_TUPLE_IP, func(ip *netlink.AttributeEncoder) error {
			ip.Bytes(srcAttr, source.Addr().AsSlice())
			ip.Bytes(dstAttr, destination.Addr().AsSlice())
			return nil
		})
		tuple.Nested(nl.CTA_TUPLE_PROTO, func(protocol *netlink.AttributeEncoder) error {
			protocol.Uint8(nl.CTA_PROTO_NUM, uint8(c.Protocol))
			protocol.Uint16(nl.CTA_PROTO_SRC_PORT, source.Port())
			protocol.Uint16(nl.CTA_PROTO_DST_PORT, destination.Port())
			return nil
		})
		return nil
	}
}

func (c Connection) encodeDNAT(nat *netlink.AttributeEncoder) error {
	minAddrAttr, maxAddrAttr := uint16(attrNATMinIPv6), uint16(attrNATMaxIPv6)
	if c.ReplySrc.Addr().Is4() {
		minAddrAttr, maxAddrAttr = attrNATMinIPv4, attrNATMaxIPv4
	}
	nat.Bytes(minAddrAttr, c.ReplySrc.Addr().AsSlice())
	nat.Bytes(maxAddrAttr, c.ReplySrc.Addr().AsSlice())
	nat.Nested(attrNATPorts, func(ports *netlink.AttributeEncoder) error {
		ports.Uint16(attrMinPort, c.ReplySrc.Port())
		ports.Uint16(attrMaxPort, c.ReplySrc.Port())
		return nil
	})
	return nil
}

func (c Connection) encodeState(info *netlink.AttributeEncoder) error {
	switch c.Protocol {
	case model.TCP:
		info.Nested(nl.CTA_PROTOINFO_TCP, func(tcp *netlink.AttributeEncoder) error {
			tcp.Uint8(nl.CTA_PROTOINFO_TCP_STATE, c.State)
			return nil
		})
	case model.SCTP:
		info.Nested(nl.CTA_PROTOINFO_SCTP, func(sctp *netlink.AttributeEncoder) error {
			sctp.Uint8(attrSCTPState, c.State)
			sctp.Uint32(attrSCTPTagOriginal, 1)
			sctp.Uint32(attrSCTPTagReply, 1)
			return nil
		})
	case model.UDP: // has no state
	}
	return nil
}
