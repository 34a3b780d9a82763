package webhook_test

import (
	"io"
	"testing"
)

// remembered is what a server holds after so many reviews, in bytes.
type remembered struct {
	reviews  int
	resident int64
	inUse    int64 // of the heap, garbage included
	live     int64 // of the heap, when it was last collected
}

func (s *server) remember(t testing.TB) remembered {
	t.Helper()
	values := s.metric(t, "go_memstats_heap_inuse_bytes", "go_gc_heap_live_bytes")
	return remembered{s.asked, s.resident(t), int64(values[0]), int64(values[1])}
}

// collections is how many are looked at to know what is live: one may be in the middle of a review.
const collections = 5

// live is how much of the heap is in use when nothing is asked: the least that some collections in a row have found. Small reviews, one
// at a time, make them happen.
func (s *server) live(t testing.TB) (least int64) {
	t.Helper()
	c, small := s.dial(t), kinds(t)[0]
	seen := 0
	cycle := -1.0
	for tries := 0; seen < collections+1; tries++ { // the first one may be older than the question
		if tries == 1000 {
			t.Fatal("the heap is not collected")
		}
		for number := range 200 {
			if err := c.ask(small.review(number), io.Discard); err != nil {
				t.Fatal(err)
			}
		}
		values := s.metric(t, "go_gc_cycles_total_gc_cycles_total", "go_gc_heap_live_bytes")
		if values[0] == cycle {
			continue
		}
		cycle = values[0]
		seen++
		if live := int64(values[1]); seen > 1 && (least == 0 || live < least) {
			least = live
		}
	}
	return least
}

func TestReviewsLeaveNothingInTheProcess(t *testing.T) {
	// A map with an entry for each review, or a list, would grow more than that.
	const first, last, mayGrow = 20_000, 60_000, 512 << 10
	s := newCluster(t)
	s.webhook = s.startWebhook(t)
	s.webhook.ask(t, mix(t), first)
	before := s.webhook.live(t)
	s.webhook.ask(t, mix(t), last-first)
	after := s.webhook.live(t)
	if after > before+mayGrow {
		t.Errorf("%d bytes are live after %d reviews, and %d after %d", before, first, after, last)
	}
	t.Logf("%d bytes are live after %d reviews, and %d after %d", before, first, after, last)
}
