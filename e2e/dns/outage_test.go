package dns_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	miekg "github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// lookups are clients that keep querying the node's cache at a fixed rate.
type lookups struct {
	setup   *setup
	clients sync.WaitGroup
	ended   chan struct{}

	mutex  sync.Mutex
	took   []time.Duration
	failed []error
}

const (
	lookupClients  = 20
	lookupInterval = 20 * time.Millisecond // a thousand a second
)

// startLookups starts clients that query the addresses of Services, all of which have addresses.
func (s *setup) startLookups(names ...string) *lookups {
	s.t.Helper()
	l := &lookups{setup: s, ended: make(chan struct{})}
	for range lookupClients {
		conn, err := s.node.Dial("udp", net.JoinHostPort("127.0.0.1", dnsPort), time.Second)
		must.Succeed(s.t, err)
		l.clients.Go(func() { l.run(conn, names) })
	}
	s.t.Cleanup(func() { l.report("at the end") })
	return l
}

func (l *lookups) run(conn net.Conn, names []string) {
	defer conn.Close()
	for {
		select {
		case <-l.ended:
			return
		case <-time.After(lookupInterval):
		}
		began := time.Now()
		name := names[rand.IntN(len(names))]
		answer, err := exchange(conn, new(miekg.Msg).SetQuestion(name, miekg.TypeA))
		if err == nil && len(answer.Answer) == 0 {
			err = fmt.Errorf("%s: no address: %s", name, answerText(answer))
		}
		l.mutex.Lock()
		l.took = append(l.took, time.Since(began))
		if err != nil {
			l.failed = append(l.failed, err)
		}
		l.mutex.Unlock()
	}
}

// count returns the number of lookups since the last report.
func (l *lookups) count() int {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return len(l.took)
}

// report logs the results of the lookups since its last call. It fails the test if one failed.
func (l *lookups) report(when string) {
	l.setup.t.Helper()
	l.mutex.Lock()
	defer l.mutex.Unlock()
	count := len(l.took)
	if count > 0 {
		slices.Sort(l.took)
		l.setup.t.Logf("%s: %d lookups, %d failed, p50 %s, p99 %s, the slowest %s",
			when, count, len(l.failed), l.took[count/2], l.took[count*99/100], l.took[count-1])
	}
	for _, err := range l.failed[:min(len(l.failed), 5)] {
		l.setup.t.Errorf("%s: %v", when, err)
	}
	l.took, l.failed = nil, nil
}

func (l *lookups) end() {
	close(l.ended)
	l.clients.Wait()
}

// TestNoLookupFails checks that clients of the node's cache always get a response, from the
// cluster's DNS if not from the proxy.
func TestNoLookupFails(t *testing.T) {
	for name, cache := range map[string]binaries.Module{
		"with the CoreDNS of NodeLocal DNSCache": binaries.NodeDNS, "with the newest CoreDNS": binaries.CoreDNS,
	} {
		t.Run(name, func(t *testing.T) { runLookups(t, newSetupWith(t, cache)) })
	}
}

// apiOutage returns the duration of the API server's outage; VICINITY_API_OUTAGE sets a longer one.
func apiOutage(t *testing.T) time.Duration {
	t.Helper()
	outage, err := time.ParseDuration(cmp.Or(os.Getenv("VICINITY_API_OUTAGE"), "5s"))
	must.Succeed(t, err)
	return outage
}

func runLookups(t *testing.T, s *setup) {
	t.Helper()
	near := headless{"near", "topology.kubernetes.io/zone, *", []corev1.ServicePort{httpPort}, []string{"10.3.0.1 a", "10.3.0.2 b"}}
	keyless := headless{"keyless", "", []corev1.ServicePort{httpPort}, []string{"10.3.1.1 a", "10.3.1.2 b"}}
	const ownZone, allZones = "NOERROR, A 10.3.0.1", "NOERROR, A 10.3.0.1, A 10.3.0.2"
	s.create(near, keyless)
	s.waitFor("its own zone", ownZone, s.queryCache, "A", near.fullName())
	s.waitFor("no preference", "NOERROR, A 10.3.1.1, A 10.3.1.2", s.queryCache, "A", keyless.fullName())
	l := s.startLookups(near.fullName(), keyless.fullName())
	during := func(what string, step func()) {
		t.Helper()
		step()
		// While the proxy hangs, each lookup takes two seconds, until the cache has detected it.
		wait.Until(t, "some lookups: "+what, func() bool { return l.count() >= lookupClients/2 })
		l.report(what)
	}
	during("as usual", func() { time.Sleep(2 * time.Second) })
	during("killed", func() {
		must.Succeed(t, s.proxy.Kill())
		s.waitFor("all addresses, from the cluster's DNS", allZones, s.queryCache, "A", near.fullName())
		time.Sleep(2 * time.Second)
	})
	during("restarted", func() {
		s.startProxy()
		s.waitFor("its own zone", ownZone, s.queryCache, "A", near.fullName())
	})
	during("hung", func() {
		must.Succeed(t, s.proxy.Signal(syscall.SIGSTOP))
		s.waitFor("all addresses, from the cluster's DNS", allZones, s.queryCache, "A", near.fullName())
		time.Sleep(2 * time.Second)
	})
	during("resumed", func() {
		must.Succeed(t, s.proxy.Signal(syscall.SIGCONT))
		s.waitFor("its own zone", ownZone, s.queryCache, "A", near.fullName())
	})
	during("rolled out", func() {
		must.Succeed(t, s.proxy.Stop(wait.Timeout))
		s.startProxy()
		s.waitFor("its own zone", ownZone, s.queryCache, "A", near.fullName())
	})
	during("without an API server", func() {
		s.api.Stop()
		time.Sleep(apiOutage(t))
		s.waitFor("its own zone", ownZone, s.queryCache, "A", near.fullName())
	})
	l.end()
}
