package ruleset

import (
	"net/netip"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Tuple holds the fields of a key or of a value. The set's types, in their order, determine which fields are used: the
// first TypeAddr is Addr, the second is Source.
//
// It is comparable, so that a key can index a Go map.
type Tuple struct {
	Addr   netip.Addr
	Source netip.Addr
	Number uint32 // TypeClass: a Class, or a slot, counted from ClusterSlot or LocalSlot
	Port   uint16
	Proto  model.Protocol
}

// Element is one entry of a set or map.
type Element struct {
	Key     Tuple
	Value   Tuple
	Verdict Verdict // for a map whose value is a verdict
	// Comment is for readers of nft's listing. The kernel stores it and otherwise ignores it: an element that is added
	// again with another comment remains unchanged. It is never read back.
	Comment string
}

// bare returns the element without its comment, as the kernel compares it.
func (e Element) bare() Element {
	e.Comment = ""
	return e
}

// VerdictKind is the kind of a verdict.
type VerdictKind uint8

// The verdicts in use.
const (
	NoVerdict VerdictKind = iota
	Drop
	Jump
	Goto
	Return
)

// Verdict is the verdict of a rule or of a map's element.
type Verdict struct {
	Kind  VerdictKind
	Chain string // the target of Jump and Goto
}

// target returns the chain that the verdict leads to; empty if there is none.
func (v Verdict) target() string {
	if v.Kind == Jump || v.Kind == Goto {
		return v.Chain
	}
	return ""
}

// Class selects how a connection is handled: the maps services and nodeports write it into the packet's priority, and
// the dispatch map reads it there. An lb chain then writes the slot that it picks there, for the endpoints maps.
//
//	31   28 27          16 15           0
//	┌──────┬──────────────┬──────────────┐
//	│ 0xe  │ local slots  │ slots        │   externalTrafficPolicy: Local: which of the two depends on the client
//	├──────┴───┬──────────┴──────────────┤
//	│ 0xf0-f4  │ port, endpoint          │   numbers of session affinity, see sizeClass
//	│   0xf5   │ list of source ranges   │   checked first: may the client dial?
//	│   0xf7   │ timeout, shard, kind    │   find the client's stored endpoint first, see affinityState
//	│   0xfa   │ dedicated map           │   balance over the slots of a port with many frontends and slots
//	│   0xfc   │ slot                    │   picked among the endpoints that externalTrafficPolicy: Local allows
//	│   0xfd   │ slot                    │   picked among all others
//	│   0xfe   │ number of slots         │   balance over that many slots
//	│   0xff   │ 1 refuse, 2 drop        │
//	└──────────┴─────────────────────────┘
//
// Real priorities are 0 to 15, or a tc handle, whose major number an administrator chooses. e000: and above are
// unlikely.
type Class uint32

// The classes without slots.
const (
	RefuseClass Class = 0xff000001
	DropClass   Class = 0xff000002
)

const (
	splitClass     Class = 0xe0000000
	sourcesClass   Class = 0xf5000000
	stickyClass    Class = 0xf7000000
	dedicatedClass Class = 0xfa000000
	balanceClass   Class = 0xfe000000
	lastClass      Class = 0xff00ffff
)

// The maximum number of endpoints that a Service port can use on a node: of all nodes, and of this one under a Local
// policy. Further endpoints are omitted.
const (
	MaxSlots      = 1<<16 - 1
	MaxLocalSlots = 1<<12 - 1
)

// maxListNumber is the highest number of a list of source ranges, and of a dedicated map.
const maxListNumber = 1<<24 - 1

// The first slots of the two load-balancing tables that a frontend may have.
const (
	LocalSlot   uint32 = 0xfc000000
	ClusterSlot uint32 = 0xfd000000
)

// BalanceClass returns the class that spreads connections over a number of slots, 1 to MaxSlots.
func BalanceClass(slots int) Class { return balanceClass | Class(slots) }

// SplitClass returns the class that spreads the connections of pods and of the node itself over slots, and all others
// over local slots. Without slots, connections of pods and the node are refused, and all others dropped.
func SplitClass(local, slots int) Class { return splitClass | Class(local)<<16 | Class(slots) }

// isSplit reports whether the class treats clients from outside differently from others.
func (c Class) isSplit() bool { return c>>28 == splitClass>>28 }

// isBalanced reports whether the class leads to an lb chain, for some clients at least.
func (c Class) isBalanced() bool { return c.isSplit() || c&0xff000000 == balanceClass }

// slots returns the number of slots, for pods and the node if the class is split.
func (c Class) slots() int { return int(c & MaxSlots) }

// localSlots returns the number of slots for all other clients, if the class is split.
func (c Class) localSlots() int { return int(c >> 16 & MaxLocalSlots) }
