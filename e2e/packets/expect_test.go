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

// expectation checks what happens to a connection.
type expectation func(from *fabric.Namespace, to path) error

// underWay bounds the connections that wait at the same time.
const underWay = 16

// expect dials every path from every client, many at a time because most of them wait, and says why what should have
// happened.
func expect(t *testing.T, why string, clients []*fabric.Namespace, to []path, should expectation) {
	t.Helper()
	var mu sync.Mutex
	var failures []error
	var dialling sync.WaitGroup
	free := make(chan struct{}, underWay)
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
		t.Errorf("%s: %v", why, err)
	}
}

// succeeds expects an answer, of any server.
func succeeds(from *fabric.Namespace, to path) error {
	_, err := from.Request(to.network, to.addr, fabric.Timeout)
	return err
}

// servedBy expects an answer of that server.
func servedBy(name string) expectation {
	return func(from *fabric.Namespace, to path) error {
		reply, err := from.Request(to.network, to.addr, fabric.Timeout)
		if err == nil && reply.Pod != name {
			return fmt.Errorf("%s answered, want %s", reply.Pod, name)
		}
		return err
	}
}

// seenAs expects that the server takes a certain machine for its client.
func seenAs(client *fabric.Namespace) expectation {
	return func(from *fabric.Namespace, to path) error {
		reply, err := from.Request(to.network, to.addr, fabric.Timeout)
		if err == nil && reply.Client.Addr() != to.own(client) {
			return fmt.Errorf("%s saw %s, want %s", reply.Pod, reply.Client, client.Name)
		}
		return err
	}
}

// atOnce is well below a second, after which TCP sends its next SYN and would be refused even if it overlooked the
// first answer.
const atOnce = 500 * time.Millisecond

// refused expects a refusal at once, of one connection out of four: a busy machine may be late, and what overlooks the
// first packet overlooks that of each connection. A datagram socket on the node learns it from send itself, with EPERM, which the
// kernel returns to every sender whose packet a reject stops on the way out. ECONNREFUSED is what the kernel makes of
// a reset, and of ICMP port unreachable (type 3 code 3, or type 1 code 4 for IPv6) and no other ICMP message.
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
	if !errors.Is(err, syscall.ECONNREFUSED) && !stopped || took > atOnce {
		return fmt.Errorf("%w after %s, want a refusal at once", replyError(err), took)
	}
	return nil
}

// shortly is long enough for an answer to arrive, if there is one.
const shortly = 250 * time.Millisecond

// timesOut expects no answer at all. What the node itself sends is stopped before it leaves, so that sending on
// a datagram socket fails.
func timesOut(from *fabric.Namespace, to path) error {
	started := time.Now()
	_, err := from.Request(to.network, to.addr, shortly)
	took := time.Since(started)
	stopped := errors.Is(err, syscall.EPERM) && isNode(from)
	waited := errors.Is(err, os.ErrDeadlineExceeded) && took >= shortly
	if !waited && !stopped {
		return fmt.Errorf("%w after %s, want silence", replyError(err), took)
	}
	return nil
}

// notServed expects that no endpoint answers: the packet goes where it would go without us, to a socket that is not
// there or an address that no machine has.
func notServed(from *fabric.Namespace, to path) error {
	if reply, err := from.Request(to.network, to.addr, shortly); err == nil {
		return fmt.Errorf("%s answered, want no answer", reply.Pod)
	} else if errors.Is(err, syscall.EPERM) {
		return fmt.Errorf("the packet was stopped: %w", err)
	}
	return nil
}

var errReplied = errors.New("an answer")

func replyError(err error) error {
	if err == nil {
		return errReplied
	}
	return err
}

func isNode(n *fabric.Namespace) bool { return strings.HasPrefix(n.Name, "node-") }
