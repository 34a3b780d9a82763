package election

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lock is the Lease of an election. It ends a term that has expired, and logs once why the Lease cannot be read or
// written.
//
// After a pause of the process or its machine, the elector alone would try for ten more seconds to renew a Lease that
// another replica has long acquired. Then there would be two leaders.
type lock struct {
	resourcelock.LeaseLock
	log  *slog.Logger
	task string

	mutex      sync.Mutex
	termTimer  *time.Timer // fires at the end of the term; stopped if another replica is the leader
	cancelTerm context.CancelFunc
	holder     string          // as last read or written
	failed     map[string]bool // operations whose last attempt failed
}

func newLock(o *Options) *lock {
	l := &lock{log: o.Log, task: o.Task, failed: map[string]bool{}}
	l.LeaseMeta = metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Lease}
	l.Client = o.Leases
	l.LockConfig = resourcelock.ResourceLockConfig{Identity: o.Identity}
	l.termTimer = time.AfterFunc(leaseDuration, func() {
		l.mutex.Lock()
		defer l.mutex.Unlock()
		l.cancelTerm()
	})
	l.termTimer.Stop()
	return l
}

// startTerm sets the function that cancels the next attempt.
func (l *lock) startTerm(cancel context.CancelFunc) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.termTimer.Stop()
	l.cancelTerm = cancel
}

// Get implements resourcelock.Interface.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.LeaseLock.Get(ctx)
	l.logOnce(ctx, "get", err)
	if err == nil {
		l.mutex.Lock()
		defer l.mutex.Unlock()
		wasHolder := l.holder == l.Identity()
		if l.holder = record.HolderIdentity; wasHolder && l.holder != "" && l.holder != l.Identity() {
			l.cancelTerm() // the timer did not fire if the clock stood still, as in a suspended machine
		}
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	began := time.Now()
	err := l.LeaseLock.Create(ctx, record)
	l.recordWrite(ctx, "create", began, record, err)
	return err
}

// errNotHolder prevents the release of another replica's Lease. The elector attempts it because it relies on the holder
// that it saw last.
var errNotHolder = errors.New("another replica holds the Lease")

// Update implements resourcelock.Interface.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.mutex.Lock()
	holder := l.holder
	l.mutex.Unlock()
	if record.HolderIdentity == "" && holder != l.Identity() {
		return errNotHolder
	}
	began := time.Now()
	err := l.LeaseLock.Update(ctx, record)
	l.recordWrite(ctx, "update", began, record, err)
	return err
}

// recordWrite restarts the term after a successful write, or ends it if the write released the Lease.
func (l *lock) recordWrite(ctx context.Context, operation string, began time.Time, record resourcelock.LeaderElectionRecord, err error) {
	l.logOnce(ctx, operation, err)
	if err != nil {
		return
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.holder = record.HolderIdentity
	if l.holder == "" {
		l.termTimer.Stop()
		return
	}
	l.termTimer.Reset(leaseDuration - time.Since(began))
}

// logOnce logs the first failure of an operation, and the first success after it.
func (l *lock) logOnce(ctx context.Context, operation string, err error) {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return
	case apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err), apierrors.IsConflict(err):
		err = nil // another replica was faster, or there was no leader yet
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	failed := l.failed[operation]
	l.failed[operation] = err != nil
	log := l.log.With("lease", l.Describe(), "operation", operation)
	switch {
	case err != nil && !failed:
		log.Error(l.task+": failed to access the election Lease; retrying", "error", err)
	case err == nil && failed:
		log.Info(l.task + ": access to the election Lease recovered")
	}
}
