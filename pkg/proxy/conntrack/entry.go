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

// entry is a conntrack entry.
type entry struct {
	protocol model.Protocol
	flow
	// key are the attributes by which the kernel finds this very entry: the tuple of its reply direction, its zone, and
	// its id. It looks the tuple up and compares the id, which is made of where the entry lies in memory and of its
	// original tuple (nf_ct_get_id). So all of both tuples counts. The original tuple would find an entry that took the
	// place of this one, even with the same id, while it leads to the right endpoint.
	key []byte
}

// String describes an entry as conntrack(8) lists it.
func (e entry) String() string {
	return fmt.Sprintf("%s from %s to %s, answered by %s", e.protocol, e.client, e.dialled, e.answerer)
}

var errUnreadable = errors.New("the kernel's message is not that of a conntrack entry")

// parseEntry reads what follows the netlink header of a message: a struct nfgenmsg, then attributes (enum ctattr_type
// of linux/netfilter/nfnetlink_conntrack.h). The entry's key is a copy.
func parseEntry(message []byte) (entry, error) {
	if len(message) < nl.SizeofNfgenmsg {
		return entry{}, errUnreadable
	}
	var e entry
	var original, reply tuple
	for attribute := range attributes(message[nl.SizeofNfgenmsg:]) {
		switch attribute.kind {
		case nl.CTA_TUPLE_ORIG:
			original = parseTuple(attribute.value)
		case nl.CTA_TUPLE_REPLY:
			reply = parseTuple(attribute.value)
		case nl.CTA_ZONE:
			e.inZone = len(attribute.value) == 2 && binary.BigEndian.Uint16(attribute.value) != 0
		}
		switch attribute.kind {
		case nl.CTA_TUPLE_REPLY, nl.CTA_ZONE, nl.CTA_ID:
			e.key = append(e.key, attribute.whole...)
		}
	}
	if !original.isWhole() || !reply.isWhole() {
		return entry{}, errUnreadable
	}
	e.protocol = original.protocol
	e.client = original.source.Addr()
	e.dialled, e.answerer = original.destination, reply.source
	return e, nil
}

// tuple is one direction of an entry. Protocols without ports have zero for them.
type tuple struct {
	protocol            model.Protocol
	source, destination netip.AddrPort
}

func (t tuple) isWhole() bool {
	return t.protocol != 0 && t.source.IsValid() && t.destination.IsValid()
}

func parseTuple(b []byte) tuple {
	var t tuple
	var source, destination netip.Addr
	var sourcePort, destinationPort uint16
	for part := range attributes(b) {
		for attribute := range attributes(part.value) {
			switch {
			case part.kind == nl.CTA_TUPLE_IP:
				switch attribute.kind {
				case nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC:
					source, _ = netip.AddrFromSlice(attribute.value)
				case nl.CTA_IP_V4_DST, nl.CTA_IP_V6_DST:
					destination, _ = netip.AddrFromSlice(attribute.value)
				}
			case part.kind != nl.CTA_TUPLE_PROTO:
			case attribute.kind == nl.CTA_PROTO_NUM && len(attribute.value) == 1:
				t.protocol = model.Protocol(attribute.value[0])
			case attribute.kind == nl.CTA_PROTO_SRC_PORT && len(attribute.value) == 2:
				sourcePort = binary.BigEndian.Uint16(attribute.value)
			case attribute.kind == nl.CTA_PROTO_DST_PORT && len(attribute.value) == 2:
				destinationPort = binary.BigEndian.Uint16(attribute.value)
			}
		}
	}
	t.source, t.destination = netip.AddrPortFrom(source, sourcePort), netip.AddrPortFrom(destination, destinationPort)
	return t
}

// attribute is a netlink attribute in a message.
type attribute struct {
	kind  uint16
	value []byte
	whole []byte // with its header and what pads it
}

// attributes yields the attributes that lie behind each other in b, up to the first that does not fit.
func attributes(b []byte) iter.Seq[attribute] {
	return func(yield func(attribute) bool) {
		for len(b) >= unix.SizeofNlAttr {
			size := int(binary.NativeEndian.Uint16(b))
			if size < unix.SizeofNlAttr || size > len(b) {
				return
			}
			padded := min((size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1), len(b))
			kind := binary.NativeEndian.Uint16(b[2:]) & nl.NLA_TYPE_MASK
			if !yield(attribute{kind: kind, value: b[unix.SizeofNlAttr:size], whole: b[:padded]}) {
				return
			}
			b = b[padded:]
		}
	}
}
