package webhook_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/e2e/lab/process"
)

// What idle processors do.
const (
	mayHalt = "may halt"
	awake   = "awake"
)

// In a process with asWatchman in its environment the program keeps the processors awake.
const asWatchman = "VICINITY_BENCH_WATCHMAN"

// occupyProcessors keeps each processor busy with a thread that runs only while nothing else wants to (SCHED_IDLE,
// sched(7)), so that none halts: what idle=poll does, for as long as the process lives. It has to be a process of its
// own: the collector of the clients would wait for such a thread. It returns only if it fails.
func occupyProcessors() error {
	var ours unix.CPUSet
	if err := unix.SchedGetaffinity(0, &ours); err != nil {
		return fmt.Errorf("asking for the processors: %w", err)
	}
	failed := make(chan error)
	for processor := range len(ours) * 64 {
		if ours.IsSet(processor) {
			go func() { failed <- occupy(processor) }()
		}
	}
	return <-failed
}

func occupy(processor int) error {
	runtime.LockOSThread()
	var one unix.CPUSet
	one.Set(processor)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("moving to processor %d: %w", processor, err)
	}
	if err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0); err != nil {
		return fmt.Errorf("giving way on processor %d: %w", processor, err)
	}
	for { //nolint:staticcheck // to be busy is all it is for
	}
}

// keepAwake keeps the processors awake until the returned function is called.
func (s *setup) keepAwake(t testing.TB) (stop func()) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(self)
	command.Env = append(os.Environ(), asWatchman+"=1")
	watchman, err := process.Start(process.Here{}, s.dir, "watchman", command)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		select {
		case <-watchman.Done():
			t.Fatal(watchman.Ended())
		default:
		}
		if err := watchman.Kill(); err != nil {
			t.Fatal(err)
		}
	}
}

// measure adds a round of reviews at the steady rate.
func (r *steadyRow) measure(t testing.TB, s *setup, reviews kind) {
	t.Helper()
	if r.processors == awake {
		defer s.keepAwake(t)()
	}
	r.add(r.server.steady(t, reviews, roundTakes))
}
