// Package election has one of the webhook's replicas at a time do something.
package election

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"
)

// The times of an election: those of Kubernetes' own controllers.
const (
	term  = 15 * time.Second
	renew = 10 * time.Second
	retry = 2 * time.Second
)

// Options say who stands for which election.
type Options struct {
	Leases coordinationclient.LeasesGetter
	// Namespace and Lease record who leads, and Identity is this replica's name.
	Namespace, Lease, Identity string
	// Task is what the leader does, in the words of the log: "publishing the topology of nodes".
	Task string
	// Lead works until ctx ends. After an error the replica waits until it no longer leads.
	Lead func(ctx context.Context) error
	// Failed is called with an error of Lead, and Ended after each time that it led.
	Failed, Ended func()
	Log           *slog.Logger
}

// Run stands for election until ctx ends, and leads while elected. It returns an error only if it cannot begin.
func Run(ctx context.Context, o Options) error {
	var leading sync.Mutex // one lead ends before the next one begins
	logger := klog.FromContext(ctx)
	lock := newLock(&o)
	for ctx.Err() == nil {
		// A new one each time, which knows nothing: one that led before writes without a look while it believes that its term
		// lasts, and the Lease's release has just read the version of another leader.
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock:          lock,
			Name:          o.Lease,
			LeaseDuration: term, RenewDeadline: renew, RetryPeriod: retry,
			ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) {
					leading.Lock()
					defer leading.Unlock()
					o.lead(klog.NewContext(ctx, logger))
				},
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			return fmt.Errorf("stand for election (%s): %w", o.Task, err)
		}
		// It would log each attempt; lock.go says why one fails, and lead who leads.
		attempt, end := context.WithCancel(klog.NewContext(ctx, logr.Discard()))
		lock.startTerm(end)
		elector.Run(attempt) // until the lead is lost
		end()
	}
	return nil
}

func (o *Options) lead(ctx context.Context) {
	o.Log.Info(o.Task+": elected", "identity", o.Identity)
	if err := o.Lead(ctx); err != nil && ctx.Err() == nil {
		o.Log.Error(o.Task, "error", err)
		o.Failed()
		<-ctx.Done()
	}
	o.Ended()
	o.Log.Info(o.Task + ": no longer the leader")
}
