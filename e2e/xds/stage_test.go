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

// stage is a cluster as seen by node-1 in zone a, an xDS server for it, and servers that respond to calls. Everything
// is on loopback addresses: the endpoints are real, and neither kernel rules nor a network are involved.
type stage struct {
	t        *testing.T
	cluster  *model.Cluster
	planner  *selection.Planner
	table    *xds.Table
	address  string // the xDS server's
	counts   counts
	stop     func()
	backends map[netip.AddrPort]*grpc.Server
}

// newStage returns a fixture in the state before the first sync.
func newStage(t *testing.T) *stage {
	t.Helper()
	s := newCluster()
	s.t, s.address = t, xds.SocketPrefix+filepath.Join(t.TempDir(), "xds.sock")
	s.start()
	t.Cleanup(func() { s.stop() })
	return s
}

// newCluster returns a cluster without an xDS server.
func newCluster() *stage {
	cluster := model.NewCluster("node-1")
	s := &stage{cluster: cluster, planner: selection.NewPlanner(cluster), backends: map[netip.AddrPort]*grpc.Server{}}
	s.apply(model.Change{Nodes: map[string]*model.Node{"node-1": node("node-1", "a")}, AllNodes: new(true)})
	return s
}

func node(name, zone string) *model.Node {
	return &model.Node{Name: name, Labels: map[string]string{string(policy.Zone): zone}}
}

// start starts a server with a new table, like a proxy that starts.
func (s *stage) start() {
	ctx, cancel := context.WithCancel(context.Background())
	s.table = xds.NewTable("cluster.local")
	server := &xds.Server{
		Table: s.table, Log: slog.New(slog.DiscardHandler), IsOfNode: func(netip.Addr) (bool, error) { return true, nil },
	}
	s.counts = counts{server}
	var running sync.WaitGroup
	running.Go(func() { _ = server.Run(ctx, []string{s.address}) }) // always returns nil
	s.stop = func() { cancel(); running.Wait() }
	for _, name := range s.cluster.ServiceNames() {
		s.accept(name)
	}
}

// open completes the first sync.
func (s *stage) open() { s.table.OnSynced(selection.SyncState{}) }

func (s *stage) apply(change model.Change) {
	dirty := s.cluster.Apply(change)
	s.planner.ApplyChange(change)
	if s.table == nil {
		return
	}
	for _, name := range dirty {
		s.accept(name)
	}
}

func (s *stage) accept(name model.ObjectName) {
	var digest any
	if decisions := s.planner.Decide(name, model.Families); len(decisions) > 0 {
		digest = s.table.Derive(decisions)
	}
	s.table.OnApplied(name, digest)
}

// endpoint is an endpoint on a node: an address with or without a running server.
type endpoint struct {
	addr       netip.AddrPort
	node, zone string
}

var web = model.ObjectName{Namespace: "shop", Name: "web"}

const webTarget = "xds:///web.shop.svc.cluster.local:80"

// serve sets the topology keys and endpoints of the Service web.
func (s *stage) serve(keys []policy.Key, endpoints ...endpoint) {
	service := webService()
	service.Topology.Keys = keys
	s.serveAs(service, endpoints...)
}

// serveAs is like serve, for a Service with other settings. Endpoints have different ports, so each has its own slice.
func (s *stage) serveAs(service *model.Service, endpoints ...endpoint) {
	change := model.Change{
		Services: map[model.ObjectName]*model.Service{service.Name: service}, Slices: map[model.ObjectName]*model.EndpointSlice{},
	}
	for _, old := range s.cluster.SlicesOf(service.Name) {
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
	s.apply(change)
}

// backend starts a server that responds to calls on an address of its own.
func (s *stage) backend(node, zone string) endpoint {
	s.t.Helper()
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.%d:0", 2+len(s.backends)))
	must.Succeed(s.t, err)
	addr := netip.MustParseAddrPort(listener.Addr().String())
	s.serveEndpoint(addr, listener)
	return endpoint{addr, node, zone}
}

func (s *stage) serveEndpoint(addr netip.AddrPort, listener net.Listener) {
	server := greeterServer(addr.String())
	go func() { _ = server.Serve(listener) }() // until it is stopped
	s.backends[addr] = server
	s.t.Cleanup(server.Stop)
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

// fail makes a backend refuse connections, and closes those that it has.
func (s *stage) fail(p endpoint) { s.backends[p.addr].Stop() }

// recover starts the backend again.
func (s *stage) recover(p endpoint) {
	s.t.Helper()
	listener, err := net.Listen("tcp", p.addr.String())
	must.Succeed(s.t, err)
	s.serveEndpoint(p.addr, listener)
}

// counts reads the counters of a server.
type counts struct{ server *xds.Server }

// get returns how often something happened: "answered EDS", "rejected EDS", or a reason.
func (c counts) get(what string) int {
	now := c.server.Counts()
	for of, name := range xds.Types {
		switch what {
		case "answered " + name:
			return now.Sent[of]
		case "rejected " + name:
			return now.NACKed[of]
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

// command and answer have the formats in e2e/lab/build/xds/client.go.
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

func (s *stage) client() *client {
	s.t.Helper()
	return startClient(s.t, s.address)
}

// startClient starts a process with clients of a server, in a network namespace if one is given.
func startClient(t *testing.T, server string, on ...*fabric.Namespace) *client {
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
	if len(on) > 0 {
		start = func() error { return on[0].Do(cmd.Start) }
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

// reaches expects replies from some servers within this number of milliseconds, from no other server after that, and no
// errors.
func (c *client) reaches(why string, within int64, want ...endpoint) {
	c.t.Helper()
	c.reachesAfter(why, 0, within, want...)
}

// reachesAfter is like reaches, but allows this number of errors.
func (c *client) reachesAfter(why string, errors int, within int64, want ...endpoint) {
	c.t.Helper()
	got := c.do(command{Until: addrs(want), Calls: 20 * len(want), Timeout: 60_000, Wait: true})
	failed := 0
	for _, count := range got.Errors {
		failed += count
	}
	if got.Wrong != "" || failed > errors {
		c.t.Errorf("%s: %s; errors %v, replies %v", why, got.Wrong, got.Errors, got.Answers)
	}
	if last := got.Last / 1000; last > within {
		c.t.Errorf("%s: other servers replied for %d ms, want at most %d", why, last, within)
	}
}

func addrs(endpoints []endpoint) []string {
	var all []string
	for _, endpoint := range endpoints {
		all = append(all, endpoint.addr.String())
	}
	return all
}

// classified describes a response according to Envoy's types.
type classified struct {
	Wrong                string
	Version, Nonce, Type string
	Resources            []json.RawMessage
}

// inShort formats counts in order.
func inShort(counts map[string]int) string {
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
