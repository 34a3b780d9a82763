package ruleset_test

import (
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// TestTheBitsOfAClass are what a person reads in a listing: local slots in the middle, slots at the end.
func TestTheBitsOfAClass(t *testing.T) {
	const most, mostLocal = ruleset.MaxSlots, ruleset.MaxLocalSlots
	for name, test := range map[string]struct {
		class        ruleset.Class
		number       uint32
		split        bool
		slots, local int
	}{
		"one slot":                             {ruleset.BalanceClass(1), 0xfe000001, false, 1, 0},
		"256 slots":                            {ruleset.BalanceClass(256), 0xfe000100, false, 256, 0},
		"as many slots as there can be":        {ruleset.BalanceClass(most), 0xfe00ffff, false, most, 0},
		"split, with slots on both sides":      {ruleset.SplitClass(1, 3), 0xe0010003, true, 3, 1},
		"split, without local slots":           {ruleset.SplitClass(0, 3), 0xe0000003, true, 3, 0},
		"split, with local slots alone":        {ruleset.SplitClass(2, 0), 0xe0020000, true, 0, 2},
		"split, without any slot":              {ruleset.SplitClass(0, 0), 0xe0000000, true, 0, 0},
		"split, as many slots as there can be": {ruleset.SplitClass(mostLocal, most), 0xefffffff, true, most, mostLocal},
	} {
		t.Run(name, func(t *testing.T) {
			if uint32(test.class) != test.number {
				t.Errorf("the class is %#x, want %#x", uint32(test.class), test.number)
			}
			if got := test.class.Slots(); got != test.slots || !test.class.IsBalanced() || test.class.IsSplit() != test.split {
				t.Errorf("it has %d slots, balanced: %v, split: %v; want %d, true and %v",
					got, test.class.IsBalanced(), test.class.IsSplit(), test.slots, test.split)
			}
			if got := test.class.LocalSlots(); test.split && got != test.local {
				t.Errorf("it has %d local slots, want %d", got, test.local)
			}
		})
	}
}

// TestTheRangesOfClassesAndSlotsAreApart, for they travel in the same field of a packet, one after the other. Real
// priorities are below all of them.
func TestTheRangesOfClassesAndSlotsAreApart(t *testing.T) {
	const most, mostLocal = ruleset.MaxSlots, ruleset.MaxLocalSlots
	below, name := uint32(0xdfffffff), "priorities of other programs"
	for _, test := range []struct {
		name        string
		first, last uint32
		slot        bool
	}{
		{"classes that are split", uint32(ruleset.SplitClass(0, 0)), uint32(ruleset.SplitClass(mostLocal, most)), false},
		{"local slots", ruleset.LocalSlot, ruleset.LocalSlot + mostLocal, true},
		{"slots", ruleset.ClusterSlot, ruleset.ClusterSlot + most, true},
		{"classes that balance", uint32(ruleset.BalanceClass(1)), uint32(ruleset.BalanceClass(most)), false},
		{"refuse and drop", uint32(ruleset.RefuseClass), uint32(ruleset.DropClass), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.first <= below || test.first > test.last {
				t.Errorf("%#x to %#x does not lie above %#x, where %s end", test.first, test.last, below, name)
			}
			if test.first < ruleset.FirstClass || test.last > ruleset.LastClass {
				t.Errorf("%#x to %#x is not inside what the rules call ours, %#x to %#x",
					test.first, test.last, ruleset.FirstClass, ruleset.LastClass)
			}
			if got := test.first >= ruleset.LocalSlot && test.last <= ruleset.LastSlot; got != test.slot {
				t.Errorf("nat-postrouting takes the numbers for slots: %v, want %v", got, test.slot)
			}
			below, name = test.last, test.name
		})
	}
}

func TestOnlyAClassThatBalancesIsCalledSo(t *testing.T) {
	for name, number := range map[string]uint32{
		"refuse":                   uint32(ruleset.RefuseClass),
		"drop":                     uint32(ruleset.DropClass),
		"no class":                 0,
		"a slot":                   ruleset.ClusterSlot + 7,
		"a local slot":             ruleset.LocalSlot + 7,
		"the last of all slots":    ruleset.LastSlot,
		"a tc handle":              0x00010002,
		"a number below all ours":  ruleset.FirstClass - 1,
		"a number above all ours":  ruleset.LastClass + 1,
		"what no number may be":    0xffffffff,
		"between split and local":  0xf0000000,
		"the number before slots":  ruleset.LocalSlot - 1,
		"the number before refuse": uint32(ruleset.RefuseClass) - 1,
	} {
		t.Run(name, func(t *testing.T) {
			if class := ruleset.Class(number); class.IsBalanced() || class.IsSplit() {
				t.Errorf("%#x is balanced: %v, split: %v", number, class.IsBalanced(), class.IsSplit())
			}
		})
	}
}
