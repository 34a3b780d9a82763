package packets_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
)

// expectation checks the outcome of a connection.
type expectation func(from *fabric.Namespace, to path) error

// maxConcurrent bounds the number of concurrent connection attempts.
const maxConcurrent = 16

// expect dials every path from every client, many at a time because most of them wait, and checks each outcome. desc
// describes the situation in failure messages.
func expect(t *testing.T, desc string, clients []*fabric.Namespace, to []path, should expectation) {
	t.Helper()
	var mu sync.Mutex
	var failures []error
	var dialling sync.WaitGroup
	free := make(chan struct{}, maxConcurrent)
	for _, from := range clients {
		for _, p := range to {
			free <- struct{}{}
			dialling.Go(func() {
				err := should(from, p)
				mu.Lock()
				if err != nil {
					failures = append(failures, fmt.Errorf("%s from %s: %w", p, from.Name, err))
				}
				mu.Unlock()
				<-free
			})
		}
	}
	dialling.Wait()
	slices.SortFunc(failures, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	for _, err := range failures {
		t.Errorf("%s: %v", desc, err)
	}
}

// succeeds expects a response from any server.
func succeeds(from *fabric.Namespace, to path) error {
	_, err := from.Request(to.network, to.addr, fabric.Timeout)
	return err
}

// servedBy expects a response from the given server.
func servedBy(name string) expectation {
	return func(from *fabric.Namespace, to path) error {
		reply, err := from.Request(to.network, to.addr, fabric.Timeout)
		if err == nil && reply.Pod != name {
			return fmt.Errorf("%s replied, want %s", reply.Pod, name)
		}
		return err
	}
}

// seenAs expects that the server sees the addresses of the given machine.
func seenAs(client *fabric.Namespace) expectation {
	return func(from *fabric.Namespace, to path) error {
		reply, err := from.Request(to.network, to.addr, fabric.Timeout)
		if err == nil && reply.Client.Addr() != to.clientAddr(client) {
			return fmt.Errorf("%s saw %s, want %s", reply.Pod, reply.Client, client.Name)
		}
		return err
	}
}

// immediateTimeout is well below a second, after which TCP retransmits its SYN. A
// client that missed the first refusal would be refused after that second.
const immediateTimeout = 500 * time.Millisecond

// refused expects an immediate refusal of one connection out of four: a busy machine may be late, and a defect that
// misses the first packet of a connection misses that of every connection. A datagram socket on the node gets EPERM
// from send itself, which the kernel returns if a reject stops a packet on the way out. The kernel returns ECONNREFUSED
// for a reset, and for ICMP port unreachable (type 3 code 3, or type 1 code 4 for IPv6) and no other ICMP message.
func refused(from *fabric.Namespace, to path) (err error) {
	for range 4 {
		if err = refusedImmediately(from, to); err == nil {
			break
		}
	}
	return err
}

func refusedImmediately(from *fabric.Namespace, to path) error {
	started := time.Now()
	_, err := from.Request(to.network, to.addr, fabric.Timeout)
	took := time.Since(started)
	stopped := errors.Is(err, syscall.EPERM) && to.network != "tcp" && isNode(from)
	if !errors.Is(err, syscall.ECONNREFUSED) && !stopped || took > immediateTimeout {
		return fmt.Errorf("%w after %s, want an immediate refusal", replyError(err), took)
	}
	return nil
}

// briefTimeout is long enough for a response to arrive, if there is one.
const briefTimeout = 250 * time.Millisecond

// timesOut expects no response at all. A packet of the node itself is stopped before it leaves, so that sending on a
// datagram socket fails.
func timesOut(from *fabric.Namespace, to path) error {
	started := time.Now()
	_, err := from.Request(to.network, to.addr, briefTimeout)
	took := time.Since(started)
	stopped := errors.Is(err, syscall.EPERM) && isNode(from)
	waited := errors.Is(err, os.ErrDeadlineExceeded) && took >= briefTimeout
	if !waited && !stopped {
		return fmt.Errorf("%w after %s, want no reply", replyError(err), took)
	}
	return nil
}

// notServed expects that no endpoint responds: the packet goes where it would go without the proxy, to a closed port or
// to an address that no machine has.
func notServed(from *fabric.Namespace, to path) error {
	if reply, err := from.Request(to.network, to.addr, briefTimeout); err == nil {
		return fmt.Errorf("%s replied, want no reply", reply.Pod)
	} else if errors.Is(err, syscall.EPERM) {
		return fmt.Errorf("the packet was blocked: %w", err)
	}
	return nil
}

var errReplied = errors.New("got a reply")

func replyError(err error) error {
	if err == nil {
		return errReplied
	}
	return err
}

func isNode(n *fabric.Namespace) bool { return strings.HasPrefix(n.Name, "node-") }
