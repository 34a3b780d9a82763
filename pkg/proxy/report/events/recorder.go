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

// The package documentation states what these limits add up to.
const (
	// burst is how many Events are created at once after an idle time: at the start, and for a few objects that just
	// broke.
	burst = 10
	// interval is the time after which one more may be created.
	interval = 10 * time.Second
	// jitter limits the pause before the first Event after an idle time.
	jitter = 10 * time.Second
	// dedupInterval is how long a note is not repeated: the API server deletes Events after an hour (its --event-ttl).
	dedupInterval = time.Hour
	// slowAfter is how long an event may wait before a warning. An API server restart takes less.
	slowAfter = 5 * time.Minute
	// warnEvery is the minimum time between two warnings about Events that are late or were dropped.
	warnEvery = 10 * time.Minute
	// createTimeout limits one attempt, so that a server that never responds delays little.
	createTimeout = 10 * time.Second
)

// retries are the consecutive pauses after attempts without a final response: an API server that restarts is retried
// soon, and one that is unavailable for hours every minute or two, with jitter. They start over after every final
// response.
var retries = wait.Backoff{Duration: 2 * time.Second, Factor: 2, Jitter: 1, Steps: 5, Cap: time.Minute}

// errQueueFull is the cause of events that are dropped before a request to the API server.
var errQueueFull = errors.New("event queue is full")

// Recorder creates Events for the proxy of a node. Its methods are safe for concurrent use.
type Recorder struct {
	client eventsv1client.EventsGetter
	node   string
	log    *slog.Logger

	arrived notify.Signal // holds a signal if an event may be waiting

	mutex sync.Mutex
	queue queue
	// reported holds the notes that wait, with the zero time, and those that were created within the hour, with that time.
	// Its size is limited by maxWaiting and the rate.
	reported map[dedupKey]time.Time
	dropped  int
	warnings rate.Sometimes
}

// Connect returns a recorder for the proxy of a node that creates Events at the API server of config. It sends no
// request yet.
func Connect(config *rest.Config, node string, log *slog.Logger) (*Recorder, error) {
	client, err := eventsv1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create client for Events: %w", err)
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

// Report queues an Event, unless the same note already waits or was created within the hour. If the queue is full, an
// event is dropped. It does not block.
func (r *Recorder) Report(event Event) {
	event.Note, event.Topic = truncateNote(event.Note), truncateNote(event.Topic)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	now := time.Now()
	maps.DeleteFunc(r.reported, func(_ dedupKey, at time.Time) bool { return !at.IsZero() && now.Sub(at) >= dedupInterval })
	if _, isReported := r.reported[event.key()]; isReported {
		return
	}
	r.push(queuedEvent{event, now}, errQueueFull)
	r.arrived.Notify()
}

// Dropped returns how many events were dropped, because the queue was full or the API server rejected them.
func (r *Recorder) Dropped() int {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.dropped
}

// Run creates Events until ctx ends, and then discards the queue. Each attempt counts towards the limit, whatever its
// result. The error is always nil.
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

// createNext takes the next event out of the queue, which must not be empty, and tries to create it. It reports whether
// the response is final. If it is not, because the API server is unavailable or busy, the event is queued again, behind
// those of all namespaces: a namespace whose Events are rejected, for example by its ResourceQuota, delays no other.
func (r *Recorder) createNext(ctx context.Context) (isFinal bool) {
	r.mutex.Lock()
	next := r.queue.pop()
	r.mutex.Unlock()
	err := r.create(ctx, objectOf(next.event, r.node, next.reportedAt))
	r.mutex.Lock()
	defer r.mutex.Unlock()
	switch {
	case err == nil:
		r.reported[next.event.key()] = time.Now()
		return true
	case isPermanent(err):
		r.drop(next.event, err)
		return true
	case ctx.Err() != nil:
		return false
	}
	r.push(next, fmt.Errorf("%w, and the API server is unavailable: %w", errQueueFull, err))
	if time.Since(next.reportedAt) >= slowAfter {
		r.warn("an Event is late; retrying; others may be late, too", next.event, err)
	}
	return false
}

// create makes one attempt to create an Event. All attempts for an Event use the same name, so that a lost response
// does not lead to a second Event. "Already exists" is a success: another proxy created it, or an earlier attempt whose
// response was lost.
func (r *Recorder) create(ctx context.Context, event *eventsv1.Event) error {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	_, err := r.client.Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return fmt.Errorf("create Event %s/%s: %w", event.Namespace, event.Name, err)
}

// isPermanent reports whether another attempt would get the same response: the API server understood and rejects the
// Event. Forbidden is final only for a namespace that terminates: an API server that has just started forbids
// everything until it has read RBAC, and a ResourceQuota may have room later.
func isPermanent(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) ||
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// push queues an event. If the queue is full, it drops one, with that cause. The caller holds the mutex.
func (r *Recorder) push(entry queuedEvent, cause error) {
	r.reported[entry.event.key()] = time.Time{}
	if dropped, isDropped := r.queue.push(entry); isDropped {
		r.drop(dropped.event, cause)
	}
}

// drop counts an event that will not be created. The same note may be reported again. The caller holds the mutex.
func (r *Recorder) drop(event Event, cause error) {
	delete(r.reported, event.key())
	r.dropped++
	r.warn("dropped an Event; further ones are counted", event, cause)
}

// warn logs what happened to an event, and how many were dropped and are waiting, at most once per warnEvery. The
// caller holds the mutex.
func (r *Recorder) warn(message string, event Event, cause error) {
	r.warnings.Do(func() {
		r.log.Warn(message, "dropped", r.dropped, "waiting", len(r.queue.entries),
			"about", event.Regarding.String(), "reason", event.Reason, "note", event.Note, "error", cause)
	})
}

// pause waits, and reports false if ctx ended.
func pause(ctx context.Context, duration time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(duration):
		return true
	}
}
