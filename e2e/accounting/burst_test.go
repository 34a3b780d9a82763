package accounting_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/connections"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// TestBurstIsCountedOrReportedLost ends 300,000 connections in two halves, one while the program reads and one while
// it is stopped. The program reports the number of lost events, delays nothing else, and its memory does not grow.
func TestBurstIsCountedOrReportedLost(t *testing.T) {
	t.Parallel()
	const burst, minBuffered = 150_000, 20_000 // events that the socket buffers at least
	const maxOthers = 1000                     // upper bound for other connections of the node that end
	s := newSetup(t)
	server := s.addPod(s.otherZone, "server")
	web := s.add("web", allKeys, endpoint{pod: server})
	s.write()
	proxy := s.startCounting(s.local)
	b := bursts{setup: s, service: web, server: server}
	must.Succeed(t, s.local.Do(func() (err error) { b.table, err = connections.OpenCurrent(t); return err }))

	b.fill(burst)
	before := residentMemory(t, proxy)
	b.flush()
	counted, lost := b.waitUntilStable()
	t.Logf("%d of %d counted, %d reported lost", counted, burst, lost)
	if counted == 0 || counted > burst || counted+lost < burst || counted+lost > burst+maxOthers {
		t.Errorf("%d connections ended: %d counted, %d reported lost", burst, counted, lost)
	}

	middle := residentMemory(t, proxy)
	checkGrowth(t, "the first burst", before, middle)
	b.fill(burst)
	must.Succeed(t, proxy.Signal(syscall.SIGSTOP))
	b.flush()
	must.Succeed(t, proxy.Signal(syscall.SIGCONT))
	total, totalLost := b.waitUntilStable()
	t.Logf("stopped: %d of %d counted, %d reported lost", total-counted, burst, totalLost-lost)
	if total < counted+minBuffered || total+totalLost < 2*burst || total+totalLost > 2*(burst+maxOthers) {
		t.Errorf("stopped: %d connections ended, %d counted, %d reported lost", burst, total-counted, totalLost-lost)
	}
	checkGrowth(t, "the second burst", middle, residentMemory(t, proxy))

	made := s.request(s.client.Namespace, web, 2)[server.Name]
	s.endMatching(func(netip.AddrPort) bool { return true })
	wait.Until(t, "connections after the bursts", func() bool { return b.counted() >= total+made })
}

// bursts are IPv6 connections that end at once during IPv4 connection attempts.
type bursts struct {
	*setup
	service *service
	server  *fabric.Pod
	table   *connections.Table
	filled  uint32
}

// fill inserts entries of connections to the Service, without packets.
func (b *bursts) fill(count int) {
	b.t.Helper()
	for range count {
		b.filled++
		client := b.client.IPv6.As16()
		binary.BigEndian.PutUint32(client[12:], 1<<24+b.filled)
		b.table.Insert(connections.Connection{
			Protocol: model.TCP, OrigSrc: netip.AddrPortFrom(netip.AddrFrom16(client), 40_000), OrigDst: b.service.clusterIP(model.IPv6),
			ReplySrc: netip.AddrPortFrom(b.server.IPv6, greetPort), State: conntrack.TCPEstablished, IsReplied: true,
			Label: ruleset.TranslatedLabel,
		})
	}
}

// flush deletes all inserted entries, and checks that few entries remain and that connection attempts meanwhile
// succeed.
func (b *bursts) flush() {
	b.t.Helper()
	const dials = 50
	var dialling sync.WaitGroup
	dialling.Go(func() {
		for range dials {
			if _, err := b.client.Request("tcp", b.service.clusterIP(model.IPv4), fabric.Timeout); err != nil {
				b.t.Errorf("connection during a burst: %v", err)
			}
		}
	})
	began := time.Now()
	must.Succeed(b.t, b.table.Flush(model.IPv6))
	b.t.Logf("all ended within %s", time.Since(began).Round(time.Millisecond))
	dialling.Wait()
	var remaining int
	must.Succeed(b.t, b.local.Do(func() error {
		text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
		if err == nil {
			remaining, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err
	}))
	if remaining > 10*dials {
		b.t.Errorf("%d entries remain in the table, want only those of the connection attempts", remaining)
	}
}

func (b *bursts) counted() uint64 { return b.total(b.local, "vicinity_connections_total") }

func (b *bursts) lostEvents() uint64 {
	return b.nonzeroSeries(b.local, "vicinity_accounting_not_counted_total")[`vicinity_accounting_not_counted_total{reason="lost_end"}`]
}

// waitUntilStable waits until the counts no longer change, and returns the counted connections and the reported lost events.
func (b *bursts) waitUntilStable() (counted, lost uint64) {
	b.t.Helper()
	const quiet = time.Second
	wait.Until(b.t, "stable counts", func() bool {
		before := counted
		time.Sleep(quiet)
		counted, lost = b.counted(), b.lostEvents()
		return counted > 0 && counted == before
	})
	return counted, lost
}

// checkGrowth checks that memory grows by less than 150,000 stored events would take.
func checkGrowth(t *testing.T, what string, before, after int) {
	t.Helper()
	t.Logf("%s: %d MiB resident before, %d MiB after", what, before>>20, after>>20)
	if after > before+16<<20 {
		t.Errorf("%s: %d MiB resident after and %d MiB before, want growth by at most 16 MiB", what, after>>20, before>>20)
	}
}

func residentMemory(t testing.TB, process *site.Process) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", process.PID()))
	must.Succeed(t, err)
	for line := range strings.Lines(string(text)) {
		var kibibytes int
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kibibytes); err == nil {
			return kibibytes << 10
		}
	}
	t.Fatal("no VmRSS in /proc/PID/status")
	return 0
}
