package webhook_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// connection is a persistent connection that carries one review after the other.
type connection struct {
	*tls.Conn
	reader *bufio.Reader
}

func (s *measuredServer) dial(t testing.TB) *connection {
	t.Helper()
	conn, err := tls.Dial("tcp", s.address, s.tls)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &connection{conn, bufio.NewReader(conn)}
}

// review sends a review and reads its response to the end.
func (c *connection) review(review review, w io.Writer) error {
	if _, err := c.Write(review.request); err != nil {
		return err
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(w, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK || response.Close {
		return fmt.Errorf("response with status %d, Connection: close %v", response.StatusCode, response.Close)
	}
	return nil
}

// concurrently runs work on count connections concurrently, and waits. Each error fails the test.
func (s *measuredServer) concurrently(t testing.TB, count int, work func(*connection) error) {
	t.Helper()
	var running sync.WaitGroup
	for range count {
		c := s.dial(t)
		running.Go(func() {
			if err := work(c); err != nil {
				t.Errorf("%s: %v", s.name, err)
			}
			c.Close()
		})
	}
	running.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// sendReviews sends the given number of reviews as fast as possible.
func (s *measuredServer) sendReviews(t testing.TB, kind kind, reviews int) {
	t.Helper()
	var sent atomic.Int64
	s.concurrently(t, connections, func(c *connection) error {
		for number := sent.Add(1); number <= int64(reviews); number = sent.Add(1) {
			if err := c.review(kind.review(int(number)), io.Discard); err != nil {
				return err
			}
		}
		return nil
	})
	s.reviewed += reviews
}

func (s *measuredServer) warmUp(t testing.TB) {
	t.Helper()
	s.sendReviews(t, mix(t), warmUp)
}

// cost is the cost of reviews for a server.
type cost struct {
	reviews      int
	elapsed, cpu time.Duration
}

func (c cost) perSecond() float64 { return float64(c.reviews) / c.elapsed.Seconds() }
func (c cost) perCore() float64   { return float64(c.reviews) / c.cpu.Seconds() }

// saturate sends reviews as fast as possible for a fixed time. More reviews are in flight than there are CPUs.
func (s *measuredServer) saturate(t testing.TB, kind kind) cost {
	t.Helper()
	var sent atomic.Int64
	before, began := s.cpuTime(t), time.Now()
	s.concurrently(t, connections, func(c *connection) error {
		for time.Since(began) < saturationTime {
			if err := c.review(kind.review(int(sent.Add(1))), io.Discard); err != nil {
				return err
			}
		}
		return nil
	})
	total := cost{int(sent.Load()), time.Since(began), s.cpuTime(t) - before}
	s.reviewed += total.reviews
	return total
}

// steady has the measurements of reviews at a steady rate.
type steady struct {
	cost
	// times are measured from the scheduled time of a review to its response. If the server or this process delays a
	// review, the delay of the reviews after it counts, too. late is the part from the scheduled time to the actual start.
	times, late []time.Duration
}

// steady sends reviews at a rate that does not depend on responses. A review waits if all connections are busy.
func (s *measuredServer) steady(t testing.TB, kind kind, duration time.Duration) steady {
	t.Helper()
	reviews := int(duration.Seconds() * ratePerSecond)
	measured := steady{times: make([]time.Duration, reviews), late: make([]time.Duration, reviews)}
	due := make(chan due, reviews) // never full: the schedule does not wait for clients
	began := time.Now()
	before := s.cpuTime(t)
	go scheduleReviews(began.Add(50*time.Millisecond), due)
	s.concurrently(t, connections, func(c *connection) error {
		for next := range due {
			measured.late[next.number] = time.Since(next.scheduled)
			if err := c.review(kind.review(next.number), io.Discard); err != nil {
				return err
			}
			measured.times[next.number] = time.Since(next.scheduled)
		}
		return nil
	})
	measured.cost = cost{reviews, time.Since(began), s.cpuTime(t) - before}
	s.reviewed += reviews
	return measured
}

// due is a scheduled review.
type due struct {
	number    int
	scheduled time.Time
}

// scheduleReviews sends each review to the channel at its scheduled time. It has its own thread that the kernel wakes:
// timers of Go may be late by a millisecond, the minimum sleep of the network poller.
func scheduleReviews(start time.Time, queue chan<- due) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(queue)
	for number := range cap(queue) {
		scheduled := start.Add(time.Duration(number) * time.Second / ratePerSecond)
		for wait := time.Until(scheduled); wait > 0; wait = time.Until(scheduled) {
			span := unix.NsecToTimespec(wait.Nanoseconds())
			_ = unix.Nanosleep(&span, nil) // a signal may end it early; the loop sleeps for the rest
		}
		queue <- due{number, scheduled}
	}
}
