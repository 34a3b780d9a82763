//go:build linux

package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// A key or value of one field has that field's own size. In a concatenation each field starts at a register, four
// bytes wide, and the rest of its last register is zero. Addresses and ports are in network byte order, slots and
// classes in the host's.

// fieldSize returns the size of a field on its own.
func fieldSize(family model.Family, field ruleset.Type) int {
	switch field {
	case ruleset.TypeAddr:
		return addrSize(family)
	case ruleset.TypeProto:
		return 1
	case ruleset.TypePort:
		return 2
	case ruleset.TypeClass, ruleset.TypeVerdict:
	}
	return 4
}

// tupleSize returns the size of a key or value.
func tupleSize(family model.Family, types []ruleset.Type) int {
	if len(types) == 1 {
		return fieldSize(family, types[0])
	}
	size := 0
	for _, field := range types {
		size += align(fieldSize(family, field))
	}
	return size
}

var errWrongFamily = errors.New("address family differs from the table's")

// appendTuple appends a key or value.
func appendTuple(b []byte, family model.Family, types []ruleset.Type, tuple *ruleset.Tuple) ([]byte, error) {
	addr := tuple.Addr
	for _, field := range types {
		switch field {
		case ruleset.TypeAddr:
			if !addr.IsValid() || model.FamilyOf(addr) != family {
				return b, errWrongFamily
			}
			b, _ = addr.AppendBinary(b) // it has no zone
			addr = tuple.Source
		case ruleset.TypeProto:
			b = append(b, byte(tuple.Proto))
		case ruleset.TypePort:
			b = binary.BigEndian.AppendUint16(b, tuple.Port)
		case ruleset.TypeClass:
			b = binary.NativeEndian.AppendUint32(b, tuple.Number)
		case ruleset.TypeVerdict:
		}
		for pad := fieldSize(family, field); len(types) > 1 && pad%4 != 0; pad++ {
			b = append(b, 0)
		}
	}
	return b, nil
}

// parseTuple reads what appendTuple wrote.
func parseTuple(b []byte, family model.Family, types []ruleset.Type) (ruleset.Tuple, error) {
	var tuple ruleset.Tuple
	// The kernel returns a single field in its own size or in whole registers, depending on its version.
	if size := tupleSize(family, types); len(b) < size || len(b) > align(size) {
		return tuple, fmt.Errorf("%d bytes instead of %d", len(b), size)
	}
	addrs := 0
	for _, field := range types {
		size := fieldSize(family, field)
		switch field {
		case ruleset.TypeAddr:
			addr, _ := netip.AddrFromSlice(b[:size])
			if addrs++; addrs == 1 {
				tuple.Addr = addr
			} else {
				tuple.Source = addr
			}
		case ruleset.TypeProto:
			tuple.Proto = model.Protocol(b[0])
		case ruleset.TypePort:
			tuple.Port = binary.BigEndian.Uint16(b)
		case ruleset.TypeClass:
			tuple.Number = binary.NativeEndian.Uint32(b)
		case ruleset.TypeVerdict:
		}
		b = b[min(align(size), len(b)):]
	}
	return tuple, nil
}
