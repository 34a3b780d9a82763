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

// TestABurstIsCountedOrReportedLost ends 300,000 connections in two halves, one while the program reads and one while
// it is stopped. The program reports the number of lost events, delays nothing else, and its memory does not grow.
func TestABurstIsCountedOrReportedLost(t *testing.T) {
	t.Parallel()
	const burst, held = 150_000, 20_000 // events that the socket buffers at least
	const others = 1000                 // upper bound of other connections of the node that end
	s := newTown(t)
	server := s.addPod(s.across, "server")
	web := s.add("web", allKeys, endpoint{pod: server})
	s.write()
	proxy := s.count(s.local)
	b := bursts{town: s, to: web, server: server}
	must.Succeed(t, s.local.Do(func() (err error) { b.table, err = connections.OpenCurrent(t); return err }))

	b.fill(burst)
	before := residentMemory(t, proxy)
	b.flush()
	counted, lost := b.settled()
	t.Logf("%d of %d counted, %d reported lost", counted, burst, lost)
	if counted == 0 || counted > burst || counted+lost < burst || counted+lost > burst+others {
		t.Errorf("%d connections ended: %d counted, %d reported lost", burst, counted, lost)
	}

	middle := residentMemory(t, proxy)
	growsByLittle(t, "the first burst", before, middle)
	b.fill(burst)
	must.Succeed(t, proxy.Signal(syscall.SIGSTOP))
	b.flush()
	must.Succeed(t, proxy.Signal(syscall.SIGCONT))
	inAll, lostInAll := b.settled()
	t.Logf("stopped: %d of %d counted, %d reported lost", inAll-counted, burst, lostInAll-lost)
	if inAll < counted+held || inAll+lostInAll < 2*burst || inAll+lostInAll > 2*(burst+others) {
		t.Errorf("stopped: %d connections ended, %d counted, %d reported lost", burst, inAll-counted, lostInAll-lost)
	}
	growsByLittle(t, "the second burst", middle, residentMemory(t, proxy))

	made := s.request(s.client.Namespace, web, 2)[server.Name]
	s.endThose(func(netip.AddrPort) bool { return true })
	wait.Until(t, "connections after the bursts", func() bool { return b.counted() >= inAll+made })
}

// bursts are IPv6 connections that end at once during IPv4 connection attempts.
type bursts struct {
	*town
	to     *service
	server *fabric.Pod
	table  *connections.Table
	filled uint32
}

// fill inserts entries of connections to the Service, without packets.
func (b *bursts) fill(number int) {
	b.t.Helper()
	for range number {
		b.filled++
		client := b.client.IPv6.As16()
		binary.BigEndian.PutUint32(client[12:], 1<<24+b.filled)
		b.table.Insert(connections.Connection{
			Protocol: model.TCP, Client: netip.AddrPortFrom(netip.AddrFrom16(client), 40_000), Dialled: b.to.clusterIP(model.IPv6),
			ReplySrc: netip.AddrPortFrom(b.server.IPv6, greetPort), State: conntrack.TCPEstablished, IsReplied: true,
			Label: ruleset.TranslatedLabel,
		})
	}
}

// flush deletes all of them, and checks that none remains and that connection attempts meanwhile succeed.
func (b *bursts) flush() {
	b.t.Helper()
	const dials = 50
	var dialling sync.WaitGroup
	dialling.Go(func() {
		for range dials {
			if _, err := b.client.Request("tcp", b.to.clusterIP(model.IPv4), fabric.Timeout); err != nil {
				b.t.Errorf("dial during a burst: %v", err)
			}
		}
	})
	began := time.Now()
	must.Succeed(b.t, b.table.Flush(model.IPv6))
	b.t.Logf("all ended within %s", time.Since(began).Round(time.Millisecond))
	dialling.Wait()
	var left int
	must.Succeed(b.t, b.local.Do(func() error {
		text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
		if err == nil {
			left, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err
	}))
	if left > 10*dials {
		b.t.Errorf("%d entries remain in the table", left)
	}
}

func (b *bursts) counted() uint64 { return b.number(b.local, "vicinity_connections_total") }

func (b *bursts) lost() uint64 {
	return b.numbers(b.local, "vicinity_accounting_not_counted_total")[`vicinity_accounting_not_counted_total{reason="lost_end"}`]
}

// settled waits until the counts no longer change, and returns the counted connections and the reported lost events.
func (b *bursts) settled() (counted, lost uint64) {
	b.t.Helper()
	const quiet = time.Second
	wait.Until(b.t, "stable counts", func() bool {
		before := counted
		time.Sleep(quiet)
		counted, lost = b.counted(), b.lost()
		return counted > 0 && counted == before
	})
	return counted, lost
}

// growsByLittle checks that memory grows by less than 150,000 stored events would take.
func growsByLittle(t *testing.T, what string, before, after int) {
	t.Helper()
	t.Logf("%s: %d MiB resident before, %d MiB after", what, before>>20, after>>20)
	if after > before+16<<20 {
		t.Errorf("%s: %d MiB resident after, %d MiB before", what, after>>20, before>>20)
	}
}

func residentMemory(t testing.TB, of *site.Process) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", of.PID()))
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
