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

// lock is the Lease of an election. It ends a lead whose term is over, and logs once why the Lease cannot be read or written.
//
// The elector alone would try for ten more seconds to renew a Lease that another replica has held for long: the process may
// have been stopped meanwhile, or its machine. Then two would lead.
type lock struct {
	resourcelock.LeaseLock
	log  *slog.Logger
	task string

	mutex      sync.Mutex
	termTimer  *time.Timer // at the end of the term; stopped while another one leads
	cancelTerm context.CancelFunc
	holder     string          // as it was read last
	failed     map[string]bool // operations whose last attempt failed
}

func newLock(o *Options) *lock {
	l := &lock{log: o.Log, task: o.Task, failed: map[string]bool{}}
	l.LeaseMeta = metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Lease}
	l.Client = o.Leases
	l.LockConfig = resourcelock.ResourceLockConfig{Identity: o.Identity}
	l.termTimer = time.AfterFunc(term, func() {
		l.mutex.Lock()
		defer l.mutex.Unlock()
		l.cancelTerm()
	})
	l.termTimer.Stop()
	return l
}

// startTerm says what ends the next attempt to lead.
func (l *lock) startTerm(end context.CancelFunc) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.termTimer.Stop()
	l.cancelTerm = end
}

// Get is part of resourcelock.Interface.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.LeaseLock.Get(ctx)
	l.logOnce(ctx, "get", err)
	if err == nil {
		l.mutex.Lock()
		defer l.mutex.Unlock()
		wasOurs := l.holder == l.Identity()
		if l.holder = record.HolderIdentity; wasOurs && l.holder != "" && l.holder != l.Identity() {
			l.cancelTerm() // a clock that stood still, as in a machine that was suspended, has not ended the term
		}
	}
	return record, raw, err
}

// Create is part of resourcelock.Interface.
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	began := time.Now()
	err := l.LeaseLock.Create(ctx, record)
	l.recordWrite(ctx, "create", began, record, err)
	return err
}

// errNotHolder: the elector releases what it last saw as its own.
var errNotHolder = errors.New("another replica holds the Lease")

// Update is part of resourcelock.Interface.
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

// recordWrite takes note of a write: the term begins again where it was ours.
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
	l.termTimer.Reset(term - time.Since(began))
}

// logOnce logs the first failure of an operation, and its end.
func (l *lock) logOnce(ctx context.Context, operation string, err error) {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return
	case apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err), apierrors.IsConflict(err):
		err = nil // another replica was faster, or nobody has led yet
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	failed := l.failed[operation]
	l.failed[operation] = err != nil
	log := l.log.With("lease", l.Describe(), "operation", operation)
	switch {
	case err != nil && !failed:
		log.Error(l.task+": the Lease that says who leads cannot be used; trying again", "error", err)
	case err == nil && failed:
		log.Info(l.task + ": the Lease that says who leads can be used again")
	}
}
