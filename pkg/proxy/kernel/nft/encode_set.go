//go:build linux

package nft

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// nft's numbers of data types (enum datatypes of its datatype.h). The kernel only stores them, for nft to read.
const (
	datatypeInteger  uint32 = 4
	datatypeIPv4Addr uint32 = 7
	datatypeIPv6Addr uint32 = 8
	datatypeProto    uint32 = 12
	datatypeService  uint32 = 13
	datatypeClassID  uint32 = 23
	// bitsPerType is the number of bits of one field's number in the number of a concatenation.
	bitsPerType = 6
	// setExpression is NFTA_SET_EXPR (5.7 and newer).
	setExpression = 17
)

func (e *encoder) setOp(op ruleset.Op, set ruleset.Set) error {
	family := nfproto(op.Family)
	switch op.Verb {
	case ruleset.Add:
		return e.addSet(op.Family, set)
	case ruleset.Delete:
		e.objectByName(unix.NFT_MSG_DELSET, family, unix.NFTA_SET_NAME, set.Name)
	case ruleset.Flush: // a deletion without elements deletes all of the set
		e.objectByName(unix.NFT_MSG_DELSETELEM, family, unix.NFTA_SET_ELEM_LIST_SET, set.Name)
	}
	return nil
}

func (e *encoder) addSet(family model.Family, set ruleset.Set) error {
	data, err := setUserdata(set)
	if err != nil {
		return err
	}
	e.sets++
	e.beginNFT(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, nfproto(family))
	e.text(unix.NFTA_SET_TABLE, e.targetTable())
	e.text(unix.NFTA_SET_NAME, set.Name)
	e.number(unix.NFTA_SET_FLAGS, setFlags(set))
	e.number(unix.NFTA_SET_KEY_TYPE, datatypes(family, set.Key))
	e.number(unix.NFTA_SET_KEY_LEN, uint32(tupleSize(family, set.Key)))
	if set.IsMap() {
		e.setValue(family, set)
	}
	e.number(unix.NFTA_SET_ID, e.sets)
	e.bytes(unix.NFTA_SET_USERDATA, data)
	if set.Counts { // each element gets a counter like this one
		counter := e.nest(setExpression)
		e.text(unix.NFTA_EXPR_NAME, "counter")
		e.endNest(e.nest(unix.NFTA_EXPR_DATA))
		e.endNest(counter)
	}
	e.end()
	return nil
}

func (e *encoder) setValue(family model.Family, set ruleset.Set) {
	if set.MapsVerdicts() {
		e.number(unix.NFTA_SET_DATA_TYPE, unix.NFT_DATA_VERDICT)
		e.number(unix.NFTA_SET_DATA_LEN, 0)
		return
	}
	e.number(unix.NFTA_SET_DATA_TYPE, datatypes(family, set.Value))
	e.number(unix.NFTA_SET_DATA_LEN, uint32(tupleSize(family, set.Value)))
}

func setFlags(set ruleset.Set) uint32 {
	var flags uint32
	if set.IsMap() {
		flags |= unix.NFT_SET_MAP
	}
	if set.Dynamic {
		flags |= unix.NFT_SET_EVAL | unix.NFT_SET_TIMEOUT
	}
	return flags
}

// datatypes returns nft's number of a key's or value's type: the numbers of its fields, the last one in the lowest
// bits.
func datatypes(family model.Family, types []ruleset.Type) uint32 {
	var numbers uint32
	for _, field := range types {
		numbers = numbers<<bitsPerType | datatype(family, field)
	}
	return numbers
}

func datatype(family model.Family, field ruleset.Type) uint32 {
	switch field {
	case ruleset.TypeAddr:
		if family == model.IPv4 {
			return datatypeIPv4Addr
		}
		return datatypeIPv6Addr
	case ruleset.TypeProto:
		return datatypeProto
	case ruleset.TypePort:
		return datatypeService
	case ruleset.TypeClass:
		return datatypeClassID
	case ruleset.TypeVerdict:
	}
	return datatypeInteger
}

var errSetTypes = errors.New("unsupported types")

// checkTypes rejects types that the kernel or nft cannot represent.
func checkTypes(types []ruleset.Type) error {
	addrs := 0
	for _, field := range types {
		if field > ruleset.TypeVerdict || field == ruleset.TypeVerdict && len(types) > 1 {
			return fmt.Errorf("%w: field type %d is not allowed", errSetTypes, field)
		}
		if field == ruleset.TypeAddr {
			addrs++
		}
	}
	if addrs > 2 || len(types) > 32/bitsPerType {
		return fmt.Errorf("%w: %d fields, %d of them addresses, are too many", errSetTypes, len(types), addrs)
	}
	return nil
}
