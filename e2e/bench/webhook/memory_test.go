package webhook_test

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/server"
)

// remembered is what a server holds after so many reviews, in bytes.
type remembered struct {
	reviews  int
	resident int64
	inUse    int64 // of the heap, garbage included
	live     int64 // of the heap, when it was last collected
}

func (s *webhook) remember(t testing.TB) remembered {
	t.Helper()
	values := s.metric(t, "go_memstats_heap_inuse_bytes", "go_gc_heap_live_bytes")
	return remembered{s.reviewed, s.resident(t), int64(values[0]), int64(values[1])}
}

// collections is how many are looked at to know what is live: one may be in the middle of a review.
const collections = 5

// live is how much of the heap is in use when nothing is asked: the least that some collections in a row have found.
// Small reviews, one at a time, make them happen.
func (s *webhook) live(t testing.TB) (least int64) {
	t.Helper()
	c, small := s.dial(t), kinds(t)[0]
	seen := 0
	cycle := -1.0
	for tries := 0; seen < collections+1; tries++ { // the first one may be older than the question
		if tries == 1000 {
			t.Fatal("the heap is not collected")
		}
		for number := range 200 {
			if err := c.review(small.review(number), io.Discard); err != nil {
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

func TestReviewsKeepNoMemory(t *testing.T) {
	// A map with an entry for each review, or a list, would grow more than that: 13 bytes a review. Without a leak the
	// heap differs by up to 0.7 MiB from one look to another (and after 200,000 reviews is 3.9 MB), and on a busy machine
	// by 1.3. What leaks stays, so that a few more looks are fair.
	const first, last, mayGrow, looks = 20_000, 100_000, 1 << 20, 5
	s := newCluster(t)
	s.webhook = s.startWebhook(t)
	s.webhook.sendReviews(t, mix(t), first)
	before := s.webhook.live(t)
	s.webhook.sendReviews(t, mix(t), last-first)
	after := s.webhook.live(t)
	for range looks {
		if after > before+mayGrow {
			after = min(after, s.webhook.live(t))
		}
	}
	if after > before+mayGrow {
		t.Errorf("%d bytes are live after %d reviews, and %d after %d", before, first, after, last)
	}
	t.Logf("%d bytes are live after %d reviews, and %d after %d", before, first, after, last)
}

// The pod's memory, as manifests/webhook/base/deployment.yaml has it.
const (
	podLimit   = 256 << 20
	podGarbage = "GOMEMLIMIT=200MiB"
)

// flood is a review of a Service with as many labels as have room in an object, and each of them is wrong; so are
// others in the old one if it is an update.
func flood(t testing.TB, operation admissionv1.Operation) review {
	t.Helper()
	var old []byte
	if operation == admissionv1.Update {
		old = flooded("y")
	}
	return newReview(t, server.ValidateServicesPath, operation, flooded("x"), old, response{denied: "SVC009"})
}

// flooded is an object whose labels begin with that letter.
func flooded(letter string) []byte {
	const objectBytes = 3<<20 - 1<<10
	var labels strings.Builder
	for number := 0; labels.Len() < objectBytes; number++ {
		fmt.Fprintf(&labels, `"vicinity.dev/%s%d":"",`, letter, number)
	}
	return []byte(`{"metadata":{"name":"web","labels":{` + labels.String() + `"a":"b"}}}`)
}

func TestLargeReviewsAtOnceFitIntoThePod(t *testing.T) {
	s := newCluster(t)
	for _, c := range []struct {
		operation admissionv1.Operation
		atOnce    int
	}{{admissionv1.Create, 8}, {admissionv1.Update, 4}} {
		t.Run(fmt.Sprintf("%d %s", c.atOnce, c.operation), func(t *testing.T) {
			server := s.startWebhook(t, podGarbage)
			review := flood(t, c.operation)
			var answered atomic.Int64
			var running sync.WaitGroup
			for range c.atOnce {
				connection := server.dial(t)
				running.Go(func() {
					// On a busy machine the last ones may wait for longer than the server writes; how long does not matter here.
					_ = connection.SetDeadline(time.Now().Add(wait.Timeout))
					if connection.review(review, io.Discard) == nil {
						answered.Add(1)
					}
				})
			}
			running.Wait()
			if answered.Load() == 0 {
				t.Error("none is answered")
			}
			if peak := server.peak(t); peak > podLimit {
				t.Errorf("the process had %d MiB, and the pod may have %d", peak>>20, podLimit>>20)
			}
			t.Logf("%d of %d were answered, with %d MiB at most", answered.Load(), c.atOnce, server.peak(t)>>20)
		})
	}
}
