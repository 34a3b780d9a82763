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

// connection is one that is kept, and carries one review after the other.
type connection struct {
	*tls.Conn
	reader *bufio.Reader
}

func (s *webhook) dial(t testing.TB) *connection {
	t.Helper()
	made, err := tls.Dial("tcp", s.address, s.tls)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { made.Close() })
	return &connection{made, bufio.NewReader(made)}
}

// review sends a review and reads its answer to the end.
func (c *connection) review(review review, into io.Writer) error {
	if _, err := c.Write(review.request); err != nil {
		return err
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(into, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK || response.Close {
		return fmt.Errorf("a review is answered with status %d, Connection: close is %v", response.StatusCode, response.Close)
	}
	return nil
}

// together runs work on each of that many connections, and waits. Each failure fails the test.
func (s *webhook) together(t testing.TB, count int, work func(*connection) error) {
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

// sendReviews sends that many reviews, as fast as it goes.
func (s *webhook) sendReviews(t testing.TB, kind kind, reviews int) {
	t.Helper()
	var asked atomic.Int64
	s.together(t, connections, func(c *connection) error {
		for number := asked.Add(1); number <= int64(reviews); number = asked.Add(1) {
			if err := c.review(kind.review(int(number)), io.Discard); err != nil {
				return err
			}
		}
		return nil
	})
	s.reviewed += reviews
}

func (s *webhook) warmUp(t testing.TB) {
	t.Helper()
	s.sendReviews(t, mix(t), warmUp)
}

// cost is what reviews cost a server.
type cost struct {
	reviews         int
	took, processor time.Duration
}

func (c cost) perSecond() float64 { return float64(c.reviews) / c.took.Seconds() }
func (c cost) perCore() float64   { return float64(c.reviews) / c.processor.Seconds() }

// saturate asks for a while, as fast as it goes: there are more reviews on their way than processors.
func (s *webhook) saturate(t testing.TB, kind kind) cost {
	t.Helper()
	var asked atomic.Int64
	before, began := s.processorTime(t), time.Now()
	s.together(t, connections, func(c *connection) error {
		for time.Since(began) < saturated {
			if err := c.review(kind.review(int(asked.Add(1))), io.Discard); err != nil {
				return err
			}
		}
		return nil
	})
	made := cost{int(asked.Load()), time.Since(began), s.processorTime(t) - before}
	s.reviewed += made.reviews
	return made
}

// steady is what reviews at a steady rate took.
type steady struct {
	cost
	// times are from the moment at which a review was due to its answer, whenever it was sent: if the server, or this
	// process, held one up, those behind it have waited too. late is that part of them which is from due to sent.
	times, late []time.Duration
}

// steady asks at a rate that does not depend on the answers. A review that finds no connection idle waits for one.
func (s *webhook) steady(t testing.TB, kind kind, over time.Duration) steady {
	t.Helper()
	reviews := int(over.Seconds() * ratePerSecond)
	measured := steady{times: make([]time.Duration, reviews), late: make([]time.Duration, reviews)}
	due := make(chan due, reviews) // never full: the schedule waits for no client
	began := time.Now()
	before := s.processorTime(t)
	go keepSchedule(began.Add(50*time.Millisecond), due)
	s.together(t, connections, func(c *connection) error {
		for next := range due {
			measured.late[next.number] = time.Since(next.at)
			if err := c.review(kind.review(next.number), io.Discard); err != nil {
				return err
			}
			measured.times[next.number] = time.Since(next.at)
		}
		return nil
	})
	measured.cost = cost{reviews, time.Since(began), s.processorTime(t) - before}
	s.reviewed += reviews
	return measured
}

// due is a review that is to be sent.
type due struct {
	number int
	at     time.Time
}

// keepSchedule says of each review when it is due, and fills the channel. It has a thread of its own that the kernel
// wakes: timers of Go may be late by a millisecond, which is as long as the network poller sleeps at least.
func keepSchedule(from time.Time, into chan<- due) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(into)
	for number := range cap(into) {
		at := from.Add(time.Duration(number) * time.Second / ratePerSecond)
		for wait := time.Until(at); wait > 0; wait = time.Until(at) {
			span := unix.NsecToTimespec(wait.Nanoseconds())
			_ = unix.Nanosleep(&span, nil) // a signal may end it early; then the rest is slept
		}
		into <- due{number, at}
	}
}
