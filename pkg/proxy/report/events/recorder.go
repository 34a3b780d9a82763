package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	eventsv1client "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/notify"
)

// The limits; the package's documentation says what they add up to.
const (
	// burst is how many Events are created at once after a quiet time: a start, and a handful of objects that just broke.
	burst = 10
	// interval is the time after which one more may be created.
	interval = 10 * time.Second
	// jitter bounds the pause before the first Event after a quiet time.
	jitter = 10 * time.Second
	// dedupInterval is how long a sentence is not repeated: the API server forgets Events after an hour (its --event-ttl).
	dedupInterval = time.Hour
	// slowAfter is how long an event may wait before a warning. An API server that restarts is back by then.
	slowAfter = 5 * time.Minute
	// warnEvery is the shortest time between two warnings about Events that are late or were dropped.
	warnEvery = 10 * time.Minute
	// createTimeout bounds one try, so that a server that never answers holds up nothing for long.
	createTimeout = 10 * time.Second
)

// retries are the successive pauses after tries without a final answer: an API server that restarts is asked again
// soon, and one that is away for hours every minute or two, with jitter. They begin anew after every final answer.
var retries = wait.Backoff{Duration: 2 * time.Second, Factor: 2, Jitter: 1, Steps: 5, Cap: time.Minute}

// errQueueFull is why an event is dropped before the API server could refuse it.
var errQueueFull = errors.New("too many are waiting")

// Recorder creates Events for the proxy of a node. Its methods may be called by several goroutines.
type Recorder struct {
	client eventsv1client.EventsGetter
	node   string
	log    *slog.Logger

	arrived notify.Signal // holds one if something may be waiting

	mutex sync.Mutex
	queue queue
	// reported holds the sentences that wait, with the zero time, and those that were created within the hour, with that
	// time. maxWaiting and the rate bound it.
	reported map[dedupKey]time.Time
	dropped  int
	warnings rate.Sometimes
}

// Connect returns a recorder for the proxy of a node that creates Events at the API server of a configuration. It asks
// nothing yet.
func Connect(config *rest.Config, node string, log *slog.Logger) (*Recorder, error) {
	client, err := eventsv1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for Events: %w", err)
	}
	return New(client, node, log), nil
}

// New returns a recorder for the proxy of a node that creates Events with a client.
func New(client eventsv1client.EventsGetter, node string, log *slog.Logger) *Recorder {
	return &Recorder{
		client: client, node: node, log: log,
		arrived: notify.NewSignal(), reported: map[dedupKey]time.Time{}, warnings: rate.Sometimes{Interval: warnEvery},
	}
}

// Report has an Event created, unless it waits already, was created within the hour, or too many are waiting. It
// returns at once.
func (r *Recorder) Report(event Event) {
	event.Note, event.Topic = truncateNote(event.Note), truncateNote(event.Topic)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	now := time.Now()
	maps.DeleteFunc(r.reported, func(_ dedupKey, at time.Time) bool { return !at.IsZero() && now.Sub(at) >= dedupInterval })
	if _, isReported := r.reported[event.sentence()]; isReported {
		return
	}
	r.push(queuedEvent{event, now}, errQueueFull)
	r.arrived.Notify()
}

// Dropped returns how many events were dropped: too many were waiting, or the API server refused them.
func (r *Recorder) Dropped() int {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.dropped
}

// Run creates Events until ctx ends. What waits then is lost. Each try counts for the limit, whatever its result is.
// The error is always nil.
func (r *Recorder) Run(ctx context.Context) error {
	limit := rate.NewLimiter(rate.Every(interval), burst)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.arrived:
		}
		if !pause(ctx, rand.N(jitter)) {
			return nil
		}
		pauses := retries
		for r.isWaiting() {
			if !pause(ctx, limit.Reserve().Delay()) {
				return nil
			}
			if r.createNext(ctx) {
				pauses = retries
			} else if !pause(ctx, pauses.Step()) {
				return nil
			}
		}
	}
}

func (r *Recorder) isWaiting() bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return len(r.queue.entries) > 0
}

// createNext takes the next event out of the queue, which must not be empty, and tries to create it. It reports
// whether the answer is final. If not, the API server being away or busy, the event waits again, behind those of all
// namespaces: a namespace whose Events are refused, for example by its ResourceQuota, holds up no other.
func (r *Recorder) createNext(ctx context.Context) (isDecided bool) {
	r.mutex.Lock()
	next := r.queue.pop()
	r.mutex.Unlock()
	err := r.create(ctx, objectOf(next.event, r.node, next.at))
	r.mutex.Lock()
	defer r.mutex.Unlock()
	switch {
	case err == nil:
		r.reported[next.event.sentence()] = time.Now()
		return true
	case isPermanent(err):
		r.drop(next.event, err)
		return true
	case ctx.Err() != nil:
		return false
	}
	r.push(next, fmt.Errorf("%w, and the API server takes none: %w", errQueueFull, err))
	if time.Since(next.at) >= slowAfter {
		r.warn("an Event is late and is tried again; others may be late, too", next.event, err)
	}
	return false
}

// create tries once to create an Event. All tries of an Event use the same name, so that a lost answer does not lead to
// a second Event. "Already exists" is a success: another proxy created it, or an earlier try whose answer got lost.
func (r *Recorder) create(ctx context.Context, event *eventsv1.Event) error {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	_, err := r.client.Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return fmt.Errorf("create Event %s/%s: %w", event.Namespace, event.Name, err)
}

// isPermanent reports whether another try would get the same answer: the API server understood, and refuses the Event.
// Forbidden is final only for a namespace that terminates: an API server that has just started forbids everything
// until it has read RBAC, and a ResourceQuota may have room again.
func isPermanent(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) ||
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// push lets an event wait. If too many are waiting, it drops one, with that cause. The mutex is held.
func (r *Recorder) push(entry queuedEvent, cause error) {
	r.reported[entry.event.sentence()] = time.Time{}
	if dropped, isDropped := r.queue.push(entry); isDropped {
		r.drop(dropped.event, cause)
	}
}

// drop counts an event that will not be created. The same sentence may be reported again. The mutex is held.
func (r *Recorder) drop(event Event, cause error) {
	delete(r.reported, event.sentence())
	r.dropped++
	r.warn("dropped an Event; more may follow, and are counted", event, cause)
}

// warn logs what happened to an event, and how many were dropped and are waiting, unless it did so shortly before. The
// mutex is held.
func (r *Recorder) warn(message string, event Event, cause error) {
	r.warnings.Do(func() {
		r.log.Warn(message, "dropped", r.dropped, "waiting", len(r.queue.entries),
			"about", event.Regarding.String(), "reason", event.Reason, "note", event.Note, "error", cause)
	})
}

// pause waits, and reports whether ctx is still alive.
func pause(ctx context.Context, duration time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(duration):
		return true
	}
}
