package fabric

import (
	"bufio"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// heldNamespaces returns the network namespaces that this process keeps alive by its threads and by its open files.
func heldNamespaces(t *testing.T) []string {
	t.Helper()
	var namespaces []string
	for _, pattern := range []string{"/proc/self/task/*/ns/net", "/proc/self/fd/*"} {
		paths, err := filepath.Glob(pattern)
		must(t, err)
		for _, path := range paths {
			if target, err := os.Readlink(path); err == nil && strings.HasPrefix(target, "net:") {
				namespaces = append(namespaces, target)
			}
		}
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

func linkNames(t *testing.T) []string {
	t.Helper()
	links, err := net.Interfaces()
	must(t, err)
	names := make([]string, 0, len(links))
	for _, link := range links {
		names = append(names, link.Name)
	}
	return names
}

func TestCloseRemovesEverything(t *testing.T) {
	wantLinks, wantNetworks, goroutines := linkNames(t), heldNamespaces(t), runtime.NumGoroutine()
	var process *Process
	t.Run("in use", func(t *testing.T) {
		tb := newTestbed(t)
		requestBothFamilies(t, "tcp", tb.client.Namespace, tb.webB.Namespace, "node-b")
		requestBothFamilies(t, "sctp", tb.client.Namespace, tb.webB.Namespace, "node-b")
		var err error
		process, err = tb.nodeA.Start(exec.Command("/bin/sleep", "600"))
		must(t, err)
		if diff := cmp.Diff(wantLinks, linkNames(t)); diff != "" {
			t.Errorf("the machine's links changed (-before +after):\n%s", diff)
		}
		must(t, tb.fabric.Close())
		if _, err := tb.client.Get(netip.AddrPortFrom(tb.webB.IPv4, testPort)); !errors.Is(err, errClosed) {
			t.Errorf("request in a closed fabric: got %v, want %v", err, errClosed)
		}
		if _, err := tb.nodeA.Start(exec.Command("/bin/sleep", "600")); !errors.Is(err, errClosed) {
			t.Errorf("Start() in a closed fabric: got %v, want %v", err, errClosed)
		}
	})
	if err := syscall.Kill(process.PID(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("kill(pid, 0) after Close: got %v, want ESRCH", err)
	}
	if diff := cmp.Diff(wantLinks, linkNames(t)); diff != "" {
		t.Errorf("the machine's links changed (-before +after):\n%s", diff)
	}
	wait.Until(t, "no namespace remains", func() bool { return cmp.Equal(wantNetworks, heldNamespaces(t)) })
	wait.Until(t, "no goroutine remains", func() bool { return runtime.NumGoroutine() <= goroutines })
}

func TestDoRestoresThread(t *testing.T) {
	tb := newTestbed(t)
	outside, err := os.Readlink("/proc/thread-self/ns/net")
	must(t, err)
	var inside string
	must(t, tb.client.Do(func() (err error) {
		inside, err = os.Readlink("/proc/thread-self/ns/net")
		return err
	}))
	if inside == outside {
		t.Errorf("the function ran in %s, the machine's own namespace", inside)
	}
	if err := tb.client.Do(func() error { runtime.Goexit(); return nil }); !errors.Is(err, errEndedEarly) {
		t.Errorf("a function that ends its goroutine: got %v, want %v", err, errEndedEarly)
	}
	threads, err := filepath.Glob("/proc/self/task/*/ns/net")
	must(t, err)
	for _, thread := range threads {
		if current, err := os.Readlink(thread); err == nil && current == inside {
			t.Errorf("%s is still inside", thread)
		}
	}
}

func TestProcessRunsInNamespaceAndStops(t *testing.T) {
	tb := newTestbed(t)
	var printed strings.Builder
	cmd := exec.Command("/bin/sh", "-c", "readlink /proc/self/ns/net; trap 'exit 7' TERM; echo ready >&2; sleep 600 & wait")
	cmd.Stdout = &printed
	ready, stderr, err := os.Pipe()
	must(t, err)
	cmd.Stderr = stderr
	process, err := tb.nodeA.Start(cmd)
	must(t, err)
	must(t, stderr.Close())
	if line, err := bufio.NewReader(ready).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the process printed %q (%v), want ready", line, err)
	}
	var exit *exec.ExitError
	if err := process.Stop(5 * time.Second); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("stopping the process: got %v, want exit status 7", err)
	}
	var inside string
	must(t, tb.nodeA.Do(func() (err error) {
		inside, err = os.Readlink("/proc/thread-self/ns/net")
		return err
	}))
	if diff := cmp.Diff(inside+"\n", printed.String()); diff != "" {
		t.Errorf("the process ran in another namespace (-want +got):\n%s", diff)
	}
	if err := process.Signal(syscall.SIGTERM); err == nil {
		t.Error("a signal to a process that has exited gives no error")
	}
}
