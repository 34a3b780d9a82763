//go:build linux

package interfaces

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// flakySubscriber subscribes unless the test has queued a failure, and passes each subscription to the test.
type flakySubscriber struct {
	failures      chan error
	subscriptions chan *subscription
}

func newFlakySubscriber() flakySubscriber {
	return flakySubscriber{failures: make(chan error, 10), subscriptions: make(chan *subscription, 10)}
}

func (f flakySubscriber) subscribe() (*subscription, error) {
	select {
	case err := <-f.failures:
		return nil, err
	default:
	}
	s, err := subscribe()
	f.subscriptions <- s
	return s, err
}

func TestAFailedSubscriptionIsReplacedWithoutMissingChanges(t *testing.T) {
	n, f := newNetwork(t), newFlakySubscriber()
	w := n.run(&monitor{subscribe: f.subscribe})
	w.next(loopback())

	f.failures <- errors.New("no more sockets")
	f.failures <- errors.New("still none")
	n.address(netlink.AddrAdd, "eth0", "192.0.2.1/24")
	(<-f.subscriptions).socket.Close()
	w.until(loopback("192.0.2.1"))
	<-f.subscriptions
	n.address(netlink.AddrAdd, "eth0", "192.0.2.2/24")
	w.until(loopback("192.0.2.1", "192.0.2.2"))

	for text, want := range map[string]int{
		"subscribing again": 3, "read address notifications": 1, "no more sockets": 1, "still none": 1,
	} {
		if got := w.log.Count(text); got != want {
			t.Errorf("%d log lines contain %q, want %d", got, text, want)
		}
	}
}

func TestAFailedListIsRetried(t *testing.T) {
	n, calls := newNetwork(t), 0
	w := n.run(&monitor{list: func(handle *netlink.Handle) ([]netip.Addr, error) {
		if calls++; calls == 2 || calls == 3 {
			return nil, unix.ENOBUFS
		}
		return list(handle)
	}})
	w.next(loopback())
	n.address(netlink.AddrAdd, "eth0", "192.0.2.1/24")
	w.next(loopback("192.0.2.1"))
	if got := w.log.Count("subscribing again"); got != 2 {
		t.Errorf("%d failures were logged, want 2", got)
	}
}

func TestAFailedStartIsAnError(t *testing.T) {
	for name, w := range map[string]monitor{
		"no subscription": {subscribe: func() (*subscription, error) { return nil, unix.EMFILE }},
		"no list": {
			subscribe: subscribe,
			list:      func(*netlink.Handle) ([]netip.Addr, error) { return nil, unix.EMFILE },
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t)
			n.Do(func() {
				if err := w.run(t.Context()); !errors.Is(err, unix.EMFILE) {
					t.Errorf("got %v, want %v", err, unix.EMFILE)
				}
			})
		})
	}
}

func TestWatchReleasesEverythingWhenItsContextEnds(t *testing.T) {
	for name, prepare := range map[string]func(n network, w watched, f flakySubscriber){
		"while it waits":             func(network, watched, flakySubscriber) {},
		"while addresses change":     func(n network, _ watched, _ flakySubscriber) { n.addMany() },
		"while it waits for a retry": func(_ network, _ watched, f flakySubscriber) { breakPermanently(f) },
	} {
		t.Run(name, func(t *testing.T) {
			n, f := newNetwork(t), newFlakySubscriber()
			before := openFiles(t)
			w := n.run(&monitor{subscribe: f.subscribe})
			w.next(loopback())
			prepare(n, w, f)
			w.stop()
			if stacks := stacks(); strings.Contains(stacks, "(*subscription).read") {
				t.Errorf("a goroutine still reads:\n%s", stacks)
			}
			if after := openFiles(t); after > before {
				t.Errorf("%d open files, %d before", after, before)
			}
		})
	}
}

// breakPermanently closes the socket of a watch, and lets every later subscription of this test fail.
func breakPermanently(f flakySubscriber) {
	for range cap(f.failures) {
		f.failures <- unix.EMFILE
	}
	(<-f.subscriptions).socket.Close()
}

func TestWatchDeliversAtOnceEvenIfItsContextHasEnded(t *testing.T) {
	n := newNetwork(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var got [][]netip.Addr
	n.do(func() error {
		return Watch(ctx, slog.New(slog.DiscardHandler), func(addrs []netip.Addr) { got = append(got, addrs) })
	})
	if len(got) == 0 || len(got[0]) != 2 {
		t.Errorf("delivered %v, want the two addresses of the loopback first", got)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

func stacks() string {
	buffer := make([]byte, 1<<20)
	return string(buffer[:runtime.Stack(buffer, true)])
}
