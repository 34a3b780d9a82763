package ruleset

import (
	"net/netip"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Tuple holds the fields of a key or of a value. The set's types, in their order, say which fields are in use: the
// first TypeAddr is Addr, the second is Source.
//
// It is comparable, so that a key can index a Go map.
type Tuple struct {
	Addr   netip.Addr
	Source netip.Addr
	Number uint32 // TypeClass: a Class, or a slot of the table that ClusterSlot or LocalSlot begin
	Port   uint16
	Proto  model.Protocol
}

// Element is one entry of a set or map.
type Element struct {
	Key     Tuple
	Value   Tuple
	Verdict Verdict // for a map whose value is a verdict
	// Comment is for people, who see it in nft's listing. The kernel stores it and otherwise ignores it: an element that
	// is added again with another comment stays as it is. We never read it back.
	Comment string
}

// bare returns the element as the kernel compares it.
func (e Element) bare() Element {
	e.Comment = ""
	return e
}

// VerdictKind is what a verdict does.
type VerdictKind uint8

// The verdicts in use.
const (
	NoVerdict VerdictKind = iota
	Drop
	Jump
	Goto
	Return
)

// Verdict is the decision a rule or a map's element takes.
type Verdict struct {
	Kind  VerdictKind
	Chain string // of Jump and Goto
}

// target returns the chain that the verdict leads to; empty if it leads to none.
func (v Verdict) target() string {
	if v.Kind == Jump || v.Kind == Goto {
		return v.Chain
	}
	return ""
}

// Class is what is done with a connection: the value that the maps services and nodeports write into the packet's
// priority and the dispatch map reads from it. A lb chain then writes the slot it draws there, for the endpoints maps.
//
//	31   28 27          16 15           0
//	┌──────┬──────────────┬──────────────┐
//	│ 0xe  │ local slots  │ slots        │   externalTrafficPolicy: Local: which of the two depends on the client
//	├──────┴───┬──────────┴──────────────┤
//	│ 0xf0-f4  │ port, endpoint          │   numbers of session affinity, see tier
//	│   0xf5   │ list of source ranges   │   before anything else, to ask whether the client may dial
//	│   0xf7   │ timeout, shard, kind    │   look for the client first, see memory
//	│   0xfa   │ wide port               │   balance over the slots of a port with many frontends and slots
//	│   0xfc   │ slot                    │   drawn among the endpoints that externalTrafficPolicy: Local allows
//	│   0xfd   │ slot                    │   drawn among all others
//	│   0xfe   │ number of slots         │   balance over that many slots
//	│   0xff   │ 1 refuse, 2 drop        │
//	└──────────┴─────────────────────────┘
//
// Real priorities are 0 to 15, or a tc handle, whose major number an administrator chose. e000: and above are unlikely
// ones.
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

// How many endpoints a Service port can use on a node: of all nodes, and of this one under a Local policy. Any more are
// left out.
const (
	MaxSlots      = 1<<16 - 1
	MaxLocalSlots = 1<<12 - 1
)

// maxListNumber is the highest number of a list of source ranges, and of a wide port.
const maxListNumber = 1<<24 - 1

// The first slots of the two load-balancing tables that a frontend may have.
const (
	LocalSlot   uint32 = 0xfc000000
	ClusterSlot uint32 = 0xfd000000
)

// BalanceClass returns the class that spreads connections over a number of slots, 1 to MaxSlots.
func BalanceClass(slots int) Class { return balanceClass | Class(slots) }

// SplitClass returns the class that spreads the connections of pods and of the node itself over slots, and all others
// over local slots. Those without slots are refused and dropped.
func SplitClass(local, slots int) Class { return splitClass | Class(local)<<16 | Class(slots) }

// isSplit reports whether the class treats clients from outside differently from others.
func (c Class) isSplit() bool { return c>>28 == splitClass>>28 }

// isBalanced reports whether the class leads to a lb chain, for some clients at least.
func (c Class) isBalanced() bool { return c.isSplit() || c&0xff000000 == balanceClass }

// slots returns the number of slots, for pods and the node if the class is split.
func (c Class) slots() int { return int(c & MaxSlots) }

// localSlots returns the number of slots for all other clients, if the class is split.
func (c Class) localSlots() int { return int(c >> 16 & MaxLocalSlots) }
