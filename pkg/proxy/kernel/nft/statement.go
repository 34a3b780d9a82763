//go:build linux

package nft

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// statusDNAT is the bit of `ct status` for a translated destination (IPS_DST_NAT).
const statusDNAT uint32 = 1 << 5

// expressionsOf returns the kernel's expressions for a statement, the same as nft's for its text.
func expressionsOf(family model.Family, statement ruleset.Statement) ([]expr.Any, error) {
	switch s := statement.(type) {
	case ruleset.ProtocolIs:
		return []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: firstRegister},
			&expr.Cmp{Op: expr.CmpOpEq, Register: firstRegister, Data: []byte{byte(s.Protocol)}},
		}, nil
	case ruleset.InSet:
		return lookupKey(family, s.Key, expr.Lookup{SetName: s.Set.Name, Invert: s.Not})
	case ruleset.VerdictOf:
		return lookupKey(family, s.Key, expr.Lookup{SetName: s.Map.Name, IsDestRegSet: true, DestRegister: unix.NFT_REG_VERDICT})
	case ruleset.SetPriority:
		return priorityOf(family, s)
	case ruleset.WritePriority:
		number := binary.NativeEndian.AppendUint32(nil, s.Number)
		return []expr.Any{&expr.Immediate{Register: firstRegister, Data: number}, setPriority}, nil
	case ruleset.RandomSlot:
		return []expr.Any{
			&expr.Numgen{Register: firstRegister, Modulus: uint32(s.Slots), Type: unix.NFT_NG_RANDOM, Offset: s.First},
			setPriority,
		}, nil
	case ruleset.PriorityBetween:
		return priorityBetween(s), nil
	case ruleset.FromRange:
		return fromRange(family, s)
	case ruleset.InPrefix:
		return inPrefix(family, s)
	case ruleset.NotFromInterface:
		return notFromInterface(s)
	case ruleset.FromInterface:
		return []expr.Any{
			&expr.Meta{Key: expr.MetaKeyIIF, Register: firstRegister},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: firstRegister, Data: make([]byte, 4)},
		}, nil
	case ruleset.IsLocal:
		return isLocal(s)
	case ruleset.IsNew:
		return hasBit(expr.CtKeySTATE, binary.NativeEndian.AppendUint32(nil, expr.CtStateBitNEW)), nil
	case ruleset.HasDestinationNAT:
		return hasBit(expr.CtKeySTATUS, binary.NativeEndian.AppendUint32(nil, statusDNAT)), nil
	case ruleset.SetLabel:
		return []expr.Any{
			&expr.Immediate{Register: firstRegister, Data: label(s.Bit)},
			&expr.Ct{Key: expr.CtKeyLABELS, SourceRegister: true, Register: firstRegister},
		}, nil
	case ruleset.HasLabel:
		return hasBit(expr.CtKeyLABELS, label(s.Bit)), nil
	case ruleset.DNAT:
		return compileDNAT(family, s)
	case ruleset.UpdateAffinity:
		return changeAffinity(family, s.Map, s.Mask, unix.NFT_DYNSET_OP_UPDATE, s.Timeout)
	case ruleset.DeleteAffinity:
		return changeAffinity(family, s.Map, s.Mask, dynsetDelete, 0)
	case ruleset.Masquerade, ruleset.Reject, ruleset.Count:
		return []expr.Any{action(family, s)}, nil
	case ruleset.VerdictStatement:
		return compileVerdict(s.Verdict)
	}
	return nil, fmt.Errorf("unknown statement %T", statement)
}

var setPriority = &expr.Meta{Key: expr.MetaKeyPRIORITY, SourceRegister: true, Register: firstRegister}

func priorityOf(family model.Family, s ruleset.SetPriority) ([]expr.Any, error) {
	found, err := lookupKey(family, s.Key, expr.Lookup{SetName: s.Map.Name, IsDestRegSet: true, DestRegister: firstRegister})
	return append(found, setPriority), err
}

// lookupKey returns the expressions that look up a key in a set or map.
func lookupKey(family model.Family, key []ruleset.Field, lookup expr.Lookup) ([]expr.Any, error) {
	loads, _, err := load(family, key, firstRegister)
	lookup.SourceRegister = firstRegister
	return append(loads, &lookup), err
}

// compileDNAT returns a DNAT to a map's value. The port is in the register after the address: the map puts it
// there.
func compileDNAT(family model.Family, s ruleset.DNAT) ([]expr.Any, error) {
	expressions, err := lookupKey(family, s.Key, expr.Lookup{SetName: s.Map.Name, IsDestRegSet: true, DestRegister: firstRegister})
	return append(expressions, &expr.NAT{
		Type:        expr.NATTypeDestNAT,
		Family:      uint32(nfproto(family)),
		RegAddrMin:  firstRegister,
		RegProtoMin: firstRegister + registers(addrSize(family)),
	}), err
}

// dynsetDelete is NFT_DYNSET_OP_DELETE (Linux 5.4).
const dynsetDelete = 2

// changeAffinity adds or deletes an element of an affinity map from the packet path. The element's key is the number of
// the Service port, which is the masked priority, and the client's address; its value is the whole priority. The kernel
// requires the value of a map's element even to delete it.
func changeAffinity(family model.Family, affinity ruleset.Set, mask uint32, operation uint32, timeout time.Duration) ([]expr.Any, error) {
	key, next, err := load(family, []ruleset.Field{ruleset.Priority, ruleset.SourceAddr}, firstRegister)
	if err != nil {
		return nil, err
	}
	value, _, err := load(family, []ruleset.Field{ruleset.Priority}, next)
	if err != nil {
		return nil, err
	}
	masked := &expr.Bitwise{
		SourceRegister: firstRegister, DestRegister: firstRegister,
		Len: 4, Mask: binary.NativeEndian.AppendUint32(nil, mask), Xor: make([]byte, 4),
	}
	key = slices.Insert(key, 1, expr.Any(masked))
	return append(append(key, value...), &expr.Dynset{
		SetName:    affinity.Name,
		Operation:  operation,
		SrcRegKey:  firstRegister,
		SrcRegData: next,
		Timeout:    timeout,
	}), nil
}

// fromRange computes the first and the last address of the client's range. A range of one address needs no mask.
func fromRange(family model.Family, s ruleset.FromRange) ([]expr.Any, error) {
	key, _, err := load(family, []ruleset.Field{ruleset.Priority, ruleset.SourceAddr, ruleset.SourceAddr}, firstRegister)
	if err != nil {
		return nil, err
	}
	size := addrSize(family)
	if network := net.CIDRMask(s.Bits, 8*size); s.Bits < 8*size {
		hosts := make([]byte, size)
		for i := range hosts {
			hosts[i] = ^network[i]
		}
		first := firstRegister + 1
		last := first + registers(size)
		masked := func(register uint32, set []byte) expr.Any {
			return &expr.Bitwise{SourceRegister: register, DestRegister: register, Len: uint32(size), Mask: network, Xor: set}
		}
		key = []expr.Any{key[0], key[1], masked(first, make([]byte, size)), key[2], masked(last, hosts)}
	}
	return append(key, &expr.Lookup{SourceRegister: firstRegister, SetName: s.Set.Name}), nil
}

// inPrefix compares only the bytes of a prefix that ends at a byte, as nft does; any other needs a mask.
func inPrefix(family model.Family, s ruleset.InPrefix) ([]expr.Any, error) {
	if !s.Prefix.IsValid() || model.FamilyOfPrefix(s.Prefix) != family {
		return nil, fmt.Errorf("prefix %v: %w", s.Prefix, errWrongFamily)
	}
	bits := s.Prefix.Bits()
	prefix := s.Prefix.Masked().Addr().AsSlice()
	size := len(prefix)
	if bits%8 == 0 && bits > 0 {
		size = bits / 8
	}
	expressions, err := loadFirst(family, s.Field, size)
	if err != nil {
		return nil, err
	}
	if size == len(prefix) && bits < 8*size {
		expressions = append(expressions, &expr.Bitwise{
			SourceRegister: firstRegister,
			DestRegister:   firstRegister,
			Len:            uint32(len(prefix)),
			Mask:           net.CIDRMask(bits, 8*len(prefix)),
			Xor:            make([]byte, len(prefix)),
		})
	}
	return append(expressions, &expr.Cmp{Op: equalUnless(s.Not), Register: firstRegister, Data: prefix[:size]}), nil
}

// loadFirst loads the first bytes of a field. Only fields of the packet itself can be loaded in part.
func loadFirst(family model.Family, field ruleset.Field, size int) ([]expr.Any, error) {
	loads, _, err := load(family, []ruleset.Field{field}, firstRegister)
	if err != nil {
		return nil, err
	}
	if payload, ok := loads[0].(*expr.Payload); ok {
		payload.Len = uint32(size)
	}
	return loads, nil
}

func equalUnless(not bool) expr.CmpOp {
	if not {
		return expr.CmpOpNeq
	}
	return expr.CmpOpEq
}

// nameSize is the size of a link's name (IFNAMSIZ).
const nameSize = 16

// notFromInterface compares as many bytes of the name as are known: for a whole name also those after it, which are
// zero.
func notFromInterface(s ruleset.NotFromInterface) ([]expr.Any, error) {
	if s.Name == "" || len(s.Name) >= nameSize {
		return nil, fmt.Errorf("%q is not the name of a link", s.Name)
	}
	name := []byte(s.Name)
	if !s.Prefix {
		name = append(name, make([]byte, nameSize-len(name))...)
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: firstRegister},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: firstRegister, Data: name},
	}, nil
}

// isLocal looks up the type of an address in the routing tables.
func isLocal(s ruleset.IsLocal) ([]expr.Any, error) {
	fib := &expr.Fib{Register: firstRegister, ResultADDRTYPE: true, FlagSADDR: true}
	switch s.Field {
	case ruleset.SourceAddr:
	case ruleset.DestinationAddr:
		fib.FlagSADDR, fib.FlagDADDR = false, true
	default:
		return nil, fmt.Errorf("field %d has no address type", s.Field)
	}
	local := binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL)
	return []expr.Any{fib, &expr.Cmp{Op: equalUnless(s.Not), Register: firstRegister, Data: local}}, nil
}

// priorityBetween compares in network byte order, where the order of bytes is that of numbers.
func priorityBetween(s ruleset.PriorityBetween) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyPRIORITY, Register: firstRegister},
		&expr.Byteorder{SourceRegister: firstRegister, DestRegister: firstRegister, Op: expr.ByteorderHton, Len: 4, Size: 4},
		&expr.Cmp{Op: expr.CmpOpGte, Register: firstRegister, Data: binary.BigEndian.AppendUint32(nil, s.First)},
		&expr.Cmp{Op: expr.CmpOpLte, Register: firstRegister, Data: binary.BigEndian.AppendUint32(nil, s.Last)},
	}
}

// hasBit tests one bit of a connection's state in conntrack.
func hasBit(key expr.CtKey, bit []byte) []expr.Any {
	size, zero := uint32(len(bit)), make([]byte, len(bit))
	return []expr.Any{
		&expr.Ct{Key: key, Register: firstRegister},
		&expr.Bitwise{SourceRegister: firstRegister, DestRegister: firstRegister, Len: size, Mask: bit, Xor: zero},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: firstRegister, Data: zero},
	}
}

// label returns conntrack's labels with one bit set, as a little-endian machine stores them.
func label(bit uint8) []byte {
	const size = 16 // NF_CT_LABELS_MAX_SIZE
	labels := make([]byte, size)
	labels[bit/8] = 1 << (bit % 8)
	return labels
}

// action returns the expression of a statement that reads no field.
func action(family model.Family, statement ruleset.Statement) expr.Any {
	switch s := statement.(type) {
	case ruleset.Reject:
		return reject(family, s)
	case ruleset.Count:
		return &expr.Objref{Type: unix.NFT_OBJECT_COUNTER, Name: s.Counter}
	}
	return &expr.Masq{FullyRandom: true}
}

// reject replies with a reset or with the family's port unreachable: ICMP type 3 code 3, ICMPv6 type 1 code 4.
func reject(family model.Family, s ruleset.Reject) *expr.Reject {
	switch {
	case s.TCPReset:
		return &expr.Reject{Type: unix.NFT_REJECT_TCP_RST}
	case family == model.IPv4:
		return &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: 3}
	default:
		return &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: 4}
	}
}

func compileVerdict(verdict ruleset.Verdict) ([]expr.Any, error) {
	code, ok := verdictCode(verdict.Kind)
	if !ok {
		return nil, errNoVerdict
	}
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictKind(code), Chain: verdict.Chain}}, nil
}
