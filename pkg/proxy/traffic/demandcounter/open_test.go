//go:build linux

package demandcounter

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/demandapi"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/nft"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/serviceindex"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/connections"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/logs"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// The Services of the tests. All have a load bound; cart does not use measured demand.
var (
	web  = model.ObjectName{Namespace: "shop", Name: "web"}
	cart = model.ObjectName{Namespace: "shop", Name: "cart"}
)

var addrs = map[model.ObjectName]string{web: "10.96.0.10", cart: "10.96.0.11"}

const (
	endpoint = "10.244.2.1:8080"
	nodePort = 30080 // of web
	interval = 30 * time.Second
)

func at(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

func frontendOf(service model.ObjectName, protocol model.Protocol) model.Frontend {
	return model.Frontend{Addr: netip.MustParseAddr(addrs[service]), Protocol: protocol, Port: 80}
}

// fakeKernel has the counts of new connections.
type fakeKernel struct {
	counts    map[model.Frontend]uint64
	isDeleted bool // another program deleted the table
}

func (k *fakeKernel) Commit(context.Context, ruleset.Batch) error { return nil }

func (k *fakeKernel) HasDemandTable(context.Context, model.Family, string) (bool, error) {
	return false, nil
}

func (k *fakeKernel) DemandCounts(_ context.Context, _ model.Family, each func(model.Frontend, uint64)) error {
	if k.isDeleted {
		k.isDeleted = false
		return nft.ErrNoTable
	}
	for frontend, count := range k.counts {
		each(frontend, count)
	}
	return nil
}

// fakeTable is a connection table that counts the dumps of replied connections.
type fakeTable struct {
	conntrack.Table // nil: the tests only dump
	entries         []conntrack.Entry
	dumps           int
	dumpTime        time.Duration
	err             error
}

func (f *fakeTable) Dump(_ context.Context, filter conntrack.Filter, each func(*conntrack.Entry) bool) (time.Duration, error) {
	if filter.Status&conntrack.SeenReply != 0 {
		f.dumps++
	}
	time.Sleep(f.dumpTime)
	for i := range f.entries {
		if filter.Matches(&f.entries[i]) {
			each(&f.entries[i])
		}
	}
	return f.dumpTime, f.err
}

// fixture is a counter of two Services.
type fixture struct {
	t         *testing.T
	frontends *Frontends
	kernel    *fakeKernel
	table     *fakeTable
	log       *logs.Log
	counter   *Counter
	cursor    string
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{t: t, kernel: &fakeKernel{counts: map[model.Frontend]uint64{}}, table: &fakeTable{}, log: logs.New(t, "counter")}
	f.counter = newCounter(f.kernel, f.table, slog.New(slog.NewTextHandler(f.log, nil)))
	f.frontends = f.counter.frontends
	return f
}

func newCounter(kernel Kernel, table conntrack.Table, log *slog.Logger) *Counter {
	index, frontends := serviceindex.New(0), NewFrontends()
	for service := range addrs {
		decisions := decisionsOf(service, service == web)
		index.OnApplied(service, index.Derive(decisions))
		frontends.OnApplied(service, frontends.Derive(decisions))
	}
	index.OnSynced(selection.SyncState{})
	frontends.OnSynced(selection.SyncState{})
	dumps := conntrack.NewDumpScheduler(table, nil)
	return NewCounter(frontends, kernel, dumps, index, []model.Family{model.IPv4}, log, time.Now)
}

// decisionsOf returns the decisions about a Service with one endpoint.
func decisionsOf(name model.ObjectName, isMeasured bool) []selection.Decision {
	service := &model.Service{Name: name, Topology: policy.Topology{MaxLoad: 120, Measured: isMeasured}}
	var decisions []selection.Decision
	for _, protocol := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		frontends := []model.PortFrontend{{Frontend: frontendOf(name, protocol)}}
		if name == web {
			onNodes := model.Frontend{Addr: model.AnyAddr(model.IPv4), Protocol: protocol, Port: nodePort}
			frontends = append(frontends, model.PortFrontend{Frontend: onNodes, Kind: model.NodePort})
		}
		decisions = append(decisions, selection.Decision{
			Service: service, Port: model.ServicePort{Protocol: protocol}, Family: model.IPv4, Frontends: frontends,
			Endpoints: []model.PortEndpoint{{Addr: at(endpoint), Endpoint: model.Endpoint{Node: "node-3"}}},
		})
	}
	return decisions
}

// read reads the page.
func (f *fixture) read() demandapi.Page {
	f.t.Helper()
	page, err := f.counter.page(f.t.Context(), f.cursor)
	if err != nil {
		f.t.Fatal(err)
	}
	f.cursor = page.Cursor
	return page
}

// readAfter reads the page after a while, and compares the open connections and the number of dumps so far.
func (f *fixture) readAfter(pause time.Duration, desc string, wantOpen map[string]uint64, wantDumps int) demandapi.Page {
	f.t.Helper()
	time.Sleep(pause)
	page := f.read()
	if diff := cmp.Diff(wantOpen, page.Open); diff != "" || f.table.dumps != wantDumps {
		f.t.Errorf("%s: %d dumps, want %d; open connections (-want +got):\n%s", desc, f.table.dumps, wantDumps, diff)
	}
	return page
}

// connect opens a connection to a Service. Connections are counted from the first page on.
func (f *fixture) connect(service model.ObjectName) {
	if f.counter.isCounting {
		f.kernel.counts[frontendOf(service, model.TCP)]++
	}
	f.table.entries = append(f.table.entries, entry(service))
}

// entry returns an open connection to a Service.
func entry(service model.ObjectName, edit ...func(*conntrack.Entry)) conntrack.Entry {
	e := conntrack.Entry{
		Protocol: model.TCP, State: conntrack.TCPEstablished, Status: conntrack.DestinationNAT | conntrack.SeenReply | conntrack.Assured,
		Original: conntrack.Tuple{Source: at("10.244.1.9:1000"), Destination: at(addrs[service] + ":80")},
		Reply:    conntrack.Tuple{Source: at(endpoint), Destination: at("10.244.1.9:1000")},
	}
	e.Labels[ruleset.TranslatedLabel/8] = 1 << (ruleset.TranslatedLabel % 8)
	for _, edit := range edit {
		edit(&e)
	}
	return e
}

func openToWeb(count uint64) map[string]uint64 { return map[string]uint64{"shop/web": count} }

var none = map[string]uint64{}

func TestWhichConnectionsAreOpen(t *testing.T) {
	inState := func(protocol model.Protocol, state uint8) func(*conntrack.Entry) {
		return func(e *conntrack.Entry) { e.Protocol, e.State = protocol, state }
	}
	dialled := func(addr string) func(*conntrack.Entry) {
		return func(e *conntrack.Entry) { e.Original.Destination = at(addr) }
	}
	for name, test := range map[string]struct {
		entry  conntrack.Entry
		isOpen bool
	}{
		"TCP":                           {entry(web), true},
		"TCP, half closed":              {entry(web, inState(model.TCP, conntrack.TCPFinWait)), true},
		"TCP, closed":                   {entry(web, inState(model.TCP, conntrack.TCPTimeWait)), false},
		"TCP, reset":                    {entry(web, inState(model.TCP, conntrack.TCPClose)), false},
		"TCP, unreplied":                {entry(web, func(e *conntrack.Entry) { e.Status = conntrack.DestinationNAT }), false},
		"UDP":                           {entry(web, inState(model.UDP, 0)), true},
		"SCTP":                          {entry(web, inState(model.SCTP, conntrack.SCTPEstablished)), true},
		"SCTP, closed":                  {entry(web, inState(model.SCTP, conntrack.SCTPClosed)), false},
		"a node port":                   {entry(web, dialled("192.0.2.1:30080")), true},
		"another port":                  {entry(web, dialled("10.96.0.10:81")), false},
		"another program's":             {entry(web, func(e *conntrack.Entry) { e.Labels = [16]byte{} }), false},
		"another conntrack zone":        {entry(web, func(e *conntrack.Entry) { e.Zone = 7 }), false},
		"a removed endpoint":            {entry(web, func(e *conntrack.Entry) { e.Reply.Source = at("10.244.2.9:8080") }), false},
		"a Service with assumed demand": {entry(cart), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.table.entries = []conntrack.Entry{test.entry}
				want := none
				if test.isOpen {
					want = openToWeb(1)
				}
				f.readAfter(interval, "the page", want, 1)
			})
		})
	}
}

func TestConntrackIsDumpedOnlyIfConnectionsMayBeOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		time.Sleep(time.Hour)
		if f.table.dumps != 0 {
			t.Errorf("%d dumps without a reader", f.table.dumps)
		}
		f.readAfter(0, "the first page", none, 1)
		f.readAfter(interval, "no new connection", none, 1)
		f.connect(cart)
		f.readAfter(interval, "a new connection to a Service with assumed demand", none, 1)
		f.connect(web)
		f.readAfter(interval, "a new connection", openToWeb(1), 2)
		f.readAfter(interval, "it is still open", openToWeb(1), 3)
		f.table.entries = f.table.entries[:1]
		f.readAfter(interval, "it was closed, unlike the first one", none, 4)
		f.readAfter(interval, "no new connection since", none, 4)

		f.kernel.isDeleted = true
		f.table.entries = []conntrack.Entry{entry(web)}
		f.readAfter(interval, "another program deleted the counts", openToWeb(1), 5)
		f.frontends.OnApplied(web, f.frontends.Derive(decisionsOf(web, false)))
		f.readAfter(time.Second, "no Service uses measured demand", none, 5)
		f.readAfter(interval, "an interval later", none, 5)
		f.table.entries = []conntrack.Entry{entry(cart)}
		f.frontends.OnApplied(cart, f.frontends.Derive(decisionsOf(cart, true)))
		f.readAfter(interval, "another Service uses measured demand", map[string]uint64{"shop/cart": 1}, 6)

		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = f.counter.Run(ctx) }) // always nil
		f.table.entries = nil
		f.readAfter(interval, "after a start", none, 7)
		time.Sleep(2 * idleTimeout)
		f.table.entries = []conntrack.Entry{entry(cart)}
		f.readAfter(0, "nothing was counted for a while", map[string]uint64{"shop/cart": 1}, 8)
		stop()
		running.Wait()
	})
}

func TestReadersShareADump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.connect(web)
		f.readAfter(0, "the first reader", openToWeb(1), 1)
		f.connect(web)
		f.readAfter(5*time.Second, "a second reader", openToWeb(1), 1)
		f.readAfter(14*time.Second, "a third reader", openToWeb(1), 1)
		f.readAfter(time.Second, "after the interval", openToWeb(2), 2)
	})
}

func TestConcurrentReadersShareADump(t *testing.T) {
	f := newFixture(t)
	f.connect(web)
	f.table.dumpTime = time.Millisecond
	var readers sync.WaitGroup
	for range 10 {
		readers.Go(func() {
			if page, err := f.counter.page(t.Context(), ""); err != nil || page.Open["shop/web"] != 1 {
				t.Errorf("page %+v, error %v; want one open connection", page, err)
			}
		})
	}
	readers.Wait()
	if f.table.dumps != 1 {
		t.Errorf("%d dumps, want 1", f.table.dumps)
	}
}

// Another user's dump takes longer than a page may wait.
func TestAPageWaitsThreeSecondsForOtherDumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.connect(web)
		f.readAfter(0, "in time", openToWeb(1), 1)
		f.connect(web)
		f.table.dumpTime = 10 * time.Second
		var others sync.WaitGroup
		const later = interval + dumpStartTimeout
		for number, want := range []struct {
			open   map[string]uint64
			count  uint64
			covers time.Duration
		}{
			{openToWeb(1), 1, interval},
			{openToWeb(1), 0, later},
			{openToWeb(1), 0, later},
			{nil, 0, later}, // the last result is too old
		} {
			time.Sleep(interval)
			others.Go(func() {
				unreplied := conntrack.Filter{Status: conntrack.DestinationNAT, Mask: conntrack.DestinationNAT | conntrack.SeenReply}
				if _, err := f.counter.dumps.Dump(t.Context(), unreplied, func(*conntrack.Entry) bool { return true }); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
			began := time.Now()
			page := f.readAfter(0, "not in time", want.open, 1)
			if took := time.Since(began); took != dumpStartTimeout || page.Counts["shop/web"] != want.count || page.Duration != want.covers {
				t.Errorf("page %d after %s has %v in %s, want %d in %s", number, took, page.Counts, page.Duration, want.count, want.covers)
			}
			if f.counter.open(t.Context(), time.Now()); time.Since(began) != dumpStartTimeout {
				t.Error("the next reader waits, too")
			}
		}
		if got := f.log.Count("failed to count open connections"); got != 1 {
			t.Errorf("%d log lines, want 1", got)
		}
		others.Wait()
		f.readAfter(interval, "in time again", openToWeb(2), 2)
	})
}

// The client of a page gives up after four seconds.
func TestALongDumpIsForTheNextReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.connect(web)
		f.table.dumpTime = 4 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := f.counter.page(ctx, ""); err != nil {
			t.Error(err)
		}
		f.connect(web)
		f.readAfter(0, "the next reader", openToWeb(1), 1)
		for range 3 {
			f.readAfter(interval, "within the cooldown", openToWeb(1), 1)
		}
		f.readAfter(interval, "after the cooldown", openToWeb(2), 2)

		f.table.dumpTime = time.Second
		f.readAfter(2*time.Minute, "a faster dump", openToWeb(2), 3)
		f.readAfter(47*time.Second, "within its cooldown, which began a second before", openToWeb(2), 3)
		f.readAfter(time.Second, "after its cooldown", openToWeb(2), 4)
	})
}

func TestAFailedDumpIsLoggedOnce(t *testing.T) {
	for name, failure := range map[string]error{
		"interrupted": conntrack.ErrInterrupted, "failed": errors.New("no buffer space"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.connect(web)
				f.readAfter(0, "the first page", openToWeb(1), 1)
				f.table.err = failure
				for number := range 3 {
					f.connect(web)
					page := f.readAfter(interval, "a failure", nil, 2+number)
					if page.Counts["shop/web"] != 1 {
						t.Errorf("new connections: %v, want one", page.Counts)
					}
				}
				f.readAfter(time.Second, "another reader", nil, 4)
				f.table.err = nil
				f.readAfter(interval, "the first success", openToWeb(4), 5)
				f.table.err = failure
				f.readAfter(interval, "another failure", nil, 6)
				if got := f.log.Count("failed to count open connections"); got != 2 {
					t.Errorf("%d log lines, want 2", got)
				}
			})
		})
	}
}

// BenchmarkOpenConnections counts 100,000 open connections in the kernel's table. It reports the least CPU time, the
// kernel's included: the fastest dump is the least disturbed by other load on the machine.
func BenchmarkOpenConnections(b *testing.B) {
	const count = 100_000
	namespace := netns.New(b)
	table := connections.Open(b, namespace)
	var conn *conntrack.Conn
	namespace.Do(func() {
		var err error
		if conn, err = conntrack.Dial(); err != nil {
			b.Fatal(err)
		}
	})
	b.Cleanup(func() { _ = conn.Close() })
	for i := range count {
		client := netip.AddrFrom4([4]byte{10, 245, 0, byte(i >> 14)})
		table.Insert(connections.Connection{
			Protocol: model.TCP, OrigSrc: netip.AddrPortFrom(client, uint16(1024+i&0x3fff)), OrigDst: at(addrs[web] + ":80"),
			ReplySrc: at(endpoint), State: conntrack.TCPEstablished, IsReplied: true, Label: ruleset.TranslatedLabel,
		})
	}
	counter := newCounter(&fakeKernel{}, conn, slog.New(slog.DiscardHandler))
	counter.measured = map[model.ObjectName]bool{web: true}
	fastest := time.Hour
	for b.Loop() {
		before := cpuTime(b)
		counter.dumpOpen(b.Context(), time.Now(), nil)
		fastest = min(fastest, cpuTime(b)-before)
		if got := counter.lastDump.open[web]; got != count {
			b.Fatalf("%d open connections, want %d", got, count)
		}
	}
	b.ReportMetric(float64(fastest.Milliseconds()), "least-cpu-ms")
}

// cpuTime returns the CPU time of this process.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Nano())
}
