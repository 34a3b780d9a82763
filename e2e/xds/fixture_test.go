package xds

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/xds"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// fixture is a cluster as seen by node-1 in zone a, an xDS server for it, and servers that respond to calls. Everything
// is on loopback addresses: the endpoints are real, and neither kernel rules nor a network are involved.
type fixture struct {
	t        *testing.T
	cluster  *model.Cluster
	planner  *selection.Planner
	table    *xds.Table
	address  string // the xDS server's
	counts   counts
	stop     func()
	backends map[netip.AddrPort]*grpc.Server
}

// newFixture returns a fixture in the state before the first sync.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := newServerlessFixture()
	f.t, f.address = t, xds.SocketPrefix+filepath.Join(t.TempDir(), "xds.sock")
	f.start()
	t.Cleanup(func() { f.stop() })
	return f
}

// newServerlessFixture returns a fixture without an xDS server.
func newServerlessFixture() *fixture {
	cluster := model.NewCluster("node-1")
	f := &fixture{cluster: cluster, planner: selection.NewPlanner(cluster), backends: map[netip.AddrPort]*grpc.Server{}}
	f.apply(model.Change{Nodes: map[string]*model.Node{"node-1": node("node-1", "a")}, AllNodes: new(true)})
	return f
}

func node(name, zone string) *model.Node {
	return &model.Node{Name: name, Labels: map[string]string{string(policy.Zone): zone}}
}

// start starts a server with a new table, like a proxy that starts.
func (f *fixture) start() {
	ctx, cancel := context.WithCancel(context.Background())
	f.table = xds.NewTable("cluster.local")
	server := &xds.Server{
		Table: f.table, Log: slog.New(slog.DiscardHandler), IsLocalClient: func(netip.Addr) (bool, error) { return true, nil },
	}
	f.counts = counts{server}
	var running sync.WaitGroup
	running.Go(func() { _ = server.Run(ctx, []string{f.address}) }) // always returns nil
	f.stop = func() { cancel(); running.Wait() }
	for _, name := range f.cluster.ServiceNames() {
		f.applyService(name)
	}
}

// completeSync completes the first sync.
func (f *fixture) completeSync() { f.table.OnSynced(selection.SyncState{}) }

func (f *fixture) apply(change model.Change) {
	dirty := f.cluster.Apply(change)
	f.planner.ApplyChange(change)
	if f.table == nil {
		return
	}
	for _, name := range dirty {
		f.applyService(name)
	}
}

func (f *fixture) applyService(name model.ObjectName) {
	var digest any
	if decisions := f.planner.Decide(name, model.Families); len(decisions) > 0 {
		digest = f.table.Derive(decisions)
	}
	f.table.OnApplied(name, digest)
}

// endpoint is an endpoint on a node: an address with or without a running server.
type endpoint struct {
	addr       netip.AddrPort
	node, zone string
}

var web = model.ObjectName{Namespace: "shop", Name: "web"}

const webTarget = "xds:///web.shop.svc.cluster.local:80"

// serve sets the topology keys and endpoints of the Service web.
func (f *fixture) serve(keys []policy.Key, endpoints ...endpoint) {
	service := webService()
	service.Topology.Keys = keys
	f.serveAs(service, endpoints...)
}

// serveAs is like serve, for a Service with other settings. Endpoints have different ports, so each has its own slice.
func (f *fixture) serveAs(service *model.Service, endpoints ...endpoint) {
	change := model.Change{
		Services: map[model.ObjectName]*model.Service{service.Name: service}, Slices: map[model.ObjectName]*model.EndpointSlice{},
	}
	for _, old := range f.cluster.SlicesOf(service.Name) {
		change.Slices[old.Name] = nil
	}
	for _, endpoint := range endpoints {
		slice := &model.EndpointSlice{
			Name: model.ObjectName{Namespace: service.Name.Namespace, Name: service.Name.Name + "-" + endpoint.addr.String()}, Service: service.Name,
			Ports: []model.SlicePort{{Protocol: model.TCP, Port: endpoint.addr.Port()}},
			Endpoints: []model.SliceEndpoint{{
				Addr: endpoint.addr.Addr(), Endpoint: model.Endpoint{Node: endpoint.node, Zone: endpoint.zone, Ready: true, Serving: true},
			}},
		}
		change.Slices[slice.Name] = slice
	}
	f.apply(change)
}

// startBackend starts a server that responds to calls on an address of its own.
func (f *fixture) startBackend(node, zone string) endpoint {
	f.t.Helper()
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.%d:0", 2+len(f.backends)))
	must.Succeed(f.t, err)
	addr := netip.MustParseAddrPort(listener.Addr().String())
	f.serveBackend(addr, listener)
	return endpoint{addr, node, zone}
}

func (f *fixture) serveBackend(addr netip.AddrPort, listener net.Listener) {
	server := greeterServer(addr.String())
	go func() { _ = server.Serve(listener) }() // until it is stopped
	f.backends[addr] = server
	f.t.Cleanup(server.Stop)
}

// greeterServer returns a server that responds to calls with its name in a header.
func greeterServer(name string) *grpc.Server {
	server := grpc.NewServer(grpc.UnaryInterceptor(
		func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if err := grpc.SetHeader(ctx, metadata.Pairs("server", name)); err != nil {
				return nil, err
			}
			return handle(ctx, request)
		}))
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	return server
}

// failBackend makes a backend refuse connections, and closes those that it has.
func (f *fixture) failBackend(e endpoint) { f.backends[e.addr].Stop() }

// restartBackend starts the backend again.
func (f *fixture) restartBackend(e endpoint) {
	f.t.Helper()
	listener, err := net.Listen("tcp", e.addr.String())
	must.Succeed(f.t, err)
	f.serveBackend(e.addr, listener)
}

// counts reads the counters of a server.
type counts struct{ server *xds.Server }

// get returns the number of responses ("answered EDS"), of rejected responses ("rejected EDS"), or of rejections for a
// reason.
func (c counts) get(what string) int {
	now := c.server.Counts()
	for i, name := range xds.TypeNames {
		switch what {
		case "answered " + name:
			return now.Sent[i]
		case "rejected " + name:
			return now.NACKed[i]
		}
	}
	return now.Rejected[xds.RejectReason(what)]
}

// clients returns the numbers of streams and names.
func (c counts) clients() [2]int {
	now := c.server.Counts()
	return [2]int{now.Streams, now.Names}
}

// programs are built once.
var programs = sync.OnceValues(func() (binaries.Programs, error) {
	return binaries.Build(context.Background(), os.Stderr, binaries.XDS)
})

// client is a process with clients that use xDS: one for each name of a channel.
type client struct {
	t       *testing.T
	input   io.Writer
	encoder *json.Encoder
	decoder *json.Decoder
}

// command and results have the formats in e2e/lab/build/xds/client.go.
type command struct {
	Channel   string   `json:"channel"`
	Target    string   `json:"target"`
	IdleAfter int      `json:"idleAfter,omitempty"`
	Calls     int      `json:"calls,omitempty"`
	Timeout   int      `json:"timeout,omitempty"`
	Wait      bool     `json:"wait,omitempty"`
	Load      int      `json:"load,omitempty"`
	Stop      bool     `json:"stop,omitempty"`
	Until     []string `json:"until,omitempty"`
	Close     bool     `json:"close,omitempty"`
}

type results struct {
	Wrong               string
	Answers, Errors     map[string]int
	Took, Longest, Last int64
}

func (f *fixture) client() *client {
	f.t.Helper()
	return startClient(f.t, f.address)
}

// startClient starts a process with clients of a server, in a network namespace if one is given.
func startClient(t *testing.T, server string, namespaces ...*fabric.Namespace) *client {
	t.Helper()
	built, err := programs()
	must.Succeed(t, err)
	cmd := exec.Command(built.Path(binaries.XDS, "xds"), "client")
	bootstrap := fmt.Sprintf(`{"xds_servers":[{"server_uri":%q,"channel_creds":[{"type":"insecure"}],`+
		`"server_features":["xds_v3"]}],"node":{"id":"test"}}`, server)
	cmd.Env = append(os.Environ(), "GRPC_XDS_BOOTSTRAP_CONFIG="+bootstrap)
	input, err := cmd.StdinPipe()
	must.Succeed(t, err)
	output, err := cmd.StdoutPipe()
	must.Succeed(t, err)
	cmd.Stderr = os.Stderr
	start := cmd.Start
	if len(namespaces) > 0 {
		start = func() error { return namespaces[0].Do(cmd.Start) }
	}
	must.Succeed(t, start())
	t.Cleanup(func() {
		_ = input.Close() // its end terminates the program
		if err := cmd.Wait(); err != nil {
			t.Errorf("the client: %v", err)
		}
	})
	return &client{t: t, input: input, encoder: json.NewEncoder(input), decoder: json.NewDecoder(bufio.NewReader(output))}
}

func (c *client) do(next command) results {
	c.t.Helper()
	if next.Channel == "" {
		next.Channel = "web"
	}
	if next.Target == "" {
		next.Target = webTarget
	}
	must.Succeed(c.t, c.encoder.Encode(next))
	var got results
	must.Succeed(c.t, c.decoder.Decode(&got))
	return got
}

// expectReaches expects replies from some servers within this number of milliseconds, from no other server after that,
// and no errors.
func (c *client) expectReaches(desc string, within int64, want ...endpoint) {
	c.t.Helper()
	c.expectReachesAfter(desc, 0, within, want...)
}

// expectReachesAfter is like expectReaches, but allows this number of errors.
func (c *client) expectReachesAfter(desc string, errors int, within int64, want ...endpoint) {
	c.t.Helper()
	got := c.do(command{Until: addrs(want), Calls: 20 * len(want), Timeout: 60_000, Wait: true})
	failures := 0
	for _, count := range got.Errors {
		failures += count
	}
	if got.Wrong != "" || failures > errors {
		c.t.Errorf("%s: problem %q; errors %v, replies %v", desc, got.Wrong, got.Errors, got.Answers)
	}
	if last := got.Last / 1000; last > within {
		c.t.Errorf("%s: other servers replied for %d ms, want at most %d", desc, last, within)
	}
}

func addrs(endpoints []endpoint) []string {
	var all []string
	for _, endpoint := range endpoints {
		all = append(all, endpoint.addr.String())
	}
	return all
}

// validation describes a response according to Envoy's types.
type validation struct {
	Wrong                string
	Version, Nonce, Type string
	Resources            []json.RawMessage
}

// formatCounts formats counts in order.
func formatCounts(counts map[string]int) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s: %d", key, counts[key]))
	}
	return strings.Join(parts, ", ")
}

func webService() *model.Service {
	return &model.Service{
		Name: web, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}, Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80}},
	}
}
