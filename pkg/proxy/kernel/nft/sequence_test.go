//go:build linux

package nft

import (
	"math"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

func TestNextGeneration(t *testing.T) {
	for name, test := range map[string]struct {
		before    uint32
		committed bool
		want      uint32
	}{
		"an applied batch increments it":          {7, true, 8},
		"a rejected batch does not":               {7, false, 7},
		"the kernel skips zero after an overflow": {math.MaxUint32, true, 1},
		"a rejected batch at the largest number":  {math.MaxUint32, false, math.MaxUint32},
	} {
		if got := nextGeneration(test.before, test.committed); got != test.want {
			t.Errorf("%s: got %d after %d, want %d", name, got, test.before, test.want)
		}
	}
}

// A commit that timed out leaves its reply in the socket.
func TestAnUnreadReplyIsSkippedByTheNextBatch(t *testing.T) {
	c := dial(t, netns.New(t), Options{})
	rejected, err := c.Encode(ruleset.Batch{Ops: []ruleset.Op{{Verb: ruleset.Delete, Family: model.IPv4, Object: ruleset.TableObject{}}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.writer.send(rejected.bytes); err != nil {
		t.Fatal(err)
	}
	if err := c.Commit(t.Context(), everything(model.IPv4)); err != nil {
		t.Errorf("a valid batch after the rejected one: %v", err)
	}
	if objects, err := c.Objects(t.Context(), model.IPv4); err != nil || !objects.Table {
		t.Errorf("the table exists: %v, %v; want true", objects.Table, err)
	}
}

// The numbers include opening and end, so that a reply identifies a single message.
func TestNoTwoMessagesOfTwoBatchesHaveTheSameNumber(t *testing.T) {
	c := dial(t, netns.New(t), Options{})
	seen := map[uint32]bool{}
	for range 3 {
		encoded, err := c.Encode(everything(model.IPv4))
		if err != nil {
			t.Fatal(err)
		}
		for m, err := range parseMessages(encoded.bytes) {
			if err != nil {
				t.Fatal(err)
			}
			if seen[m.sequence] {
				t.Fatalf("two messages have the number %d", m.sequence)
			}
			seen[m.sequence] = true
		}
	}
}
