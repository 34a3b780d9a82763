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
	// applied is set if the kernel applied the batch despite the error.
	applied bool
}

// rejection returns the error of package nft for a kernel error about an operation of a batch.
func rejection(errno syscall.Errno) error {
	return &ruleset.RejectedError{Rejections: []ruleset.Rejection{{Err: fmt.Errorf("add element: %w", errno)}}}
}

// unknownOutcome returns the error of package nft for a response that is missing or unreadable.
func unknownOutcome(err error) error {
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
	{"the response is lost, and it was rejected", unknownOutcome(unix.ENOBUFS), false},
	{"the response is lost, and it was applied", unknownOutcome(unix.ENOBUFS), true},
	{"the response is late", unknownOutcome(os.ErrDeadlineExceeded), true},
	{"a signal interrupts receiving", unknownOutcome(unix.EINTR), true},
	{"the response is malformed", unknownOutcome(unix.EBADMSG), true},
	{"the socket is closed before the response arrives", unknownOutcome(os.ErrClosed), true},
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
	// injected are the errors since the last call of take. counts holds how often each fault was injected, by its name.
	injected []error
	counts   map[string]int
	// committed is called after each batch that was applied.
	committed func(ruleset.Batch)
}

// pickFault returns the fault of this call; nil means none.
func (f *faultInjector) pickFault(faults []fault) *fault {
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
	if rejected := f.reject(batch); rejected != nil {
		return rejected
	}
	injected := f.pickFault(commitFaults)
	if injected != nil && !injected.applied {
		return injected.err
	}
	if err := f.Kernel.Commit(ctx, batch); err != nil {
		return err
	}
	if f.committed != nil {
		f.committed(batch)
	}
	if injected != nil {
		return injected.err
	}
	return nil
}

// rejectedService is the name of the fault that the kernel rejects elements of a Service.
const rejectedService = "a Service is rejected"

// reject returns an error that names some of the frontends in a batch; nil means none.
func (f *faultInjector) reject(batch ruleset.Batch) error {
	rejected := &ruleset.RejectedError{}
	for _, op := range batch.Ops {
		eachItem(op, func(_ tableItem, element *ruleset.Element) {
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
	if injected := f.pickFault(readFaults); injected != nil {
		return ruleset.Objects{}, injected.err
	}
	return f.Kernel.Objects(ctx, family)
}

// take returns the errors since the last call.
func (f *faultInjector) take() []error {
	injected := f.injected
	f.injected = nil
	return injected
}
