//go:build linux

package nft

import (
	"encoding/binary"
	"errors"
	"iter"

	"golang.org/x/sys/unix"
)

// message is one received netlink message.
type message struct {
	kind     uint16
	flags    uint16
	sequence uint32
	body     []byte // what follows the netlink header
}

// family returns nfgenmsg's family and the attributes that follow it.
func (m message) family() (family byte, attributes []byte) {
	if len(m.body) < nfgenSize {
		return 0, nil
	}
	return m.body[0], m.body[nfgenSize:]
}

// nftKind returns the message's kind within nf_tables; false if it is a message of another subsystem.
func (m message) nftKind() (kind uint16, ok bool) {
	return m.kind & 0xff, m.kind>>8 == unix.NFNL_SUBSYS_NFTABLES
}

var errTruncated = errors.New("truncated netlink message from the kernel")

// parseMessages iterates over the messages of one datagram.
func parseMessages(b []byte) iter.Seq2[message, error] {
	return func(yield func(message, error) bool) {
		for len(b) > 0 {
			if len(b) < headerSize {
				yield(message{}, errTruncated)
				return
			}
			size := int(binary.NativeEndian.Uint32(b))
			if size < headerSize || size > len(b) {
				yield(message{}, errTruncated)
				return
			}
			parsed := message{
				kind:     binary.NativeEndian.Uint16(b[4:]),
				flags:    binary.NativeEndian.Uint16(b[6:]),
				sequence: binary.NativeEndian.Uint32(b[8:]),
				body:     b[headerSize:size],
			}
			if !yield(parsed, nil) {
				return
			}
			b = b[min(align(size), len(b)):]
		}
	}
}

// attributes iterates over netlink attributes. A malformed remainder is ignored: the kernel does not send one.
func attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= attributeSize {
			size := int(binary.NativeEndian.Uint16(b))
			if size < attributeSize || size > len(b) {
				return
			}
			kind := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
			if !yield(kind, b[attributeSize:size]) {
				return
			}
			b = b[min(align(size), len(b)):]
		}
	}
}

// attribute returns the first attribute of a kind, nil if there is none.
func attribute(b []byte, attrType uint16) []byte {
	for kind, value := range attributes(b) {
		if kind == attrType {
			return value
		}
	}
	return nil
}

// numberOf returns the number in the first attribute of a kind.
func numberOf(b []byte, attrType uint16) (number uint32, ok bool) {
	value := attribute(b, attrType)
	if len(value) != 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(value), true
}

// uint64Of returns the 64-bit number in the first attribute of a kind, zero if there is none.
func uint64Of(b []byte, attrType uint16) uint64 {
	value := attribute(b, attrType)
	if len(value) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(value)
}

// textOf returns the text in the first attribute of a kind.
func textOf(b []byte, attrType uint16) string {
	value := attribute(b, attrType)
	for len(value) > 0 && value[len(value)-1] == 0 {
		value = value[:len(value)-1]
	}
	return string(value)
}

func align(size int) int { return (size + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }
