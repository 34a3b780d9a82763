package packets_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/demandapi"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/conntrackgc"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/demandcounter"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/serviceindex"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// demandReader is a node that counts demand, and a client of its demand page.
type demandReader struct {
	t       *testing.T
	node    *node
	counter *demandcounter.Counter
	cursor  string
	// skipped is how far the counter's clock is ahead.
	skipped time.Duration
}

// bounded sets a load bound on a Service.
func bounded(s *model.Service) {
	topologyKeys(policy.Zone, policy.AnyNode)(s)
	maxLoad(120)(s)
}

// measured makes a Service use measured demand.
func measured(s *model.Service) {
	bounded(s)
	s.Topology.Measured = true
}

// countDemand restarts the proxy of a node with a demand counter.
func (c *cluster) countDemand(n *node) *demandReader {
	c.t.Helper()
	frontends, index := demandcounter.NewFrontends(), serviceindex.New(conntrackgc.StaleEntryWindow)
	n.handlers = append(n.handlers, index, frontends)
	c.restart(n)
	c.sync(n)
	d := &demandReader{t: c.t, node: n}
	now := func() time.Time { return time.Now().Add(d.skipped) }
	d.counter = demandcounter.NewCounter(frontends, n.conn, conntrack.NewDumpScheduler(n.flows, nil), index, c.setup.config.Families,
		slog.New(slog.DiscardHandler), now)
	return d
}

// read reads the page and returns the counts since the last read.
func (d *demandReader) read() demandapi.Page {
	d.t.Helper()
	response := httptest.NewRecorder()
	d.counter.ServeHTTP(response, httptest.NewRequest("GET", demandapi.Path+"?"+demandapi.CursorParam+"="+d.cursor, nil))
	if response.Code != 200 {
		d.t.Fatalf("the page of %s: %d %s", d.node.Name, response.Code, response.Body)
	}
	page, err := demandapi.Parse(response.Body.Bytes())
	if err != nil {
		d.t.Fatalf("the page of %s: %v", d.node.Name, err)
	}
	d.cursor = page.Cursor
	return page
}

// expect reads the page and compares the counts.
func (d *demandReader) expect(desc string, want map[string]uint64) {
	d.t.Helper()
	if diff := cmp.Diff(want, d.read().Counts); diff != "" {
		d.t.Errorf("%s: counts of %s (-want +got):\n%s", desc, d.node.Name, diff)
	}
}

// open reads the page an interval later and returns the number of open connections.
func (d *demandReader) open() map[string]uint64 {
	d.t.Helper()
	d.skipped += 30 * time.Second
	return d.read().Open
}

// expectOpen reads the page an interval later and compares the number of open connections.
func (d *demandReader) expectOpen(desc string, want map[string]uint64) {
	d.t.Helper()
	if diff := cmp.Diff(want, d.open()); diff != "" {
		d.t.Errorf("%s: open connections of %s (-want +got):\n%s", desc, d.node.Name, diff)
	}
}

// tables returns the lines of "nft list tables" for the tables that count demand.
func (d *demandReader) tables() string {
	d.t.Helper()
	listed, err := d.node.Run(exec.Command("nft", "list", "tables"))
	if err != nil {
		d.t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(listed) {
		isInLine := func(name string) bool { return strings.Contains(line, name) }
		if slices.ContainsFunc(ruleset.DemandTableNames[:], isInLine) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return strings.Join(found, "; ")
}

// runUntil runs the counter until a condition holds.
func (d *demandReader) runUntil(condition func() bool) {
	d.t.Helper()
	ctx, stop := context.WithCancel(d.t.Context())
	done := make(chan error, 1)
	go func() { done <- d.counter.Run(ctx) }()
	wait.Until(d.t, "the condition holds while the counter runs", condition)
	stop()
	if err := <-done; err != nil {
		d.t.Error(err)
	}
}

// dialEach dials each path from each client the given number of times.
func dialEach(t *testing.T, clients []*fabric.Namespace, to []path, times int, should expectation) uint64 {
	t.Helper()
	for range times {
		expect(t, "while it is counted", clients, to, should)
	}
	return uint64(len(clients) * len(to) * times)
}

var cart = app{name: "cart", number: 11}

// TestDemandOfClientsCountsOnce dials from pods, the node and machines outside the cluster over every kind of frontend,
// protocol and family. Each node counts the connections that were dialled there, wherever they went. Connections that
// are refused for lack of endpoints do not count.
func TestDemandOfClientsCountsOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	server, client := c.addServer(c.nodes[1], "server"), c.addPod(c.nodes[0], "client")
	host := c.addHost("host", c.nodes[0])
	near, far := c.countDemand(c.nodes[0]), c.countDemand(c.nodes[1])
	c.apply(web.service(web.withEverything, bounded).Merge(web.endpoints(server)))
	c.apply(cart.service(cart.withEverything).Merge(cart.endpoints(server))) // without a load bound
	if page := near.read(); page.Duration != 0 || len(page.Counts) != 0 {
		t.Errorf("the first page is %+v, want only a cursor", page)
	}
	far.read()
	inside := []*fabric.Namespace{client.Namespace, c.nodes[0].Namespace}
	count := dialEach(t, inside, web.paths(c.nodes[0], allKinds...), 3, succeeds)
	count += dialEach(t, []*fabric.Namespace{host}, web.paths(c.nodes[0], externalKinds...), 3, succeeds)
	dialEach(t, inside, cart.paths(c.nodes[0], allKinds...), 1, succeeds)
	near.expect("after dialling all frontends", map[string]uint64{"default/web": count})
	far.expect("on a node without clients", map[string]uint64{})

	count = dialEach(t, inside, paths, 1, succeeds)
	near.counter.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", demandapi.Path+"?"+demandapi.CursorParam+"="+near.cursor, nil))
	near.expect("after a lost response", map[string]uint64{"default/web": count})

	c.apply(web.endpoints())
	dialEach(t, inside, paths, 2, refused)
	near.expect("while there is no endpoint", map[string]uint64{})
}

// TestOpenConnectionsCountUntilTheyAreClosed opens connections from pods, the node and a machine outside the cluster
// over every kind of frontend, protocol and family. They count at the node that translates them, from the first page
// on. UDP has no end: its flows count for as long as conntrack keeps them.
func TestOpenConnectionsCountUntilTheyAreClosed(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	server, client := c.addServer(c.nodes[1], "server"), c.addPod(c.nodes[0], "client")
	host := c.addHost("host", c.nodes[0])
	near, far := c.countDemand(c.nodes[0]), c.countDemand(c.nodes[1])
	c.apply(web.service(web.withEverything, measured).Merge(web.endpoints(server)))
	c.apply(cart.service(bounded).Merge(cart.endpoints(server))) // it is planned with the assumed demand
	inside := []*fabric.Namespace{client.Namespace, c.nodes[0].Namespace}
	all := openConnections(t, inside, web.paths(c.nodes[0], allKinds...))
	all = append(all, openConnections(t, []*fabric.Namespace{host}, web.paths(c.nodes[0], externalKinds...))...)
	openConnections(t, inside, cart.paths(c.nodes[0], model.ClusterIP))
	near.expectOpen("the first page", map[string]uint64{"default/web": uint64(len(all))})
	far.expectOpen("a node without clients", map[string]uint64{})
	all = append(all, openConnections(t, inside, overNetworks(paths, "tcp"))...)
	near.expectOpen("after more were opened", map[string]uint64{"default/web": uint64(len(all))})

	remaining := len(all)
	for i, connection := range all {
		if connection.to.network != "udp" && i%2 == 0 {
			remaining--
			if err := connection.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	wait.Equal(t, "open connections after others were closed", map[string]uint64{"default/web": uint64(remaining)}, near.open)
	c.apply(web.endpoints())
	near.expectOpen("after the endpoint was removed", map[string]uint64{})
}

// TestSyncsKeepWhatWasCounted checks that endpoints, other Services and full syncs change the tables but not the
// counts. The counts change only when frontends start or cease to be counted.
func TestSyncsKeepWhatWasCounted(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	n := c.nodes[0]
	servers := []*pod{c.addServer(n, "one"), c.addServer(n, "two")}
	clients := []*fabric.Namespace{c.addPod(n, "client").Namespace}
	demand := c.countDemand(n)
	c.apply(web.service(bounded, affinity(time.Hour)).Merge(web.endpoints(servers[0])))
	demand.read()
	count := dialEach(t, clients, paths, 1, succeeds)
	c.apply(web.endpoints(servers...))
	count += dialEach(t, clients, paths, 1, succeeds)
	c.apply(cart.service(bounded).Merge(cart.endpoints(servers...)))
	count += dialEach(t, clients, paths, 1, succeeds)
	n.proxy.Apply(model.Change{})
	c.restart(n)
	c.sync(n)
	count += dialEach(t, clients, paths, 1, succeeds)
	demand.expect("after syncs, with session affinity", map[string]uint64{"default/web": count})

	// The second Service was still counted when the previous page was read.
	dialEach(t, clients, cart.paths(n, model.ClusterIP), 1, succeeds)
	count = dialEach(t, clients, paths, 1, succeeds)
	c.apply(cart.deletion())
	demand.expect("after a Service was deleted", map[string]uint64{"default/web": count})

	c.apply(web.service())
	demand.read()
	dialEach(t, clients, paths, 1, succeeds)
	demand.expect("without a bound", map[string]uint64{})
}

// TestDemandTablesExistOnlyAfterTheFirstRead checks that the first request for the page creates the table and that the
// process deletes it when it ends. A table that was deleted from outside is created again; only its counts are lost.
func TestDemandTablesExistOnlyAfterTheFirstRead(t *testing.T) {
	t.Parallel()
	c := setUp(t, setup{nodes: 1, config: clusterCIDR(), notOwned: true})
	n := c.nodes[0]
	server, clients := c.addServer(n, "server"), []*fabric.Namespace{c.addPod(n, "client").Namespace}
	demand := c.countDemand(n)
	c.apply(web.service(bounded).Merge(web.endpoints(server)))
	if tables := demand.tables(); tables != "" {
		t.Errorf("tables before the first read: %s", tables)
	}
	demand.read()
	if tables := demand.tables(); tables != "table ip vicinity-demand; table ip6 vicinity-demand" {
		t.Errorf("tables after the first read: %q", tables)
	}
	for _, family := range []string{"ip", "ip6"} {
		if _, err := n.Run(exec.Command("nft", "delete", "table", family, ruleset.DemandTableName)); err != nil {
			t.Fatal(err)
		}
	}
	dialEach(t, clients, paths, 1, succeeds)
	demand.expect("after the table was deleted", map[string]uint64{})
	count := dialEach(t, clients, paths, 1, succeeds)
	demand.expect("after it was created again", map[string]uint64{"default/web": count})

	// At its start, the next process deletes the tables of a killed one, also of an earlier version. At its end, it
	// deletes its own.
	if _, err := n.Run(exec.Command("nft", "add", "table", "ip", ruleset.DemandTableNames[1])); err != nil {
		t.Fatal(err)
	}
	next := c.countDemand(n)
	next.runUntil(func() bool { return next.tables() == "" })
	next.read()
	next.runUntil(func() bool { return true })
	if tables := next.tables(); tables != "" {
		t.Errorf("tables after the end: %s", tables)
	}
}
