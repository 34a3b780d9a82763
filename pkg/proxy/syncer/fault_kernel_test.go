package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/nft"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
)

// fault is one kind of netlink failure.
type fault struct {
	name string
	err  error
	// done is set if the kernel applied the batch despite the error.
	done bool
}

// rejection returns the error of package nft for a kernel error about an operation of a batch.
func rejection(errno syscall.Errno) error {
	return &ruleset.RejectedError{Rejections: []ruleset.Rejection{{Err: fmt.Errorf("add element: %w", errno)}}}
}

// unknown returns the error of package nft for a response that is missing or unreadable.
func unknown(err error) error {
	return fmt.Errorf("commit batch: %w: %w", nft.ErrUnknownOutcome, err)
}

// commitFaults are the failures of a commit.
var commitFaults = []fault{
	{"an object is in use", rejection(unix.EBUSY), false},
	{"an object is missing", rejection(unix.ENOENT), false},
	{"an element exists with another value", rejection(unix.EEXIST), false},
	{"a set is full", rejection(unix.ENFILE), false},
	{"an interval set is full", rejection(unix.ENOSPC), false},
	{"the kernel has no memory", rejection(unix.ENOMEM), false},
	{"the table belongs to another process", &nft.TableOwnedError{Family: model.IPv6, Port: 4711, Process: "other"}, false},
	{"permission is missing", rejection(unix.EPERM), false},
	{"another transaction interfered", rejection(unix.ERESTART), false},
	{"the batch is larger than the socket's buffer", fmt.Errorf("sending 4711 bytes over netlink: %w", unix.EMSGSIZE), false},
	{"the socket's buffer is full", fmt.Errorf("sending 4711 bytes over netlink: %w", unix.ENOBUFS), false},
	{"a signal interrupts sending", fmt.Errorf("sending 4711 bytes over netlink: %w", unix.EINTR), false},
	{"the socket is closed", fmt.Errorf("sending 4711 bytes over netlink: %w", os.ErrClosed), false},
	{"the deadline is exceeded before it is sent", fmt.Errorf("commit batch: %w", context.DeadlineExceeded), false},
	{"the response is lost, and it was rejected", unknown(unix.ENOBUFS), false},
	{"the response is lost, and it was applied", unknown(unix.ENOBUFS), true},
	{"the response is late", unknown(os.ErrDeadlineExceeded), true},
	{"a signal interrupts receiving", unknown(unix.EINTR), true},
	{"the response is malformed", unknown(unix.EBADMSG), true},
	{"the socket is closed before the response arrives", unknown(os.ErrClosed), true},
}

// readFaults are the failures of a read.
var readFaults = []fault{
	{name: "the table changes during every read", err: errors.New("changed while being read")},
	{name: "a signal interrupts reading", err: unix.EINTR},
	{name: "the response exceeds the socket buffer", err: unix.ENOBUFS},
	{name: "the set is missing", err: unix.ENOENT},
	{name: "reading is forbidden", err: unix.EPERM},
	{name: "the socket is closed before the request", err: os.ErrClosed},
	{name: "the response times out", err: os.ErrDeadlineExceeded},
}

// faultInjector is a kernel with random netlink failures.
type faultInjector struct {
	syncer.Kernel
	random *rand.Rand
	// percent is the percentage of calls that fail. It may be changed while a proxy runs.
	percent atomic.Int32
	// injected are the errors since the last call of take, counts are the numbers of all errors.
	injected []error
	counts   map[string]int
	// committed is called after each batch that was applied.
	committed func(ruleset.Batch)
}

// next returns the fault of this call; nil means none.
func (f *faultInjector) next(faults []fault) *fault {
	if f.random.Int32N(100) >= f.percent.Load() {
		return nil
	}
	chosen := &faults[f.random.IntN(len(faults))]
	f.injected = append(f.injected, chosen.err)
	f.counts[chosen.name]++
	return chosen
}

func (f *faultInjector) Commit(ctx context.Context, batch ruleset.Batch) error {
	if len(batch.Ops) == 0 {
		return f.Kernel.Commit(ctx, batch)
	}
	if refused := f.reject(batch); refused != nil {
		return refused
	}
	failing := f.next(commitFaults)
	if failing != nil && !failing.done {
		return failing.err
	}
	if err := f.Kernel.Commit(ctx, batch); err != nil {
		return err
	}
	if f.committed != nil {
		f.committed(batch)
	}
	if failing != nil {
		return failing.err
	}
	return nil
}

// rejectedService is the name of the fault that the kernel rejects elements of a Service.
const rejectedService = "a Service is rejected"

// reject returns an error that names some of the frontends in a batch; nil means none.
func (f *faultInjector) reject(batch ruleset.Batch) error {
	rejected := &ruleset.RejectedError{}
	for _, op := range batch.Ops {
		eachThing(op, func(_ thing, element *ruleset.Element) {
			if op.Verb == ruleset.Add && element != nil && element.Comment != "" && f.random.Int32N(800) < f.percent.Load() {
				rejected.Rejections = append(rejected.Rejections, ruleset.Rejection{Op: op, Element: element, Err: unix.EINVAL})
			}
		})
	}
	if f.counts[rejectedService] += len(rejected.Rejections); len(rejected.Rejections) == 0 {
		return nil
	}
	f.injected = append(f.injected, rejected)
	return rejected
}

func (f *faultInjector) Objects(ctx context.Context, family model.Family) (ruleset.Objects, error) {
	if failing := f.next(readFaults); failing != nil {
		return ruleset.Objects{}, failing.err
	}
	return f.Kernel.Objects(ctx, family)
}

// take returns the errors since the last call.
func (f *faultInjector) take() []error {
	injected := f.injected
	f.injected = nil
	return injected
}
