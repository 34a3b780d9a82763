//go:build linux

package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Entry is one connection in the table. Fields that the kernel did not report are zero.
type Entry struct {
	Protocol model.Protocol
	// Original is the direction of the first packet, from the client to the address that it connected to. Reply is the
	// direction of the replies: its source is the endpoint, or the original destination if that was not translated.
	Original, Reply Tuple
	// Sent and Received are the traffic in each direction. IsCounted is set if the kernel counts it, because
	// nf_conntrack_acct was on when the entry was created.
	Sent, Received Counter
	IsCounted      bool
	Status         Status
	// State is one of the TCP or SCTP states below, by the protocol.
	State uint8
	// ID is constant for the lifetime of the entry.
	ID uint32
	// Zone is 0 unless another program keeps its connections in a zone of its own.
	Zone uint16
	// Labels are bits that rules have set. Destroy events lack them.
	Labels [16]byte

	zoneScope zoneScope
}

// Tuple is one direction of a connection.
type Tuple struct{ Source, Destination netip.AddrPort }

// Counter is the traffic in one direction, IP headers included.
type Counter struct{ Packets, Bytes uint64 }

// zoneScope is which directions of an entry are in its zone.
type zoneScope uint8

const (
	bothDirections zoneScope = iota
	originalOnly
	replyOnly
)

// Status is the status bits of an entry (enum ip_conntrack_status).
type Status uint32

// The bits that matter here.
const (
	SeenReply      Status = 1 << 1
	Assured        Status = 1 << 2
	DestinationNAT Status = 1 << 5
)

// The states of TCP that matter here (enum tcp_conntrack).
const (
	TCPSynSent     = 1
	TCPSynReceived = 2
	TCPEstablished = 3
	TCPFinWait     = 4
	TCPTimeWait    = 7
	TCPClose       = 8
)

// The states of SCTP that matter here (enum sctp_conntrack).
const (
	SCTPClosed      = 1
	SCTPCookieWait  = 2
	SCTPEstablished = 4
)

// attrSCTPState is CTA_PROTOINFO_SCTP_STATE.
const attrSCTPState = 1

// Family returns the family of the connection.
func (e *Entry) Family() model.Family { return model.FamilyOf(e.Original.Source.Addr()) }

// OrigSrc returns the source of the first packet.
func (e *Entry) OrigSrc() netip.AddrPort { return e.Original.Source }

// OrigDst returns the destination of the first packet, before any translation.
func (e *Entry) OrigDst() netip.AddrPort { return e.Original.Destination }

// ReplySrc returns the source of the connection's replies.
func (e *Entry) ReplySrc() netip.AddrPort { return e.Reply.Source }

// HasLabel reports whether a rule has set a label. The kernel stores labels as words in host byte order.
func (e *Entry) HasLabel(bit uint8) bool {
	offset := int(bit) / 64 * 8
	return bit < 128 && binary.NativeEndian.Uint64(e.Labels[offset:])&(1<<(bit%64)) != 0
}

// String describes an entry, for errors and logs.
func (e *Entry) String() string {
	return fmt.Sprintf("%s from %s to %s, replies from %s", e.Protocol, e.OrigSrc().Addr(), e.OrigDst(), e.ReplySrc())
}

var errMalformed = errors.New("malformed conntrack message from the kernel")

// parse reads what follows the netlink header of a message: a struct nfgenmsg, then attributes (enum ctattr_type of
// linux/netfilter/nfnetlink_conntrack.h). It allocates nothing.
func (e *Entry) parse(message []byte) error {
	if len(message) < nl.SizeofNfgenmsg {
		return errMalformed
	}
	*e = Entry{}
	var original, reply parsedTuple
	for kind, value := range attributes(message[nl.SizeofNfgenmsg:]) {
		switch kind {
		case nl.CTA_TUPLE_ORIG:
			original = parseTuple(value)
		case nl.CTA_TUPLE_REPLY:
			reply = parseTuple(value)
		case nl.CTA_COUNTERS_ORIG:
			e.Sent, e.IsCounted = parseCounter(value), true
		case nl.CTA_COUNTERS_REPLY:
			e.Received = parseCounter(value)
		case nl.CTA_PROTOINFO:
			e.State = parseState(value)
		case nl.CTA_STATUS:
			e.Status = Status(bigEndian32(value))
		case nl.CTA_ID:
			e.ID = bigEndian32(value)
		case nl.CTA_LABELS:
			copy(e.Labels[:], value)
		case nl.CTA_ZONE:
			e.Zone = bigEndian16(value)
		}
	}
	if !original.isComplete() || !reply.isComplete() {
		return errMalformed
	}
	switch {
	case original.zone != 0:
		e.Zone, e.zoneScope = original.zone, originalOnly
	case reply.zone != 0:
		e.Zone, e.zoneScope = reply.zone, replyOnly
	}
	e.Protocol = original.protocol
	e.Original, e.Reply = original.tuple(), reply.tuple()
	return nil
}

// parsedTuple is a direction as the kernel reports it. Protocols without ports have zero for them.
type parsedTuple struct {
	protocol                    model.Protocol
	source, destination         netip.Addr
	sourcePort, destinationPort uint16
	zone                        uint16
}

func (t *parsedTuple) isComplete() bool {
	return t.protocol != 0 && t.source.IsValid() && t.destination.IsValid()
}

func (t *parsedTuple) tuple() Tuple {
	return Tuple{netip.AddrPortFrom(t.source, t.sourcePort), netip.AddrPortFrom(t.destination, t.destinationPort)}
}

func parseTuple(b []byte) (t parsedTuple) {
	for kind, value := range attributes(b) {
		switch kind {
		case nl.CTA_TUPLE_IP:
			t.parseAddrs(value)
		case nl.CTA_TUPLE_PROTO:
			t.parsePorts(value)
		case attrTupleZone:
			t.zone = bigEndian16(value)
		}
	}
	return t
}

func (t *parsedTuple) parseAddrs(b []byte) {
	for kind, value := range attributes(b) {
		switch kind {
		case nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC:
			t.source, _ = netip.AddrFromSlice(value)
		case nl.CTA_IP_V4_DST, nl.CTA_IP_V6_DST:
			t.destination, _ = netip.AddrFromSlice(value)
		}
	}
}

func (t *parsedTuple) parsePorts(b []byte) {
	for kind, value := range attributes(b) {
		switch {
		case kind == nl.CTA_PROTO_NUM && len(value) == 1:
			t.protocol = model.Protocol(value[0])
		case kind == nl.CTA_PROTO_SRC_PORT:
			t.sourcePort = bigEndian16(value)
		case kind == nl.CTA_PROTO_DST_PORT:
			t.destinationPort = bigEndian16(value)
		}
	}
}

func parseCounter(b []byte) (c Counter) {
	for kind, value := range attributes(b) {
		switch kind {
		case nl.CTA_COUNTERS_PACKETS:
			c.Packets = bigEndian64(value)
		case nl.CTA_COUNTERS_BYTES:
			c.Bytes = bigEndian64(value)
		}
	}
	return c
}

func parseState(b []byte) uint8 {
	protocol, states, _, _ := nextAttribute(b)
	for kind, value := range attributes(states) {
		isState := protocol == nl.CTA_PROTOINFO_TCP && kind == nl.CTA_PROTOINFO_TCP_STATE ||
			protocol == nl.CTA_PROTOINFO_SCTP && kind == attrSCTPState
		if isState && len(value) == 1 {
			return value[0]
		}
	}
	return 0
}

func bigEndian16(b []byte) uint16 {
	if len(b) != 2 {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}

func bigEndian32(b []byte) uint32 {
	if len(b) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

func bigEndian64(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// attributes yields the consecutive netlink attributes in b.
func attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(kind uint16, value []byte) bool) {
		for {
			kind, value, rest, more := nextAttribute(b)
			if !more || !yield(kind, value) {
				return
			}
			b = rest
		}
	}
}

// nextAttribute returns the first of the consecutive netlink attributes in b. more is false if no complete one is left.
func nextAttribute(b []byte) (kind uint16, value, rest []byte, more bool) {
	if len(b) < unix.SizeofNlAttr {
		return 0, nil, nil, false
	}
	size := int(binary.NativeEndian.Uint16(b))
	if size < unix.SizeofNlAttr || size > len(b) {
		return 0, nil, nil, false
	}
	padded := min((size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1), len(b))
	return binary.NativeEndian.Uint16(b[2:]) & nl.NLA_TYPE_MASK, b[unix.SizeofNlAttr:size], b[padded:], true
}
