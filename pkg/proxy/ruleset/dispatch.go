package ruleset

import (
	"strconv"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// dispatchOf returns what the dispatch map says of a class.
func dispatchOf(class Class) Verdict {
	switch class {
	case DropClass:
		return Verdict{Kind: Drop}
	case RefuseClass:
		return Verdict{Kind: Goto, Chain: refuseChain}
	default:
		return Verdict{Kind: Jump, Chain: drawChainName(class)}
	}
}

// preallocatedSlots is the largest number of slots whose class every table has, whether or not a Service needs it. A new
// class is a new verdict, and the kernel then looks at all verdicts that others have brought: their pairs of local and
// all endpoints, their wide ports, their timeouts. Nearly all Services have no more endpoints than this, so a change of
// their number does not depend on what other Services have.
const preallocatedSlots = 32

// preallocatedClasses are those that every table has.
func preallocatedClasses() []Class {
	classes := []Class{RefuseClass, DropClass}
	for slots := 1; slots <= preallocatedSlots; slots++ {
		classes = append(classes, BalanceClass(slots))
	}
	return classes
}

// ownPreallocated makes the table itself an owner of these classes and of their chains. It never gives them up.
func (d *planBuilder) ownPreallocated() {
	for _, family := range d.mirror.config.Families {
		d.counting.family, d.counting.set, d.counting.delta = family, Dispatch.Name, +1
		for _, class := range preallocatedClasses() {
			d.countOne(Element{Key: Tuple{Number: uint32(class)}, Verdict: dispatchOf(class)})
			if class.isBalanced() {
				d.ownChain(family, randomSlotChain(family, d.mirror.config, class), +1)
			}
		}
	}
}

func drawChainName(class Class) string {
	name := "lb-" + strconv.Itoa(class.slots())
	if class.isSplit() {
		name += "-local-" + strconv.Itoa(class.localSlots())
	}
	return name
}

// randomSlotChain draws a slot for every frontend of its class: `numgen … mod N` has N fixed in the rule. It looks nothing
// up itself, because a rule that is added for a map makes the kernel walk the whole map (nf_tables_bind_set): with
// 100,000 endpoints the first Service of a new size would cost 5 ms, and so would the last.
func randomSlotChain(family model.Family, config Config, class Class) Chain {
	chain := Chain{Name: drawChainName(class), Hook: NoHook}
	if class.isSplit() {
		chain.Rules = append(chain.Rules, drawForOutside(config.outside(family), class.localSlots(), VerdictStatement{Verdict{Kind: Return}}))
	}
	draw := Rule{RandomSlot{Slots: class.slots(), First: ClusterSlot}}
	if class.slots() == 0 {
		draw = Rule{VerdictStatement{Verdict{Kind: Goto, Chain: refuseChain}}}
	}
	chain.Rules = append(chain.Rules, draw)
	return chain
}

// drawForOutside draws among the endpoints on this node for a client outside. If there is none it stays silent: the
// load balancer that sent the packet here will notice that this node has no endpoint (KEP-2086).
func drawForOutside(outside Rule, slots int, then ...Statement) Rule {
	if slots == 0 {
		return append(outside, VerdictStatement{Verdict{Kind: Drop}})
	}
	return append(append(outside, RandomSlot{Slots: slots, First: LocalSlot}), then...)
}
