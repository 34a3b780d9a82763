package endure_test

import (
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// transactions returns the number of transactions that have changed nftables on the node so far. The kernel numbers
// transactions and reports the number to listeners, so the function makes one, which does not count.
func (s *setup) transactions() int {
	s.t.Helper()
	listening := site.Start(s.t, s.node.Namespace, exec.Command("nft", "monitor"))
	defer func() { _ = listening.Stop(waitTimeout) }()
	number := 0
	wait.Until(s.t, "the kernel reports the number of a transaction", func() bool {
		s.ownTransactions++
		process, err := s.node.Start(exec.Command("nft", "add table ip beacon; delete table ip beacon"))
		must.Succeed(s.t, err)
		must.Succeed(s.t, process.Wait())
		line := regexp.MustCompile(fmt.Sprintf(`(?m)^# new generation (\d+) by process %d \(nft\)$`, process.PID()))
		if found := line.FindStringSubmatch(listening.Log.String()); found != nil {
			number, err = strconv.Atoi(found[1])
			must.Succeed(s.t, err)
		}
		return number > 0
	})
	return number - s.ownTransactions
}

// written counts the elements that the proxy has written since it started.
type written struct{ Added, Deleted int }

func (d *daemon) written() written {
	const elements = "vicinity_nft_elements_written_total"
	return written{d.metric(elements, `operation="add"`), d.metric(elements, `operation="delete"`)}
}

// TestUnchangedRestartIsOneTransaction also checks that the transaction writes each element once and deletes
// none: it flushes the sets and fills them again atomically. Comparing with the existing elements would take longer,
// because the kernel's time for that grows with the square of their number.
func TestUnchangedRestartIsOneTransaction(t *testing.T) {
	for name, args := range map[string][]string{"owned tables": nil, "tables that any process may change": {"--own-tables", "never"}} {
		t.Run(name, func(t *testing.T) {
			s := newSetup(t)
			s.write(web, "a", "b", "c")
			s.write(sticky, "a", "b")
			d := s.start(args...)
			d.waitForSync()
			tables, numbers, first := s.tables(), s.numbers(), d.written()
			for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGKILL} {
				must.Succeed(t, d.Signal(signal))
				<-d.Done()
				before := s.transactions()
				d = s.start(args...)
				d.waitForSync()
				if current := d.written(); current != first || current.Deleted != 0 {
					t.Errorf("after %s the proxy wrote %+v, want %+v as at first, and none deleted", signal, current, first)
				}
				if made := s.transactions() - before; made != 1 {
					t.Errorf("after %s the proxy made %d transactions, want 1", signal, made)
				}
				if diff := cmp.Diff(tables, s.tables()); diff != "" {
					t.Errorf("after %s the tables differ (-before +after):\n%s", signal, diff)
				}
				if diff := cmp.Diff(numbers, s.numbers()); diff != "" || len(numbers) < 2*3 {
					t.Errorf("after %s the numbers of clients with affinity differ (-before +after):\n%s", signal, diff)
				}
			}
		})
	}
}

// TestUnchangedManifestsWriteNothing checks that a new Service costs the same whether the manifests of other Services
// were written again or not.
func TestUnchangedManifestsWriteNothing(t *testing.T) {
	s := newSetup(t)
	s.write(web, "a", "b", "c")
	s.write(sticky, "a", "b")
	d := s.start()
	d.waitForSync()
	cost := func(unrelated app, rewrite func()) (elements written, transactions int) {
		before, since := d.written(), s.transactions()
		rewrite()
		s.write(unrelated, "a", "b", "c")
		s.waitForService(unrelated)
		transactions = s.transactions() - since
		current := d.written()
		return written{current.Added - before.Added, current.Deleted - before.Deleted}, transactions
	}
	alone, once := cost(app{name: "unrelated-1", number: 101, affinity: "None"}, func() {})
	together, twice := cost(app{name: "unrelated-2", number: 102, affinity: "None"}, func() {
		for range 3 {
			s.write(web, "a", "b", "c")
			s.write(sticky, "a", "b")
		}
	})
	if alone.Added == 0 || once != 1 || alone != together || once != twice {
		t.Errorf("a Service costs %+v and %d transactions, but %+v and %d when unchanged manifests are rewritten",
			alone, once, together, twice)
	}
}

// waitForService waits until clients reach a Service.
func (s *setup) waitForService(a app) {
	s.t.Helper()
	wait.Until(s.t, a.name+" is served", func() bool {
		_, err := s.clients[0].Request("tcp", a.ipv4(), time.Second) // an untranslated packet is dropped silently
		return err == nil
	})
}
