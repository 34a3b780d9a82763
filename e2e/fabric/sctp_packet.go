package fabric

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// chunkKind is the type of an SCTP chunk (RFC 9260, section 3.2).
type chunkKind uint8

const (
	chunkData             chunkKind = 0
	chunkInit             chunkKind = 1
	chunkInitAck          chunkKind = 2
	chunkSack             chunkKind = 3
	chunkAbort            chunkKind = 6
	chunkShutdown         chunkKind = 7
	chunkShutdownAck      chunkKind = 8
	chunkCookieEcho       chunkKind = 10
	chunkCookieAck        chunkKind = 11
	chunkShutdownComplete chunkKind = 14
)

// wholeMessage marks a DATA chunk that is the first and the last of its message.
const wholeMessage = 0x03

type sctpChunk struct {
	kind  chunkKind
	flags uint8
	value []byte
}

type sctpPacket struct {
	from, to uint16
	tag      uint32 // the receiver's verification tag
	chunks   []sctpChunk
}

const (
	sctpHeader  = 12
	chunkHeader = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode returns the packet with its checksum, which conntrack verifies and NAT recomputes.
func (p sctpPacket) encode() []byte {
	b := binary.BigEndian.AppendUint16(nil, p.from)
	b = binary.BigEndian.AppendUint16(b, p.to)
	b = binary.BigEndian.AppendUint32(b, p.tag)
	b = append(b, 0, 0, 0, 0)
	for _, chunk := range p.chunks {
		b = append(b, byte(chunk.kind), chunk.flags)
		b = binary.BigEndian.AppendUint16(b, uint16(chunkHeader+len(chunk.value)))
		b = append(b, chunk.value...)
		b = append(b, make([]byte, padding(len(chunk.value)))...)
	}
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, castagnoli))
	return b
}

var (
	errShort    = errors.New("packet too short")
	errChecksum = errors.New("invalid checksum")
)

func decodeSCTP(b []byte) (sctpPacket, error) {
	if len(b) < sctpHeader {
		return sctpPacket{}, errShort
	}
	zeroed := append([]byte(nil), b...)
	clear(zeroed[8:12])
	if binary.LittleEndian.Uint32(b[8:]) != crc32.Checksum(zeroed, castagnoli) {
		return sctpPacket{}, errChecksum
	}
	p := sctpPacket{from: binary.BigEndian.Uint16(b), to: binary.BigEndian.Uint16(b[2:]), tag: binary.BigEndian.Uint32(b[4:])}
	for rest := b[sctpHeader:]; len(rest) > 0; {
		if len(rest) < chunkHeader {
			return sctpPacket{}, errShort
		}
		length := int(binary.BigEndian.Uint16(rest[2:]))
		if length < chunkHeader || length > len(rest) {
			return sctpPacket{}, fmt.Errorf("chunk has length %d, but %d bytes remain", length, len(rest))
		}
		p.chunks = append(p.chunks, sctpChunk{kind: chunkKind(rest[0]), flags: rest[1], value: rest[chunkHeader:length]})
		rest = rest[min(length+padding(length), len(rest)):]
	}
	return p, nil
}

// padding returns the number of bytes that pad a length to a multiple of four.
func padding(length int) int { return -length & 3 }

// initValue returns the value of INIT and INIT ACK: the sender's tag, a receive window, one stream each way, the
// initial sequence number, and for INIT ACK the state cookie.
func initValue(tag, sequence uint32, cookie []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, tag)
	b = binary.BigEndian.AppendUint32(b, 1<<16)
	b = binary.BigEndian.AppendUint16(b, 1)
	b = binary.BigEndian.AppendUint16(b, 1)
	b = binary.BigEndian.AppendUint32(b, sequence)
	if cookie == nil {
		return b
	}
	const stateCookie = 7
	b = binary.BigEndian.AppendUint16(b, stateCookie)
	b = binary.BigEndian.AppendUint16(b, uint16(4+len(cookie)))
	return append(b, cookie...)
}

const initLength = 16

// dataValue returns the value of a DATA chunk on stream 0.
func dataValue(sequence uint32, message []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, sequence)
	b = append(b, make([]byte, 8)...) // stream, number in the stream, payload protocol
	return append(b, message...)
}

const dataPrefix = 12

// sackValue returns a SACK value that acknowledges everything up to a sequence number.
func sackValue(sequence uint32) []byte {
	b := binary.BigEndian.AppendUint32(nil, sequence)
	b = binary.BigEndian.AppendUint32(b, 1<<16)
	return append(b, 0, 0, 0, 0) // no gaps, no duplicates
}
