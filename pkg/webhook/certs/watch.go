package certs

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
)

// startWatches rings whenever one of the objects changes, until the context ends.
//
// An informer would keep objects that are read anew anyhow, and its pauses after an outage grow to a minute.
func (s *SelfMade) startWatches(ctx context.Context, running *sync.WaitGroup) {
	running.Go(func() { s.follow(ctx, s.secretName(), s.settings.Secret, s.secrets.Watch) })
	for _, api := range s.configurations {
		running.Go(func() { s.follow(ctx, api.name, api.bare, api.watch) })
	}
}

// follow rings whenever one object changes, and when a watch begins: something may have changed before.
func (s *SelfMade) follow(
	ctx context.Context, name, bare string, begin func(context.Context, metav1.ListOptions) (watch.Interface, error),
) {
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, bare).String()}
	pause := firstRetry
	for ctx.Err() == nil {
		began := time.Now()
		changes, err := begin(ctx, options)
		if s.failures.tell(ctx, Watch, name, err) == nil {
			s.ring()
			s.ringFor(ctx, name, changes)
		}
		if time.Since(began) > longestRetry { // API servers end watches that are well from time to time
			pause = firstRetry
		}
		sleep(ctx, pause/2+rand.N(pause/2))
		pause = min(2*pause, longestRetry)
	}
}

// ringFor rings for each change until a watch ends.
func (s *SelfMade) ringFor(ctx context.Context, name string, changes watch.Interface) {
	defer changes.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case change, open := <-changes.ResultChan():
			if !open {
				return
			}
			if change.Type == watch.Error {
				s.settings.Log.Debug("certificates: a watch ended", "object", name, "error", apierrors.FromObject(change.Object))
				return
			}
			s.ring()
		}
	}
}

// sleep waits for a time, or for the end of a context.
func sleep(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
