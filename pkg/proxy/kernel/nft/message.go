//go:build linux

package nft

import (
	"cmp"
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

const (
	headerSize    = unix.SizeofNlMsghdr
	nfgenSize     = 4 // struct nfgenmsg: family, version, resource id
	attributeSize = unix.SizeofNlAttr
)

// messages is a growing buffer of netlink messages. Messages are encoded in place, so an element costs no allocation.
type messages struct {
	b         []byte
	sequence  uint32 // of the next message
	start     int    // where the latest message starts
	tableName string // the table that objects are in; empty means TableName
}

// targetTable returns the name of the table that objects are in.
func (m *messages) targetTable() string { return cmp.Or(m.tableName, ruleset.TableName) }

// begin starts a message. The resource ID matters in the frame of a batch only.
func (m *messages) begin(kind, flags uint16, family byte, resource uint16) {
	m.start = len(m.b)
	m.b = append(m.b, 0, 0, 0, 0) // the length, written by end
	m.b = binary.NativeEndian.AppendUint16(m.b, kind)
	m.b = binary.NativeEndian.AppendUint16(m.b, unix.NLM_F_REQUEST|flags)
	m.b = binary.NativeEndian.AppendUint32(m.b, m.sequence)
	m.b = append(m.b, 0, 0, 0, 0) // the port ID, which the kernel determines
	m.b = append(m.b, family, unix.NFNETLINK_V0)
	m.b = binary.BigEndian.AppendUint16(m.b, resource)
	m.sequence++
}

// beginNFT starts a message of nf_tables.
func (m *messages) beginNFT(kind, flags uint16, family byte) {
	m.begin(unix.NFNL_SUBSYS_NFTABLES<<8|kind, flags, family, 0)
}

// end closes the latest message.
func (m *messages) end() {
	binary.NativeEndian.PutUint32(m.b[m.start:], uint32(len(m.b)-m.start))
}

// addFlags adds flags to the latest message.
func (m *messages) addFlags(flags uint16) {
	header := m.b[m.start+6:]
	binary.NativeEndian.PutUint16(header, binary.NativeEndian.Uint16(header)|flags)
}

// size returns the size of the latest message so far.
func (m *messages) size() int { return len(m.b) - m.start }

func (m *messages) attributeHeader(kind uint16, size int) {
	m.b = binary.NativeEndian.AppendUint16(m.b, uint16(attributeSize+size))
	m.b = binary.NativeEndian.AppendUint16(m.b, kind)
}

func (m *messages) align4() {
	for len(m.b)%unix.NLA_ALIGNTO != 0 {
		m.b = append(m.b, 0)
	}
}

func (m *messages) bytes(kind uint16, value []byte) {
	m.attributeHeader(kind, len(value))
	m.b = append(m.b, value...)
	m.align4()
}

func (m *messages) text(kind uint16, value string) {
	m.attributeHeader(kind, len(value)+1)
	m.b = append(m.b, value...)
	m.b = append(m.b, 0)
	m.align4()
}

// number appends a number. nf_tables takes all numbers in network byte order.
func (m *messages) number(kind uint16, value uint32) {
	m.attributeHeader(kind, 4)
	m.b = binary.BigEndian.AppendUint32(m.b, value)
}

// nest opens an attribute that holds attributes, and returns what endNest needs to close it.
func (m *messages) nest(kind uint16) int {
	start := len(m.b)
	m.attributeHeader(unix.NLA_F_NESTED|kind, 0)
	return start
}

func (m *messages) endNest(start int) {
	binary.NativeEndian.PutUint16(m.b[start:], uint16(len(m.b)-start))
}
