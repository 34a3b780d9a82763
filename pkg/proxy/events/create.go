package events

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// retries are the pauses after tries that decided nothing, one after the other: an API server that restarts is asked again soon, and
// one that is away for hours every minute or two, with jitter. They begin anew with every answer that decides.
var retries = wait.Backoff{Duration: 2 * time.Second, Factor: 2, Jitter: 1, Steps: 5, Cap: time.Minute}

// createTimeout bounds one try, so that a server that never answers holds up nothing for long.
const createTimeout = 10 * time.Second

// create tries once to create an Event. All tries of one Event use one name, so that one whose answer got lost is not repeated. That
// the Event exists is no error: another proxy told it, or a try whose answer got lost.
func (r *Recorder) create(ctx context.Context, event *eventsv1.Event) error {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	_, err := r.client.Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return fmt.Errorf("create Event %s/%s: %w", event.Namespace, event.Name, err)
}

// isFinal reports whether another try would get the same answer: the API server understood, and does not want the Event. That
// something is forbidden is final only for a namespace that is about to go: an API server that has just started forbids everything
// until it has read who may do what, and a ResourceQuota may have room again.
func isFinal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusTooManyRequests:
		return false
	case http.StatusForbidden:
		return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
	default:
		return code >= http.StatusBadRequest && code < http.StatusInternalServerError
	}
}
