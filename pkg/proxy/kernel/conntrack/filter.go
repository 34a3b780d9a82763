//go:build linux

package conntrack

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Constants of linux/netfilter/nfnetlink_conntrack.h and the kernel's nf_internals.h that the library lacks.
const (
	attrTupleZone     = 3      // CTA_TUPLE_ZONE
	attrFilter        = 25     // CTA_FILTER, since Linux 5.8: a dump selects entries
	attrStatusMask    = 26     // CTA_STATUS_MASK, since Linux 5.16: which bits of CTA_STATUS are compared
	attrOriginalFlags = 1      // CTA_FILTER_ORIG_FLAGS: which fields of CTA_TUPLE_ORIG are compared
	attrReplyFlags    = 2      // CTA_FILTER_REPLY_FLAGS: which fields of CTA_TUPLE_REPLY are
	flagSource        = 1 << 0 // CTA_FILTER_F_CTA_IP_SRC
	flagProtocol      = 1 << 3 // CTA_FILTER_F_CTA_PROTO_NUM
)

// Filter selects entries. Its zero value selects all.
type Filter struct {
	// Family is one family, or both.
	Family Families
	// Protocol is 0 for all.
	Protocol model.Protocol
	// Mask is the bits of the status that must be as in Status. Other bits of Status are ignored.
	Status, Mask Status
	// ReplySrcs are the addresses from which replies may come; empty for any. The kernel walks through the table for each.
	// For IPv6 its comparison is inverted (ctnetlink_filter_match_tuple, up to 6.18 at least).
	ReplySrcs []netip.Addr
}

// Families is a family, or both: the kernel's number (NFPROTO_*).
type Families uint8

// The values of Families.
const (
	BothFamilies Families = unix.NFPROTO_UNSPEC
	OnlyIPv4     Families = unix.NFPROTO_IPV4
	OnlyIPv6     Families = unix.NFPROTO_IPV6
)

// Only returns the Families of one family.
func Only(family model.Family) Families {
	if family == model.IPv4 {
		return OnlyIPv4
	}
	return OnlyIPv6
}

// Matches reports whether the filter selects an entry.
func (f *Filter) Matches(e *Entry) bool {
	return (f.Family == BothFamilies || f.Family == Only(e.Family())) &&
		(f.Protocol == 0 || f.Protocol == e.Protocol) &&
		e.Status&f.Mask == f.Status&f.Mask &&
		(len(f.ReplySrcs) == 0 || slices.Contains(f.ReplySrcs, e.ReplySrc().Addr()))
}

// covers reports whether a filter selects every entry that another one selects.
func (f *Filter) covers(other *Filter) bool {
	return (f.Family == BothFamilies || f.Family == other.Family) &&
		(f.Protocol == 0 || f.Protocol == other.Protocol) &&
		f.Mask&other.Mask == f.Mask && f.Status&f.Mask == other.Status&f.Mask &&
		(len(f.ReplySrcs) == 0 || len(other.ReplySrcs) > 0 && containsAll(f.ReplySrcs, other.ReplySrcs))
}

func containsAll(list, addrs []netip.Addr) bool {
	return !slices.ContainsFunc(addrs, func(addr netip.Addr) bool { return !slices.Contains(list, addr) })
}

// encode returns the attributes that make the kernel filter the dump, which is faster than copying all entries. The
// filter is for one family, or has neither protocol nor reply source: the kernel compares only tuples of one family. A
// kernel ignores attributes that it does not support. No entry matches a status with a bit that the mask lacks.
func (f *Filter) encode(replySrc netip.Addr) ([]byte, error) {
	attributes := netlink.NewAttributeEncoder()
	attributes.ByteOrder = binary.BigEndian
	if f.Mask != 0 {
		attributes.Uint32(nl.CTA_STATUS, uint32(f.Status))
		attributes.Uint32(attrStatusMask, uint32(f.Mask))
	}
	if f.Protocol != 0 {
		attributes.Nested(nl.CTA_TUPLE_ORIG, func(tuple *netlink.AttributeEncoder) error {
			tuple.Nested(nl.CTA_TUPLE_PROTO, func(protocol *netlink.AttributeEncoder) error {
				protocol.Uint8(nl.CTA_PROTO_NUM, uint8(f.Protocol))
				return nil
			})
			return nil
		})
	}
	if replySrc.IsValid() {
		attributes.Nested(nl.CTA_TUPLE_REPLY, func(tuple *netlink.AttributeEncoder) error {
			tuple.Nested(nl.CTA_TUPLE_IP, func(ip *netlink.AttributeEncoder) error {
				ip.Bytes(sourceAttribute(replySrc), replySrc.AsSlice())
				return nil
			})
			return nil
		})
	}
	if f.Protocol != 0 || replySrc.IsValid() {
		attributes.Nested(attrFilter, func(filter *netlink.AttributeEncoder) error {
			filter.ByteOrder = binary.NativeEndian
			if f.Protocol != 0 {
				filter.Uint32(attrOriginalFlags, flagProtocol)
			}
			if replySrc.IsValid() {
				filter.Uint32(attrReplyFlags, flagSource)
			}
			return nil
		})
	}
	return attributes.Encode()
}

func sourceAttribute(addr netip.Addr) uint16 {
	if addr.Is4() {
		return nl.CTA_IP_V4_SRC
	}
	return nl.CTA_IP_V6_SRC
}

func destinationAttribute(addr netip.Addr) uint16 {
	if addr.Is4() {
		return nl.CTA_IP_V4_DST
	}
	return nl.CTA_IP_V6_DST
}

// key returns the attributes by which the kernel finds exactly this entry: the tuple of its reply direction, its zone,
// and its ID. The kernel looks the tuple up and compares the ID, which is derived from the entry's address in memory
// and from its original tuple (nf_ct_get_id). So both tuples must match completely. A lookup by the original tuple
// could find an entry that replaced this one, even with the same ID, although the new entry leads to the right
// endpoint.
func (e *Entry) key() ([]byte, error) {
	attributes := netlink.NewAttributeEncoder()
	attributes.ByteOrder = binary.BigEndian
	e.encodeTuple(attributes)
	attributes.Uint32(nl.CTA_ID, e.ID)
	return attributes.Encode()
}

// encodeTuple encodes the tuple of the reply direction, and the zone.
func (e *Entry) encodeTuple(attributes *netlink.AttributeEncoder) {
	attributes.Nested(nl.CTA_TUPLE_REPLY, func(tuple *netlink.AttributeEncoder) error {
		source, destination := e.Reply.Source, e.Reply.Destination
		tuple.Nested(nl.CTA_TUPLE_IP, func(ip *netlink.AttributeEncoder) error {
			ip.Bytes(sourceAttribute(source.Addr()), source.Addr().AsSlice())
			ip.Bytes(destinationAttribute(destination.Addr()), destination.Addr().AsSlice())
			return nil
		})
		tuple.Nested(nl.CTA_TUPLE_PROTO, func(protocol *netlink.AttributeEncoder) error {
			protocol.Uint8(nl.CTA_PROTO_NUM, uint8(e.Protocol))
			protocol.Uint16(nl.CTA_PROTO_SRC_PORT, source.Port())
			protocol.Uint16(nl.CTA_PROTO_DST_PORT, destination.Port())
			return nil
		})
		if e.zoneScope == replyOnly {
			tuple.Uint16(attrTupleZone, e.Zone)
		}
		return nil
	})
	if e.Zone != 0 && e.zoneScope == bothDirections {
		attributes.Uint16(nl.CTA_ZONE, e.Zone)
	}
}
