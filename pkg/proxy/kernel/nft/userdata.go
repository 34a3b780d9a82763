//go:build linux

package nft

import (
	"encoding/binary"

	"github.com/google/nftables/userdata"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// The kernel stores a few bytes of userdata with each set and element, which only nft reads. They are a list of
// entries, each a byte of kind, a byte of length, and the value; numbers are in host byte order. Without the byte order
// of a map's value nft lists classes byte-swapped. The userdata is the same that nft 1.0.6 writes for the same set,
// byte for byte.

// nft's enum byteorder.
const (
	byteOrderNone uint32 = iota // for a concatenation, whose fields have their own, for a single byte, and for a verdict
	byteOrderHost
	byteOrderBig
)

// The entries of a typeof: the kind of expression, and its details. For a concatenation nft writes only that it is one,
// and takes its types from the set.
const (
	entryExpression = 0
	entryDetail     = 1
)

// expressionConcat is a concatenation in nft's enum expr_types.
const expressionConcat uint32 = 13

// appendNumber is userdata.AppendUint32 in host byte order.
func appendNumber(data []byte, kind userdata.Type, value uint32) []byte {
	return userdata.Append(data, kind, binary.NativeEndian.AppendUint32(nil, value))
}

// setUserdata returns the userdata that nft needs to list a set.
func setUserdata(set ruleset.Set) ([]byte, error) {
	for _, types := range [][]ruleset.Type{set.Key, set.Value} {
		if err := checkTypes(types); err != nil {
			return nil, err
		}
	}
	data := appendNumber(nil, userdata.NFTNL_UDATA_SET_KEYBYTEORDER, byteOrder(set.Key))
	if set.IsMap() {
		data = appendNumber(data, userdata.NFTNL_UDATA_SET_DATABYTEORDER, byteOrder(set.Value))
	}
	if len(set.Key) > 1 {
		data = userdata.Append(data, userdata.NFTNL_UDATA_SET_KEY_TYPEOF, concatenation())
	}
	if len(set.Value) > 1 {
		data = userdata.Append(data, userdata.NFTNL_UDATA_SET_DATA_TYPEOF, concatenation())
	}
	if set.IsMap() {
		data = appendNumber(data, userdata.NFTNL_UDATA_SET_DATA_INTERVAL, 0)
	}
	return data, nil
}

func byteOrder(types []ruleset.Type) uint32 {
	if len(types) != 1 {
		return byteOrderNone
	}
	switch types[0] {
	case ruleset.TypeClass:
		return byteOrderHost
	case ruleset.TypeVerdict, ruleset.TypeProto:
		return byteOrderNone
	case ruleset.TypeAddr, ruleset.TypePort:
	}
	return byteOrderBig
}

func concatenation() []byte {
	return userdata.Append(appendNumber(nil, entryExpression, expressionConcat), entryDetail, nil)
}
