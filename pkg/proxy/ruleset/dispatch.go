package ruleset

import (
	"strconv"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// dispatchOf returns the verdict of a class in the dispatch map.
func dispatchOf(class Class) Verdict {
	switch class {
	case DropClass:
		return Verdict{Kind: Drop}
	case RefuseClass:
		return Verdict{Kind: Goto, Chain: refuseChain}
	default:
		return Verdict{Kind: Jump, Chain: balanceChainName(class)}
	}
}

// preallocatedSlots is the largest number of slots whose class every table has, whether or not a Service needs it. A
// new class is a new verdict, and the kernel then checks all verdicts that other Services have added: for their pairs
// of local and all endpoints, their ports with a dedicated map, their timeouts. Nearly all Services have no more
// endpoints than this, so the cost of a change of their number does not depend on other Services.
const preallocatedSlots = 32

// preallocatedClasses returns the classes that every table has.
func preallocatedClasses() []Class {
	classes := []Class{RefuseClass, DropClass}
	for slots := 1; slots <= preallocatedSlots; slots++ {
		classes = append(classes, BalanceClass(slots))
	}
	return classes
}

// ownPreallocated makes the table itself an owner of these classes and of their chains. It never releases them.
func (b *planBuilder) ownPreallocated() {
	for _, family := range b.mirror.config.Families {
		b.counting.family, b.counting.set, b.counting.delta = family, Dispatch.Name, +1
		for _, class := range preallocatedClasses() {
			b.countOne(Element{Key: Tuple{Number: uint32(class)}, Verdict: dispatchOf(class)})
			if class.isBalanced() {
				b.ownChain(family, randomSlotChain(family, b.mirror.config, class), +1)
			}
		}
	}
}

func balanceChainName(class Class) string {
	name := "lb-" + strconv.Itoa(class.slots())
	if class.isSplit() {
		name += "-local-" + strconv.Itoa(class.localSlots())
	}
	return name
}

// randomSlotChain returns the chain that picks a slot for every frontend of its class: `numgen … mod N` has N fixed in
// the rule. The chain uses no map, because adding a rule that refers to a map makes the kernel walk the whole map
// (nf_tables_bind_set): with 100,000 endpoints the first Service of a new size would cost 5 ms, and so would the last.
func randomSlotChain(family model.Family, config Config, class Class) Chain {
	chain := Chain{Name: balanceChainName(class), Hook: NoHook}
	if class.isSplit() {
		chain.Rules = append(chain.Rules, pickForOutside(config.matchOutside(family), class.localSlots(),
			VerdictStatement{Verdict{Kind: Return}}))
	}
	pick := Rule{RandomSlot{Slots: class.slots(), First: ClusterSlot}}
	if class.slots() == 0 {
		pick = Rule{VerdictStatement{Verdict{Kind: Goto, Chain: refuseChain}}}
	}
	chain.Rules = append(chain.Rules, pick)
	return chain
}

// pickForOutside returns the rule that picks among the endpoints on this node for a client outside the cluster. If
// there is none it drops the packet silently: the load balancer that sent the packet will notice that this node has no
// endpoint (KEP-2086).
func pickForOutside(outside Rule, slots int, then ...Statement) Rule {
	if slots == 0 {
		return append(outside, VerdictStatement{Verdict{Kind: Drop}})
	}
	return append(append(outside, RandomSlot{Slots: slots, First: LocalSlot}), then...)
}
