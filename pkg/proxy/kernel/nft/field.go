//go:build linux

package nft

import (
	"errors"
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// A rule has sixteen registers of four bytes. A key occupies as many consecutive ones as it needs.
const (
	firstRegister uint32 = unix.NFT_REG32_00
	lastRegister  uint32 = unix.NFT_REG32_15
)

func registers(size int) uint32 { return uint32(align(size) / 4) }

var errTooManyRegisters = errors.New("keys and values need more registers than a rule has")

// load loads fields into consecutive registers, and returns the register that follows.
func load(family model.Family, fields []ruleset.Field, register uint32) (loads []expr.Any, next uint32, err error) {
	for _, field := range fields {
		size := 4
		switch field {
		case ruleset.SourceAddr, ruleset.DestinationAddr,
			ruleset.OriginalSourceAddr, ruleset.OriginalDestinationAddr:
			size = addrSize(family)
		case ruleset.L4Proto, ruleset.DestinationPort, ruleset.OriginalDestinationPort, ruleset.Priority:
		}
		if register+registers(size)-1 > lastRegister {
			return nil, 0, errTooManyRegisters
		}
		expression, err := loadField(family, field, register)
		if err != nil {
			return nil, 0, err
		}
		loads, register = append(loads, expression), register+registers(size)
	}
	return loads, register, nil
}

func loadField(family model.Family, field ruleset.Field, register uint32) (expr.Any, error) {
	switch field {
	case ruleset.SourceAddr:
		return loadAddr(family, sourceOffset(family), register), nil
	case ruleset.DestinationAddr:
		return loadAddr(family, sourceOffset(family)+addrSize(family), register), nil
	case ruleset.L4Proto:
		return &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register}, nil
	case ruleset.Priority:
		return &expr.Meta{Key: expr.MetaKeyPRIORITY, Register: register}, nil
	case ruleset.DestinationPort: // the same offset in TCP, UDP and SCTP
		return &expr.Payload{
			OperationType: expr.PayloadLoad, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2, DestRegister: register,
		}, nil
	case ruleset.OriginalSourceAddr:
		return loadTuple(sourceKey(family), expr.CtDirOriginal, register), nil
	case ruleset.OriginalDestinationAddr:
		return loadTuple(destinationKey(family), expr.CtDirOriginal, register), nil
	case ruleset.OriginalDestinationPort:
		return loadTuple(expr.CtKeyPROTODST, expr.CtDirOriginal, register), nil
	}
	return nil, fmt.Errorf("unknown field %d", field)
}

func loadAddr(family model.Family, offset int, register uint32) expr.Any {
	return &expr.Payload{
		OperationType: expr.PayloadLoad,
		Base:          expr.PayloadBaseNetworkHeader,
		Offset:        uint32(offset),
		Len:           uint32(addrSize(family)),
		DestRegister:  register,
	}
}

// sourceOffset returns the offset of the source address in an IP header. The destination follows it.
func sourceOffset(family model.Family) int {
	if family == model.IPv4 {
		return 12
	}
	return 8
}

func loadTuple(key expr.CtKey, direction, register uint32) expr.Any {
	return &expr.Ct{Key: key, Direction: direction, Register: register}
}

func sourceKey(family model.Family) expr.CtKey {
	if family == model.IPv4 {
		return expr.CtKeySRCIP
	}
	return expr.CtKeySRCIP6
}

func destinationKey(family model.Family) expr.CtKey {
	if family == model.IPv4 {
		return expr.CtKeyDSTIP
	}
	return expr.CtKeyDSTIP6
}
