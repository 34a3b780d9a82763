package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"
	eventsv1client "k8s.io/client-go/kubernetes/typed/events/v1"
)

// The limits; the package's documentation says what they add up to.
const (
	// burst is how many Events are created at once after a quiet time: a start, and a handful of objects that somebody just broke.
	burst = 10
	// interval is the time after which one more may be created.
	interval = 10 * time.Second
	// spread bounds the pause before the first Event after a quiet time.
	spread = 10 * time.Second
	// oncePer is how long a sentence is not repeated: the API server forgets Events after an hour (its --event-ttl).
	oncePer = time.Hour
	// lateAfter is how long an event may wait before the log says that it cannot be told. An API server that restarts is back by then.
	lateAfter = 5 * time.Minute
	// complaintsEvery is the shortest time between two log lines about Events that are late or were dropped.
	complaintsEvery = 10 * time.Minute
)

// errTooMany is why an event is dropped that the API server did not refuse.
var errTooMany = errors.New("too many are waiting")

// Recorder tells events to the API server. Its methods may be called by several goroutines.
type Recorder struct {
	client eventsv1client.EventsGetter
	node   string
	log    *slog.Logger

	arrived chan struct{} // holds one if something may be waiting

	mutex sync.Mutex
	queue queue
	// told holds what waits, with the zero time, and what was told within the hour, with that time. maxWaiting and the rate bound it.
	told    map[sentence]time.Time
	dropped int
	// complained is when the log last said that events were late or dropped.
	complained time.Time
}

// sentence is what is not repeated.
type sentence struct {
	regarding     Reference
	reason, topic string
}

// New returns a recorder for the proxy of a node.
func New(client eventsv1client.EventsGetter, node string, log *slog.Logger) *Recorder {
	return &Recorder{
		client: client, node: node, log: log,
		arrived: make(chan struct{}, 1), told: map[sentence]time.Time{},
	}
}

// Tell has an event told, unless it waits already, was told within the hour, or too many are waiting. It returns at once.
func (r *Recorder) Tell(event Event) {
	event.Note, event.Topic = noteOf(event.Note), noteOf(event.Topic)
	entry := waiting{event: event, at: time.Now()}
	if lost, isLost := r.enqueue(entry); isLost {
		r.drop(lost, errTooMany)
	}
	select {
	case r.arrived <- struct{}{}:
	default:
	}
}

// Dropped returns how many events were dropped: too many were waiting, or the API server did not want them.
func (r *Recorder) Dropped() int {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.dropped
}

// Run tells what waits until ctx ends. What waits then is not told any more. The error is always nil.
func (r *Recorder) Run(ctx context.Context) error {
	limit := rate.NewLimiter(rate.Every(interval), burst)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.arrived:
		}
		if !pause(ctx, rand.N(spread)) || !r.tellAll(ctx, limit) {
			return nil
		}
	}
}

// tellAll tells until nothing waits, and reports whether ctx still goes on. Each try counts for the limit, whatever becomes of it.
func (r *Recorder) tellAll(ctx context.Context, limit *rate.Limiter) bool {
	pauses := retries
	for r.isWaiting() {
		if !pause(ctx, limit.Reserve().Delay()) {
			return false
		}
		if r.tellNext(ctx) {
			pauses = retries
		} else if !pause(ctx, pauses.Step()) {
			return false
		}
	}
	return true
}

// tellNext takes the next event out of the queue, which must not be empty, and tries to create it. It reports whether that decided
// what becomes of the event. If not, the API server being away or busy, the event waits again, behind those of all namespaces: what
// one of them may not have, such as more Events than its ResourceQuota allows, holds up no other.
func (r *Recorder) tellNext(ctx context.Context) (isDecided bool) {
	r.mutex.Lock()
	next := r.queue.pop()
	r.mutex.Unlock()
	err := r.create(ctx, objectOf(next.event, r.node, next.at))
	switch {
	case err == nil:
		r.remember(next)
		return true
	case ctx.Err() != nil:
		return false
	case isFinal(err):
		r.drop(next, err)
		return true
	}
	r.putBack(next, err)
	return false
}

// remember begins the hour in which a sentence is not repeated.
func (r *Recorder) remember(told waiting) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.told[sentenceOf(told.event)] = time.Now()
}

// putBack lets an event wait again that could not be told. If others took its place meanwhile and the queue is full, it is dropped, or
// another one is.
func (r *Recorder) putBack(entry waiting, cause error) {
	r.mutex.Lock()
	lost, isLost := r.queue.push(entry)
	r.mutex.Unlock()
	switch {
	case isLost:
		r.drop(lost, fmt.Errorf("%w, and the API server takes none: %w", errTooMany, cause))
	case time.Since(entry.at) >= lateAfter:
		r.complain("an Event is late, and is tried again; others may be, too", entry.event, cause)
	}
}

// enqueue puts an event into the queue unless it waits there or was told within the hour, and returns one that had to give way.
func (r *Recorder) enqueue(entry waiting) (lost waiting, isLost bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	maps.DeleteFunc(r.told, func(_ sentence, at time.Time) bool { return !at.IsZero() && entry.at.Sub(at) >= oncePer })
	key := sentenceOf(entry.event)
	if _, isTold := r.told[key]; isTold {
		return waiting{}, false
	}
	r.told[key] = time.Time{}
	return r.queue.push(entry)
}

func (r *Recorder) isWaiting() bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.queue.size > 0
}

// drop counts an event that will not be told. The same sentence is a new one if somebody tells it again; who tells a problem once, when
// it begins, will not.
func (r *Recorder) drop(lost waiting, cause error) {
	r.mutex.Lock()
	delete(r.told, sentenceOf(lost.event))
	r.dropped++
	r.mutex.Unlock()
	r.complain("an Event was not told; more may follow, and are counted", lost.event, cause)
}

// complain logs what became of an event, and how many there are now, unless it did so a short while ago.
func (r *Recorder) complain(what string, about Event, cause error) {
	r.mutex.Lock()
	dropped, waiting := r.dropped, r.queue.size
	isTime := r.complained.IsZero() || time.Since(r.complained) >= complaintsEvery
	if isTime {
		r.complained = time.Now()
	}
	r.mutex.Unlock()
	if isTime {
		r.log.Warn(what, "dropped", dropped, "waiting", waiting,
			"about", about.Regarding.String(), "reason", about.Reason, "note", about.Note, "error", cause)
	}
}

func sentenceOf(event Event) sentence {
	return sentence{event.Regarding, event.Reason, cmp.Or(event.Topic, event.Note)}
}

// pause waits, and reports whether ctx still goes on.
func pause(ctx context.Context, duration time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(duration):
		return true
	}
}
