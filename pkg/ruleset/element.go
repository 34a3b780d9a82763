package ruleset

import (
	"net/netip"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Tuple holds the fields of a key or of a value. Which of them mean something is said by the set's types, in their order:
// the first TypeAddr is Addr, the second is Source.
//
// It is comparable, so that a key can index a Go map.
type Tuple struct {
	Addr   netip.Addr
	Source netip.Addr
	Number uint32 // TypeClass: a Class, or a slot as SlotNumber gives it
	Port   uint16
	Proto  model.Protocol
}

// Element is one entry of a set or map.
type Element struct {
	Key     Tuple
	Value   Tuple
	Verdict Verdict // for a map whose value is a verdict
}

// VerdictKind is what a verdict does.
type VerdictKind uint8

// The verdicts in use.
const (
	NoVerdict VerdictKind = iota
	Drop
	Jump
	Goto
)

// Verdict is the decision a rule or a map's element takes.
type Verdict struct {
	Kind  VerdictKind
	Chain string // of Jump and Goto
}

// Class is what is done with a connection: the value that the services map writes into the packet's priority and the dispatch
// map reads from it. A lb-N chain then writes the slot it draws there, for the endpoints map.
//
//	31      24 23                 0
//	┌─────────┬───────────────────┐
//	│  0xfd   │ slot              │   drawn
//	│  0xfe   │ number of slots   │   balance over that many slots
//	│  0xff   │ 1 refuse, 2 drop  │
//	└─────────┴───────────────────┘
//
// Real priorities are 0 to 15, or a tc handle, whose major number an administrator chose. fd00: and above are unlikely ones.
type Class uint32

// The classes without slots.
const (
	RefuseClass Class = 0xff000001
	DropClass   Class = 0xff000002
)

const (
	balanceClass Class  = 0xfe000000
	firstSlot    uint32 = 0xfd000000
	lastSlot     uint32 = 0xfdffffff
	lastClass    uint32 = 0xff00ffff
	// MaxSlots is the largest number of slots a Service port can have.
	MaxSlots = 1<<24 - 1
)

// BalanceClass returns the class that spreads connections over a number of slots, 1 to MaxSlots.
func BalanceClass(slots int) Class { return balanceClass | Class(slots) }

// Slots returns the number of slots of a class; zero for a class that refuses or drops.
func (c Class) Slots() int {
	if c&0xff000000 != balanceClass {
		return 0
	}
	return int(c &^ balanceClass)
}

// SlotNumber returns the number that stands for a slot in a packet's priority and in the key of the endpoints map.
func SlotNumber(slot int) uint32 { return firstSlot | uint32(slot) }
