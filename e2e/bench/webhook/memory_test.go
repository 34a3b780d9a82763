package webhook_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
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

// The pod's memory, as manifests/webhook/base/deployment.yaml has it.
const (
	podLimit   = 256 << 20
	podGarbage = "GOMEMLIMIT=200MiB"
)

// flood is a request about a Service with as many labels as have room in an object, and each of them is wrong; so are others in the
// old one if it is an update.
func flood(operation string) []byte {
	body := fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":%q,"operation":%q,`+
		`"kind":{"group":"","version":"v1","kind":"Service"},"resource":{"group":"","version":"v1","resource":"services"},`+
		`"namespace":%q,"name":"web","object":%s`, reviewID, operation, namespace, flooded("x"))
	if operation == "UPDATE" {
		body += `,"oldObject":` + flooded("y")
	}
	body += "}}"
	return fmt.Appendf(nil, "POST /validate-services HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", len(body), body)
}

// flooded is an object whose labels begin with that letter.
func flooded(letter string) string {
	const objectBytes = 3<<20 - 1<<10
	var labels strings.Builder
	for number := 0; labels.Len() < objectBytes; number++ {
		fmt.Fprintf(&labels, `"vicinity.dev/%s%d":"",`, letter, number)
	}
	return `{"metadata":{"name":"web","labels":{` + labels.String() + `"a":"b"}}}`
}

func TestLargeReviewsAtOnceFitIntoThePod(t *testing.T) {
	s := newCluster(t)
	for _, c := range []struct {
		operation string
		atOnce    int
	}{{"CREATE", 8}, {"UPDATE", 4}} {
		t.Run(fmt.Sprintf("%d %s", c.atOnce, c.operation), func(t *testing.T) {
			webhook := s.startWebhook(t, podGarbage)
			request := flood(c.operation)
			var answered atomic.Int64
			var running sync.WaitGroup
			for range c.atOnce {
				connection := webhook.dial(t)
				running.Go(func() {
					// On a busy machine the last ones may wait for longer than the server writes; how long is no matter here.
					_ = connection.SetDeadline(time.Now().Add(patience))
					if _, err := connection.Write(request); err != nil {
						return
					}
					answer, err := http.ReadResponse(connection.reader, nil)
					if err != nil {
						return
					}
					defer answer.Body.Close()
					_, _ = io.Copy(io.Discard, answer.Body)
					if answer.StatusCode == http.StatusOK {
						answered.Add(1)
					}
				})
			}
			running.Wait()
			if answered.Load() == 0 {
				t.Error("none is answered")
			}
			if peak := webhook.peak(t); peak > podLimit {
				t.Errorf("the process had %d MiB, and the pod may have %d", peak>>20, podLimit>>20)
			}
			t.Logf("%d of %d were answered, with %d MiB at most", answered.Load(), c.atOnce, webhook.peak(t)>>20)
		})
	}
}
