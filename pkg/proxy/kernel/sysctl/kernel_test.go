//go:build linux

package sysctl

import (
	"errors"
	"io/fs"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// withConntrack returns a namespace in which conntrack is active, so that its settings exist.
func withConntrack(t *testing.T) *netns.Namespace {
	t.Helper()
	namespace := netns.New(t)
	namespace.Load("table ip t { chain c { type nat hook output priority 0; ct state new accept; }; }")
	return namespace
}

func applyIn(namespace *netns.Namespace, desired ...DesiredValue) (results []Result) {
	namespace.Do(func() { results = apply(Root, desired...) })
	return results
}

func TestNamespacedSettingsAreWritten(t *testing.T) {
	namespace := withConntrack(t)
	desired := Conntrack{
		TCPEstablishedTimeout: 1234 * time.Second, TCPCloseWaitTimeout: 61 * time.Second, TCPBeLiberal: true,
		UDPTimeout: 31 * time.Second, UDPStreamTimeout: 121 * time.Second,
	}.Settings(1)
	if len(desired) != 5 {
		t.Fatalf("got %d settings, want 5: %v", len(desired), desired)
	}
	for _, result := range applyIn(namespace, desired...) {
		if result.Outcome != Written || result.Err != nil || result.Previous == result.Desired.Value {
			t.Errorf("at first: %+v", result)
		}
	}
	for _, result := range applyIn(namespace, desired...) {
		if result.Outcome != Met || result.Previous != result.Desired.Value {
			t.Errorf("again: %+v", result)
		}
	}
	for _, result := range applyIn(netns.New(t), desired...) {
		if result.Outcome == Met {
			t.Errorf("another namespace has the value too: %+v", result)
		}
	}
}

func TestSharedSettingsAreNotWrittenFromANamespace(t *testing.T) {
	namespace := withConntrack(t)
	var before []Result
	namespace.Do(func() { before = Check(Root, DesiredValue{Name: conntrackMax}) })
	desired := []DesiredValue{{conntrackMax, before[0].Previous + 1, true, true}, {conntrackBuckets, 1 << 40, true, false}}
	for _, result := range applyIn(namespace, desired...) {
		if result.Outcome != Unmet || !errors.Is(result.Err, fs.ErrPermission) {
			t.Errorf("got %+v, want EPERM or EACCES", result)
		}
	}
	less := DesiredValue{conntrackMax, before[0].Previous - 1, true, true}
	if got := applyIn(namespace, less); got[0].Outcome != Met {
		t.Errorf("a larger value than desired: %+v", got)
	}
}

// A container without privileges sees /proc/sys like this.
func TestAReadOnlyTreeIsReported(t *testing.T) {
	namespace := withConntrack(t)
	want := DesiredValue{Name: udpTimeout, Value: 77}
	var results []Result
	err := withReadOnlyTree(func() { results = applyIn(namespace, want) })
	if err != nil {
		t.Fatalf("mount %s read-only: %v", Root, err)
	}
	if got := results[0]; got.Outcome != Unmet || !errors.Is(got.Err, syscall.EROFS) || got.Previous == 0 {
		t.Errorf("got %+v, want EROFS and the current value", got)
	}
	if got := applyIn(namespace, want); got[0].Outcome != Written {
		t.Errorf("writable: %+v", got)
	}
}

// withReadOnlyTree runs f with a read-only /proc/sys, in a mount namespace of its own, on a thread that exits
// afterwards.
func withReadOnlyTree(f func()) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so the runtime terminates the thread
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return err
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return err
			}
			if err := unix.Mount(Root, Root, "", unix.MS_BIND, ""); err != nil {
				return err
			}
			if err := unix.Mount("", Root, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
				return err
			}
			f()
			return nil
		}()
	}()
	return <-done
}

func TestForwardingIsChecked(t *testing.T) {
	namespace := netns.New(t)
	forwarding := func() (outcomes []Outcome) {
		namespace.Do(func() {
			for _, result := range Check(Root, ForwardingIPv4, ForwardingIPv6) {
				outcomes = append(outcomes, result.Outcome)
			}
		})
		return outcomes
	}
	// A new namespace may or may not have the values that the machine's had when it was created:
	// net.core.devconf_inherit_init_net.
	off4, off6 := ForwardingIPv4, ForwardingIPv6
	off4.Value, off6.Value = 0, 0
	applyIn(namespace, off4, off6)
	if diff := cmp.Diff([]Outcome{Unmet, Unmet}, forwarding()); diff != "" {
		t.Errorf("at first (-want +got):\n%s", diff)
	}
	applyIn(namespace, ForwardingIPv4)
	if diff := cmp.Diff([]Outcome{Met, Unmet}, forwarding()); diff != "" {
		t.Errorf("with IPv4 (-want +got):\n%s", diff)
	}
}

// The setting counts as written if the kernel has the value after the fallback.
func TestFallbackIsUsedIfTheTreeIsReadOnly(t *testing.T) {
	namespace := withConntrack(t)
	calls, succeeds := 0, false
	var enforcer *Enforcer
	reconcile := func(want Outcome) {
		t.Helper()
		err := withReadOnlyTree(func() { namespace.Do(func() { enforcer.Reconcile(time.Now()) }) })
		if got := enforcer.States()[0].Result; err != nil || got.Outcome != want || (got.Err == nil) != (want != Unmet) {
			t.Errorf("got %+v (%v), want %s", got, err, want)
		}
	}
	off := DesiredValue{Name: ConntrackBytes.Name}
	applyIn(namespace, off)
	enforcer = NewEnforcer(Root, Setting{DesiredValue: ConntrackBytes, Fallback: func() error {
		if calls++; succeeds {
			namespace.Load("add table ip reads\nadd chain ip reads bytes\nadd rule ip reads bytes ct original bytes 0\ndelete table ip reads\n")
		}
		return nil
	}})
	reconcile(Unmet)
	succeeds = true
	reconcile(Written)
	reconcile(Met)
	applyIn(namespace, off)
	reconcile(Written)
	if calls != 3 || enforcer.States()[0].Restored != 1 {
		t.Errorf("fallback was called %d times, state is %+v; want 3 calls and 1 restored", calls, enforcer.States()[0])
	}
}
