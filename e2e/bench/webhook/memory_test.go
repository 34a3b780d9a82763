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

// memorySample is the memory of a server after a number of reviews, in bytes.
type memorySample struct {
	reviews  int
	resident int64
	inUse    int64 // in use by the heap, garbage included
	live     int64 // of the heap, at the last collection
}

func (s *measuredServer) sampleMemory(t testing.TB) memorySample {
	t.Helper()
	values := s.metric(t, "go_memstats_heap_inuse_bytes", "go_gc_heap_live_bytes")
	return memorySample{s.reviewed, s.resident(t), int64(values[0]), int64(values[1])}
}

// collections is the number of garbage collections that measure the live heap: one may happen during a review.
const collections = 5

// live returns the size of the live heap of an idle server: the minimum of several garbage collections in a row. Small
// reviews, one at a time, trigger them.
func (s *measuredServer) live(t testing.TB) (minimum int64) {
	t.Helper()
	c, small := s.dial(t), kinds(t)[0]
	seen := 0
	cycle := -1.0
	for tries := 0; seen < collections+1; tries++ { // the first one may be older than the call
		if tries == 1000 {
			t.Fatal("no garbage collection within 200,000 reviews")
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
		if live := int64(values[1]); seen > 1 && (minimum == 0 || live < minimum) {
			minimum = live
		}
	}
	return minimum
}

func TestReviewsDoNotLeakMemory(t *testing.T) {
	// A map or list with an entry for each review would grow by more than maxGrowth, which is 13 bytes a review. Without a
	// leak, two measurements differ by up to 0.7 MiB, and by 1.3 MiB on a busy machine; the heap is 3.9 MB after 200,000
	// reviews. A leak is permanent, so further measurements do not hide it.
	const first, last, maxGrowth, retries = 20_000, 100_000, 1 << 20, 5
	s := newSetupWithoutServers(t)
	s.webhook = s.startWebhook(t)
	s.webhook.sendReviews(t, mix(t), first)
	before := s.webhook.live(t)
	s.webhook.sendReviews(t, mix(t), last-first)
	after := s.webhook.live(t)
	for range retries {
		if after > before+maxGrowth {
			after = min(after, s.webhook.live(t))
		}
	}
	if after > before+maxGrowth {
		t.Errorf("live heap: %d bytes after %d reviews, %d after %d", before, first, after, last)
	}
	t.Logf("live heap: %d bytes after %d reviews, %d after %d", before, first, after, last)
}

// These are the pod's memory limits in manifests/webhook/base/deployment.yaml.
const (
	podLimit      = 256 << 20
	podGoMemLimit = "GOMEMLIMIT=200MiB"
)

// oversizedReview returns a review of a Service with as many labels as fit into an object, all of them invalid. For an update,
// the old object has as many other invalid labels.
func oversizedReview(t testing.TB, operation admissionv1.Operation) review {
	t.Helper()
	var old []byte
	if operation == admissionv1.Update {
		old = oversizedObject("y")
	}
	return newReview(t, server.ValidateServicesPath, operation, oversizedObject("x"), old, response{denied: "SVC009"})
}

// oversizedObject returns an object whose label names start with the given letter.
func oversizedObject(letter string) []byte {
	const objectBytes = 3<<20 - 1<<10
	var labels strings.Builder
	for number := 0; labels.Len() < objectBytes; number++ {
		fmt.Fprintf(&labels, `"vicinity.dev/%s%d":"",`, letter, number)
	}
	return []byte(`{"metadata":{"name":"web","labels":{` + labels.String() + `"a":"b"}}}`)
}

func TestConcurrentLargeReviewsFitIntoPodLimit(t *testing.T) {
	s := newSetupWithoutServers(t)
	for _, test := range []struct {
		operation admissionv1.Operation
		atOnce    int
	}{{admissionv1.Create, 8}, {admissionv1.Update, 4}} {
		t.Run(fmt.Sprintf("%d %s", test.atOnce, test.operation), func(t *testing.T) {
			server := s.startWebhook(t, podGoMemLimit)
			review := oversizedReview(t, test.operation)
			var succeeded atomic.Int64
			var running sync.WaitGroup
			for range test.atOnce {
				connection := server.dial(t)
				running.Go(func() {
					// On a busy machine the last reviews may wait for longer than the server's write timeout; the time does not matter
					// here.
					_ = connection.SetDeadline(time.Now().Add(wait.Timeout))
					if connection.review(review, io.Discard) == nil {
						succeeded.Add(1)
					}
				})
			}
			running.Wait()
			if succeeded.Load() == 0 {
				t.Error("no review got a response")
			}
			if peak := server.peak(t); peak > podLimit {
				t.Errorf("the process used %d MiB, the pod's limit is %d MiB", peak>>20, podLimit>>20)
			}
			t.Logf("%d of %d got a response, peak memory %d MiB", succeeded.Load(), test.atOnce, server.peak(t)>>20)
		})
	}
}
