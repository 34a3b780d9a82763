package ruleset_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// TestTheBitsOfAClass are readable in a listing: local slots in the middle, slots at the end.
func TestTheBitsOfAClass(t *testing.T) {
	const maxSlots, maxLocalSlots = ruleset.MaxSlots, ruleset.MaxLocalSlots
	for name, test := range map[string]struct {
		class        ruleset.Class
		number       uint32
		split        bool
		slots, local int
	}{
		"one slot":                             {ruleset.BalanceClass(1), 0xfe000001, false, 1, 0},
		"256 slots":                            {ruleset.BalanceClass(256), 0xfe000100, false, 256, 0},
		"as many slots as there can be":        {ruleset.BalanceClass(maxSlots), 0xfe00ffff, false, maxSlots, 0},
		"split, with slots on both sides":      {ruleset.SplitClass(1, 3), 0xe0010003, true, 3, 1},
		"split, without local slots":           {ruleset.SplitClass(0, 3), 0xe0000003, true, 3, 0},
		"split, with only local slots":         {ruleset.SplitClass(2, 0), 0xe0020000, true, 0, 2},
		"split, without any slot":              {ruleset.SplitClass(0, 0), 0xe0000000, true, 0, 0},
		"split, as many slots as there can be": {ruleset.SplitClass(maxLocalSlots, maxSlots), 0xefffffff, true, maxSlots, maxLocalSlots},
	} {
		t.Run(name, func(t *testing.T) {
			if uint32(test.class) != test.number {
				t.Errorf("the class is %#x, want %#x", uint32(test.class), test.number)
			}
			if got := test.class.Slots(); got != test.slots || !test.class.IsBalanced() || test.class.IsSplit() != test.split {
				t.Errorf("the class has %d slots, balanced: %v, split: %v; want %d, true and %v",
					got, test.class.IsBalanced(), test.class.IsSplit(), test.slots, test.split)
			}
			if got := test.class.LocalSlots(); test.split && got != test.local {
				t.Errorf("the class has %d local slots, want %d", got, test.local)
			}
		})
	}
}

// TestClassAndSlotRangesDoNotOverlap, because a packet carries first a class and then a slot in the same field.
// Real priorities are below both.
func TestClassAndSlotRangesDoNotOverlap(t *testing.T) {
	const maxSlots, maxLocalSlots = ruleset.MaxSlots, ruleset.MaxLocalSlots
	below, name := uint32(0xdfffffff), "priorities of other programs"
	sticky := func(timeout time.Duration, shard uint32, nodePorts bool) uint32 {
		return uint32(ruleset.StickyClass(timeout, shard, nodePorts))
	}
	lastShard := uint32(ruleset.Shards()[0] + ruleset.Shards()[1] + ruleset.Shards()[2] - 1)
	for _, test := range []struct {
		name        string
		first, last uint32
		slot        bool
	}{
		{"classes that are split", uint32(ruleset.SplitClass(0, 0)), uint32(ruleset.SplitClass(maxLocalSlots, maxSlots)), false},
		{"ports with few endpoints", 0xf0000000, 0xf0ffff00, false},
		{"ports with more endpoints", 0xf1000000, 0xf1fff000, false},
		{"endpoints of ports with few", 0xf2000000, 0xf2ffffff, false},
		{"endpoints of ports with more", 0xf3000000, 0xf3ffffff, false},
		{"ports with most endpoints", 0xf4000000, 0xf4ff0000, false},
		{"lists of source ranges", 0xf5000000, 0xf5ffffff, false},
		{"endpoints of ports with most", 0xf6000000, 0xf6ffffff, false},
		{"classes with session affinity", sticky(time.Second, 0, false), sticky(24*time.Hour, lastShard, true), false},
		{"ports with a dedicated map", 0xfa000000, 0xfaffffff, false},
		{"local slots", ruleset.LocalSlot, ruleset.LocalSlot + maxLocalSlots, true},
		{"slots", ruleset.ClusterSlot, ruleset.ClusterSlot + maxSlots, true},
		{"classes that balance", uint32(ruleset.BalanceClass(1)), uint32(ruleset.BalanceClass(maxSlots)), false},
		{"refuse and drop", uint32(ruleset.RefuseClass), uint32(ruleset.DropClass), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.first <= below || test.first > test.last {
				t.Errorf("%#x to %#x is not above %#x, where %s end", test.first, test.last, below, name)
			}
			if test.first < ruleset.FirstClass || test.last > ruleset.LastClass {
				t.Errorf("%#x to %#x is not within our range in the rules, %#x to %#x",
					test.first, test.last, ruleset.FirstClass, ruleset.LastClass)
			}
			if got := test.first >= ruleset.LocalSlot && test.last <= ruleset.LastSlot; got != test.slot {
				t.Errorf("the numbers are slots: %v, want %v", got, test.slot)
			}
			below, name = test.last, test.name
		})
	}
}

// TestAClassEncodesTheTimeoutTheShardAndTheKind, each in bits of its own: classes that differ in one of them lead to
// different chains.
func TestAClassEncodesTheTimeoutTheShardAndTheKind(t *testing.T) {
	if got, want := ruleset.StickyClass(24*time.Hour, 17, true), ruleset.Class(0xf7000000|86400<<6|17<<1|1); got != want {
		t.Errorf("the class is %#x, want %#x", got, want)
	}
	seen := map[ruleset.Class]string{}
	for _, seconds := range []int{1, 2, 31, 32, 63, 64, 10800, 65535, 65536, 86399, 86400} {
		for shard := range uint32(18) {
			for _, nodePorts := range []bool{false, true} {
				class := ruleset.StickyClass(time.Duration(seconds)*time.Second, shard, nodePorts)
				description := fmt.Sprintf("%d seconds, shard %d, node ports: %v", seconds, shard, nodePorts)
				if other, taken := seen[class]; taken || class.IsBalanced() || class>>24 != 0xf7 {
					t.Errorf("%#x is the class of %s and of %s", class, description, other)
				}
				seen[class] = description
			}
		}
	}
}

// TestTheNumbersOfASizeClass: an endpoint's number determines the port to which it belongs.
func TestTheNumbersOfASizeClass(t *testing.T) {
	for size, test := range []struct{ lastPort, endpoint, shards uint32 }{
		{0xf0ffff00, 0xf2ffff07, 16}, {0xf1fff000, 0xf3fff007, 1}, {0xf4ff0000, 0xf6ff0007, 1},
	} {
		for _, number := range []uint32{test.lastPort, test.endpoint} {
			got, isEndpoint, ok := ruleset.NumberKind(number)
			if !ok || got != size || isEndpoint != (number == test.endpoint) {
				t.Errorf("%#x has size class %d, is an endpoint's: %v", number, got, isEndpoint)
			}
		}
		if got := ruleset.PortOf(test.endpoint); got != test.lastPort {
			t.Errorf("%#x belongs to the port %#x, want %#x", test.endpoint, got, test.lastPort)
		}
		if got := uint32(ruleset.Shards()[size]); got != test.shards {
			t.Errorf("size class %d has %d shards, want %d", size, got, test.shards)
		}
	}
	for _, number := range []uint32{0, ruleset.NoPort, 0xe0000001, 0xf5000000, 0xf7000000, 0xfa000000, 0xfe000001, 0xff000001} {
		if _, _, ok := ruleset.NumberKind(number); ok {
			t.Errorf("%#x is treated as a number of session affinity", number)
		}
	}
}

func TestIsBalancedForOtherNumbers(t *testing.T) {
	for name, number := range map[string]uint32{
		"refuse":                    uint32(ruleset.RefuseClass),
		"drop":                      uint32(ruleset.DropClass),
		"no class":                  0,
		"a slot":                    ruleset.ClusterSlot + 7,
		"a local slot":              ruleset.LocalSlot + 7,
		"the last of all slots":     ruleset.LastSlot,
		"a tc handle":               0x00010002,
		"a number below our range":  ruleset.FirstClass - 1,
		"a number above our range":  ruleset.LastClass + 1,
		"the highest number":        0xffffffff,
		"the number of a port":      0xf0000000,
		"the number of an endpoint": 0xf2000001,
		"a class with affinity":     0xf7000000 | 3600<<6,
		"the number before slots":   ruleset.LocalSlot - 1,
		"the number before refuse":  uint32(ruleset.RefuseClass) - 1,
	} {
		t.Run(name, func(t *testing.T) {
			if class := ruleset.Class(number); class.IsBalanced() || class.IsSplit() {
				t.Errorf("%#x is balanced: %v, split: %v", number, class.IsBalanced(), class.IsSplit())
			}
		})
	}
}
