// Package election runs a task on one of the webhook's replicas at a time.
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

// The durations of an election, the same as those of Kubernetes' own controllers.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// Options configure an election.
type Options struct {
	Leases coordinationclient.LeasesGetter
	// Namespace and Lease identify the Lease. Identity is this replica's name.
	Namespace, Lease, Identity string
	// Task names the leader's task in log lines, such as "publishing the topology of nodes".
	Task string
	// Lead performs the task until ctx ends. After an error the replica waits until it is no longer the leader.
	Lead func(ctx context.Context) error
	// Failed is called after an error of Lead, and Ended after each term.
	Failed, Ended func()
	Log           *slog.Logger
}

// Run takes part in the election until ctx ends, and calls Lead while elected. It returns an error only if it cannot
// start.
func Run(ctx context.Context, o Options) error {
	var termMutex sync.Mutex // one term ends before the next one begins
	logger := klog.FromContext(ctx)
	lock := newLock(&o)
	for ctx.Err() == nil {
		// Each attempt needs a new elector without state. One that was the leader writes without reading while it believes
		// that its term lasts, and the release of the Lease has just read the version of another leader.
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock:          lock,
			Name:          o.Lease,
			LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
			ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) {
					termMutex.Lock()
					defer termMutex.Unlock()
					o.lead(klog.NewContext(ctx, logger))
				},
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			return fmt.Errorf("start election (%s): %w", o.Task, err)
		}
		// The elector would log each attempt; lock.go logs why one fails, and lead the terms.
		attempt, cancel := context.WithCancel(klog.NewContext(ctx, logr.Discard()))
		lock.startTerm(cancel)
		elector.Run(attempt) // until the term ends
		cancel()
	}
	return nil
}

func (o *Options) lead(ctx context.Context) {
	o.Log.Info(o.Task+": elected", "identity", o.Identity)
	if err := o.Lead(ctx); err != nil && ctx.Err() == nil {
		o.Log.Error(o.Task+" failed", "error", err)
		o.Failed()
		<-ctx.Done()
	}
	o.Ended()
	o.Log.Info(o.Task + ": no longer the leader")
}
