package ruleset_test

import (
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/ruleset"
)

// TestNumbersInAPacketsPriorityNeverMeanTwoThings, for classes and slots travel in the same field, one after the other.
func TestNumbersInAPacketsPriorityNeverMeanTwoThings(t *testing.T) {
	counts := []int{1, 2, 3, 255, 256, 65535, 65536, ruleset.MaxSlots - 1, ruleset.MaxSlots}
	meaning := map[uint32]string{uint32(ruleset.RefuseClass): "refuse", uint32(ruleset.DropClass): "drop", 0: "no priority"}
	claim := func(number uint32, means string) {
		if other, taken := meaning[number]; taken {
			t.Errorf("%#x means %s and %s", number, other, means)
		}
		meaning[number] = means
	}
	for _, count := range counts {
		claim(uint32(ruleset.BalanceClass(count)), "a class")
		claim(ruleset.SlotNumber(count-1), "a slot")
		if got := ruleset.BalanceClass(count).Slots(); got != count {
			t.Errorf("the class of %d slots has %d", count, got)
		}
	}
	claim(ruleset.SlotNumber(ruleset.MaxSlots), "a slot beyond the last")
}

func TestTheRangesOfClassesAndSlotsAreApart(t *testing.T) {
	for name, test := range map[string]struct{ first, last, above uint32 }{
		"slots lie above what a queueing discipline reads": {
			ruleset.SlotNumber(0), ruleset.SlotNumber(ruleset.MaxSlots), 0xfcffffff,
		},
		"numbers of slots lie above slots": {
			uint32(ruleset.BalanceClass(1)), uint32(ruleset.BalanceClass(ruleset.MaxSlots)), ruleset.SlotNumber(ruleset.MaxSlots),
		},
		"refuse and drop lie above numbers of slots": {
			uint32(ruleset.RefuseClass), uint32(ruleset.DropClass), uint32(ruleset.BalanceClass(ruleset.MaxSlots)),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if test.first > test.last || test.first <= test.above {
				t.Errorf("%#x to %#x does not lie above %#x", test.first, test.last, test.above)
			}
		})
	}
}

func TestOnlyAClassThatBalancesHasSlots(t *testing.T) {
	for name, class := range map[string]ruleset.Class{
		"refuse":      ruleset.RefuseClass,
		"drop":        ruleset.DropClass,
		"no class":    0,
		"a slot":      ruleset.Class(ruleset.SlotNumber(7)),
		"a tc handle": 0x00010002,
	} {
		t.Run(name, func(t *testing.T) {
			if got := class.Slots(); got != 0 {
				t.Errorf("it has %d slots", got)
			}
		})
	}
}
