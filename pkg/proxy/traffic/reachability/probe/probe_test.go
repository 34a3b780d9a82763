//go:build linux

package probe

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/interfaces"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/reachability"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/serviceindex"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/connections"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

const ownNode = "own"

// recorder records the calls of an Observer.
type recorder struct {
	mutex    sync.Mutex
	ejected  []string
	restored []reachability.Restoration
	outcomes map[reachability.Outcome]int
	err      error
}

func (o *recorder) OnScan(_ Scan, err error) {
	o.get(func(o *recorder) bool {
		if err != nil {
			o.err = err
		}
		return true
	})
}

func (o *recorder) OnActions(_ model.Family, actions *reachability.Actions) {
	o.get(func(o *recorder) bool {
		o.ejected = append(o.ejected, actions.Ejected...)
		o.restored = append(o.restored, actions.Restored...)
		for _, outcome := range actions.Concluded {
			o.outcomes[outcome]++
		}
		return true
	})
}

func (o *recorder) OnStatus(Status) {}

func (o *recorder) get(f func(*recorder) bool) bool {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return f(o)
}

// fixture is a machine with addresses that stand for those of other nodes, a connection table, and a Prober.
type fixture struct {
	t         *testing.T
	namespace *netns.Namespace
	names     []string
	table     *connections.Table
	recorder  *recorder
	prober    *Prober
	index     *serviceindex.Index
}

func nodeAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + i)}) }
func podAddr(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 1}), 8080)
}
func clientAddrPort(p uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr("10.1.0.1"), p)
}

var (
	origDst = netip.MustParseAddrPort("10.96.0.10:80")
	web     = model.ObjectName{Namespace: "shop", Name: "web"}
)

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{
		t: t, namespace: netns.New(t), names: []string{"node-0", "node-1", "node-2"},
		recorder: &recorder{outcomes: map[reachability.Outcome]int{}},
	}
	f.table = connections.Open(t, f.namespace)
	slice := &model.EndpointSlice{Name: web, Service: web, Ports: []model.SlicePort{{Protocol: model.TCP, Port: 8080}}}
	nodes := map[string]Node{}
	for i, name := range f.names {
		f.namespace.Exec("ip", "addr", "add", nodeAddr(i).String()+"/32", "dev", "lo")
		slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{
			Addr: podAddr(i).Addr(), Endpoint: model.Endpoint{Node: name, Ready: true, Serving: true},
		})
		nodes[name] = Node{model.IPv4: nodeAddr(i)}
	}
	var listener net.Listener
	var table *conntrack.Conn
	f.namespace.Do(func() {
		var err error
		if listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", "0.0.0.0:10256"); err != nil {
			t.Fatal(err)
		}
		if table, err = conntrack.Dial(); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { _, _ = listener.Close(), table.Close() })
	f.start(slice, table, nodes)
	return f
}

// start passes decisions to the index, and starts the Prober.
func (f *fixture) start(slice *model.EndpointSlice, table *conntrack.Conn, nodes map[string]Node) {
	cluster := model.NewCluster(ownNode)
	cluster.Apply(model.Change{
		Slices: map[model.ObjectName]*model.EndpointSlice{web: slice},
		Services: map[model.ObjectName]*model.Service{web: {
			Name: web, ClusterIPs: []netip.Addr{origDst.Addr()}, Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80}},
		}},
	})
	decisions := selection.NewPlanner(cluster).Decide(web, []model.Family{model.IPv4})
	f.index = serviceindex.New(0)
	f.index.OnApplied(web, f.index.Derive(decisions))
	f.index.OnSynced(selection.SyncState{})
	f.prober = New(Options{
		Self: ownNode, HealthzPort: 10256, Table: conntrack.NewDumpScheduler(table, nil), Unthrottled: table, Index: f.index,
		Observer: f.recorder,
		IsLocal:  func(netip.Addr) (bool, error) { return false, nil },
	})
	f.prober.unresolvedNeighbours = func() (addrs map[netip.Addr]bool, err error) {
		f.namespace.Do(func() { addrs, err = interfaces.UnresolvedNeighbours() })
		return addrs, err
	}
	f.prober.dial = func(
		ctx context.Context, addr netip.AddrPort, timeout time.Duration,
	) (result reachability.ProbeResult, rtt time.Duration) {
		f.namespace.Do(func() { result, rtt = Dial(ctx, addr, timeout) })
		return result, rtt
	}
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.prober.Run(ctx)
	}()
	f.t.Cleanup(func() {
		cancel()
		<-done
	})
	f.prober.SetNodes(nodes)
	f.waitFor("all nodes have replied once", func(*recorder) bool { return f.prober.Status().Families[model.IPv4].WithBaseline == 3 })
}

// waitTimeout is how long a test waits for an event that must happen.
const waitTimeout = 30 * time.Second

func (f *fixture) waitFor(what string, condition func(*recorder) bool) {
	f.t.Helper()
	for deadline := time.Now().Add(waitTimeout); !f.recorder.get(condition); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatalf("timed out waiting until %s: %+v, %+v", what, f.recorder, f.prober.Status())
		}
	}
}

// drop makes a firewall drop connection attempts to an address and port.
func (f *fixture) drop(addr netip.Addr, number int) {
	f.namespace.Load("add table inet dropping\nadd chain inet dropping in { type filter hook input priority 0; }\n" +
		fmt.Sprintf("add rule inet dropping in ip daddr %s tcp dport %d drop\n", addr, number))
}

// dropProbes makes a firewall drop probes of a node.
func (f *fixture) dropProbes(node int) {
	for _, number := range []int{9, 10250, 10256} {
		f.drop(nodeAddr(node), number)
	}
}

// insertUnreplied adds an unreplied connection to the table.
func (f *fixture) insertUnreplied(to int, from uint16) {
	f.table.Insert(connections.Connection{
		Protocol: model.TCP, OrigSrc: clientAddrPort(from), OrigDst: origDst, ReplySrc: podAddr(to), State: conntrack.TCPSynSent, Timeout: 100,
		Label: ruleset.TranslatedLabel,
	})
}

// The other program's connections go to a Service's address and endpoint, too.
func TestAnotherProgramsConnectionIsNoSuspicion(t *testing.T) {
	f := newFixture(t)
	f.insertUnreplied(1, 1001)
	for from := range uint16(10) {
		f.table.Insert(connections.Connection{
			Protocol: model.TCP, OrigSrc: clientAddrPort(2000 + from), OrigDst: origDst, ReplySrc: podAddr(2), State: conntrack.TCPSynSent,
			Timeout: 100,
		})
	}
	scan, err := f.prober.scan(t.Context())
	if err != nil || scan.Unreplied != 1 {
		t.Errorf("%+v (%v), want the one that our tables translated", scan, err)
	}
}

// lateTable is a table in which one connection gets a reply, and another one is removed, after they were listed.
type lateTable struct {
	conntrack.Table
	replied, removed uint16 // client ports
	dumps            int
}

func (l *lateTable) Dump(ctx context.Context, filter conntrack.Filter, each func(*conntrack.Entry) bool) (time.Duration, error) {
	l.dumps++
	return l.Table.Dump(ctx, filter, each)
}

func (l *lateTable) Get(entry *conntrack.Entry) (current conntrack.Entry, exists bool, err error) {
	current, exists, err = l.Table.Get(entry)
	if entry.Original.Source.Port() == l.replied {
		current.Status |= conntrack.SeenReply
	}
	return current, exists && entry.Original.Source.Port() != l.removed, err
}

// A scan lists connections once, because the next list may have to wait. It reads unreplied ones again one by one.
func TestConnectionsAreReadAgain(t *testing.T) {
	f := newFixture(t)
	f.insertUnreplied(0, 1001)
	f.insertUnreplied(1, 1002)
	f.insertUnreplied(2, 1003)
	f.insertUnreplied(2, 1004)
	late := &lateTable{Table: f.prober.Unthrottled, replied: 1001, removed: 1003}
	prober := New(f.prober.Options)
	prober.Table, prober.unresolvedNeighbours = late, f.prober.unresolvedNeighbours
	scan, err := prober.scan(t.Context())
	remaining := map[string]int{}
	for to, entries := range scan.unrepliedEntries {
		remaining[to.node] += len(entries)
	}
	want := map[string]int{"node-0": 0, "node-1": 1, "node-2": 1}
	if err != nil || scan.Unreplied != 4 || late.dumps != 1 || !maps.Equal(remaining, want) {
		t.Errorf("%d unreplied; still unreplied, by node: %v; %d dumps (%v); want 4, %v and 1",
			scan.Unreplied, remaining, late.dumps, err, want)
	}
}

func TestANodeIsEjected(t *testing.T) {
	f := newFixture(t)
	f.dropProbes(1)
	f.insertUnreplied(1, 1001)
	f.insertUnreplied(1, 1002)
	f.insertUnreplied(0, 1003)
	f.waitFor("one node is ejected", func(o *recorder) bool { return len(o.ejected) == 1 && o.ejected[0] == f.names[1] })
	f.waitFor("the suspicion of the other one ends", func(o *recorder) bool { return o.outcomes[reachability.Replied] > 0 })
	status := f.prober.Status()
	if len(status.Ejected) != 1 || status.Ejected[0].Node != f.names[1] || status.Families[model.IPv4].IsolatedSince != nil {
		t.Errorf("status %+v", status)
	}
	f.namespace.Load("delete table inet dropping\n")
	f.waitFor("it is restored", func(o *recorder) bool {
		return len(o.restored) == 1 && o.restored[0].Node == f.names[1] && !o.restored[0].Removed
	})
	if f.recorder.err != nil {
		t.Error(f.recorder.err)
	}
}

// New connections of two clients with replies prove that a node is healthy whose ports are all closed. Old ones to an
// endpoint that is in its EndpointSlice again prove nothing.
func TestNewConnectionsOfTwoClientsEndASuspicion(t *testing.T) {
	f := newFixture(t)
	f.dropProbes(1)
	f.insertUnreplied(1, 1001)
	ctx, cancel := context.WithCancel(t.Context())
	inserting, client := make(chan struct{}), []netip.Addr{clientAddrPort(0).Addr(), clientAddrPort(0).Addr().Next()}
	go func() { // other connections keep getting replies there
		defer close(inserting)
		for from := uint16(2000); ctx.Err() == nil; from++ {
			_ = f.table.TryInsert(connections.Connection{
				Protocol: model.TCP, OrigSrc: netip.AddrPortFrom(client[from%2], from), OrigDst: origDst, ReplySrc: podAddr(1),
				State: conntrack.TCPEstablished, IsReplied: true, Label: ruleset.TranslatedLabel,
			})
			time.Sleep(100 * time.Millisecond)
		}
	}()
	f.waitFor("a suspicion ends", func(o *recorder) bool { return len(o.outcomes) > 0 })
	cancel()
	<-inserting
	f.recorder.get(func(o *recorder) bool {
		if o.outcomes[reachability.FlowsReplied] != 1 || len(o.ejected) > 0 {
			t.Errorf("outcomes %v, ejected %v", o.outcomes, o.ejected)
		}
		return true
	})
}

func TestDial(t *testing.T) {
	f := newFixture(t)
	f.drop(nodeAddr(0), 7)
	// A firewall on the node rejects with an ICMP error of its own.
	f.namespace.Load(fmt.Sprintf(`add chain inet dropping out { type filter hook input priority 1; }
		add rule inet dropping out ip daddr %s tcp dport 13 reject with icmpx admin-prohibited
		add rule inet dropping out ip daddr %s tcp dport 14 reject with icmpx port-unreachable
`, nodeAddr(0), nodeAddr(0)))
	for addr, want := range map[string]reachability.ProbeResult{
		nodeAddr(0).String() + ":10256": reachability.Accepted, nodeAddr(0).String() + ":9": reachability.Reset,
		nodeAddr(0).String() + ":7":  reachability.NoReply,
		nodeAddr(0).String() + ":13": reachability.Reset, nodeAddr(0).String() + ":14": reachability.Reset,
		"198.51.100.1:10256": reachability.NoReply,
	} {
		f.namespace.Do(func() {
			if got, took := Dial(t.Context(), netip.MustParseAddrPort(addr), 300*time.Millisecond); got != want || took > 5*time.Second {
				t.Errorf("%s: %v after %v, want %v", addr, got, took, want)
			}
		})
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if got, _ := Dial(canceled, netip.AddrPortFrom(nodeAddr(0), 10256), time.Second); got != reachability.NoReply {
		t.Errorf("a probe that was not sent: %v, want NoReply", got)
	}
}
