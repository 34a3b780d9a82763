package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/servicefindings"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/xds"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/manifests"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// memoryKernel is a kernel in memory. It rejects the batches that reject selects, and elements with an address.
type memoryKernel struct {
	ruleset.Tables
	reject     atomic.Pointer[func(ruleset.Batch) bool]
	rejectAddr atomic.Pointer[netip.Addr]
}

var errRejected = errors.New("no buffer space available")

func (k *memoryKernel) Commit(_ context.Context, batch ruleset.Batch) error {
	if rejects := k.reject.Load(); rejects != nil && (*rejects)(batch) {
		return errRejected
	}
	if addr := k.rejectAddr.Load(); addr != nil {
		if err := rejectionOf(batch, *addr); err != nil {
			return err
		}
	}
	return k.Apply(batch)
}

// rejectionOf returns an error that names the first element of a batch with an address, as package nft does.
func rejectionOf(batch ruleset.Batch, addr netip.Addr) error {
	for _, op := range batch.Ops {
		object, isElements := op.Object.(ruleset.ElementsObject)
		if !isElements {
			continue
		}
		for element := range object.Elements {
			if element.Key.Addr == addr {
				return &ruleset.RejectedError{Rejections: []ruleset.Rejection{{Op: op, Element: &element, Err: errRejected}}}
			}
		}
	}
	return nil
}

func (k *memoryKernel) Objects(_ context.Context, family model.Family) (ruleset.Objects, error) {
	return k.Tables.Objects(family), nil
}

func everyBatch(ruleset.Batch) bool { return true }

// deletesChains selects the batches that delete chains.
func deletesChains(batch ruleset.Batch) bool {
	for _, op := range batch.Ops {
		if _, isChain := op.Object.(ruleset.ChainObject); isChain && op.Verb == ruleset.Delete {
			return true
		}
	}
	return false
}

// observedProxy is a running proxy with the daemon's observer and the kernel in memory.
type observedProxy struct {
	t             *testing.T
	kernel        *memoryKernel
	changes       chan model.Change
	driftDetected chan struct{}
	status        *status.Status
	recorder      *metrics.Recorder
	feed          *feed
}

func newObservedProxy(t *testing.T) *observedProxy {
	t.Helper()
	recorder, log := metrics.NewRecorder(), slog.New(slog.DiscardHandler)
	config := ruleset.Config{Families: model.Families}
	o := &observedProxy{
		t: t, kernel: &memoryKernel{}, changes: make(chan model.Change), driftDetected: make(chan struct{}),
		status: &status.Status{OnResponse: recorder.HealthServed}, recorder: recorder,
	}
	c := &common{options: &Options{Node: "node-a"}, config: config, log: log, status: o.status, recorder: recorder}
	all := newFindings(c, eventReporter{})
	o.feed = &feed{common: c, barrier: &startupBarrier{changes: o.changes}, findings: all}
	observing := &observer{common: c, stdout: io.Discard, findings: all}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	enabled := components{newHealthChecks(c, all), {handler: servicefindings.NewCollector(all.onDecided)}, newPortCounts(c)}
	go func() { ended <- enabled.run(ctx) }()
	go func() {
		syncer.New("node-a", config, o.kernel, enabled.handlers()...).Run(ctx, o.changes, o.driftDetected, observing)
		ended <- nil
	}()
	t.Cleanup(func() {
		cancel()
		for range cap(ended) {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	return o
}

// reject makes the kernel reject some batches; none if picks is nil.
func (o *observedProxy) reject(selects func(ruleset.Batch) bool) {
	if selects == nil {
		o.kernel.reject.Store(nil)
		return
	}
	o.kernel.reject.Store(&selects)
}

// page returns /metrics.
func (o *observedProxy) page() string {
	response := httptest.NewRecorder()
	o.recorder.Handler().ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return response.Body.String()
}

// get requests one of the health paths.
func (o *observedProxy) get(path string, want int) {
	o.t.Helper()
	response := httptest.NewRecorder()
	o.status.Handler(time.Now).ServeHTTP(response, httptest.NewRequest(http.MethodGet, path, nil))
	if response.Code != want {
		o.t.Errorf("%s: status %d, want %d: %s", path, response.Code, want, response.Body)
	}
}

// service returns a Service of the namespace shop with one port, and its slice with endpoints on another node and a
// trigger time.
func service(number, endpoints int, stamp time.Time) (*model.Service, *model.EndpointSlice) {
	name := model.ObjectName{Namespace: "shop", Name: fmt.Sprintf("service-%d", number)}
	slice := &model.EndpointSlice{
		Name: name, Service: name, Ports: []model.SlicePort{{Protocol: model.TCP, Port: 8080}}, TriggeredAt: stamp,
	}
	for endpoint := range endpoints {
		slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{
			Addr:     netip.AddrFrom4([4]byte{10, 244, byte(number), byte(endpoint + 1)}),
			Endpoint: model.Endpoint{Node: "node-b", Ready: true, Serving: true},
		})
	}
	return &model.Service{
		Name: name, ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, byte(number)})},
		Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80}},
	}, slice
}

// newChange returns the change that sets Services and slices.
func newChange(service *model.Service, slice *model.EndpointSlice) model.Change {
	change := model.Change{}
	if service != nil {
		change.Services = map[model.ObjectName]*model.Service{service.Name: service}
	}
	if slice != nil {
		change.Slices = map[model.ObjectName]*model.EndpointSlice{slice.Name: slice}
	}
	return change
}

// metricStep is an event, with the lines that /metrics has only afterwards: regular expressions for the start of the
// lines.
type metricStep struct {
	title string
	do    func(o *observedProxy)
	texts []string
}

// testedElsewhere are the metrics that need more than a proxy, with the test that changes them.
var testedElsewhere = map[string]string{
	"kubeproxy_conntrack_reconciler_deleted_entries_total": "TestTheDaemonFollowsAddressesAndEndpoints, with flows in the kernel",
	"kubeproxy_conntrack_reconciler_sync_duration_seconds": "TestTheDaemonFollowsAddressesAndEndpoints, with flows in the kernel",
	"vicinity_conntrack_stale_entries_deleted_total":       "TestTheDaemonDeletesStaleUnrepliedEntries in cmd/proxy, with packets",
	"vicinity_conntrack_dump_duration_seconds":             "TestTheDaemonDeletesStaleUnrepliedEntries",
	"rest_client_requests_total":                           "TestRequestsOfClientGoAreCounted in pkg/proxy/report/metrics",
	"rest_client_request_duration_seconds":                 "TestRequestsOfClientGoAreCounted in pkg/proxy/report/metrics",
	"vicinity_dns_requests_total":                          "TestClientGetsAddressesOfItsZone in e2e/dns, with a daemon that answers",
	"vicinity_dns_services":                                "TestClientGetsAddressesOfItsZone in e2e/dns",
	"vicinity_events_dropped_total":                        "TestDroppedEventsAreInTheMetrics, with a recorder of Events",
	"vicinity_other_service_proxies":                       "TestOtherProxiesAreReportedOnce, with injected conflicts",
	"vicinity_reachability_suspicions_total":               "TestANodeIsEjected in traffic/reachability/probe, with nodes",
	"vicinity_conntrack_unreplied_entries":                 "TestUnrepliedConnectionsAreCounted in e2e/reachability",
	"vicinity_reachability_targets":                        "TestUnrepliedConnectionsAreCounted in e2e/reachability",
	"vicinity_sync_queue_depth":                            "TestQueuedServicesAreInTheMetrics, with a kernel that is slow",
	"vicinity_localhost_nodeport_connections_total":        "TestNodePortsOnLoopback in cmd/proxy, with a daemon that listens",
	"kubeproxy_nftables_localhost_nodeport_listeners":      "TestNodePortsOnLoopback in cmd/proxy",
	"vicinity_connections_total":                           "TestTheDaemonCountsTraffic in cmd/proxy, with a daemon that counts",
	"vicinity_traffic_bytes_total":                         "TestTheDaemonCountsTraffic in cmd/proxy",
	"vicinity_zone_traffic_bytes_total":                    "TestTheDaemonCountsTraffic in cmd/proxy",
	"vicinity_service_connections_total":                   "TestTheDaemonCountsTraffic in cmd/proxy",
	"vicinity_service_traffic_bytes_total":                 "TestTheDaemonCountsTraffic in cmd/proxy",
	"vicinity_accounting_not_counted_total":                "TestABurstIsCountedOrReportedAsLost in e2e/accounting, with a daemon that counts",
	"vicinity_kernel_settings_unmet":                       "TestKernelSettingsAreHeld in cmd/proxy, with a daemon",
	"vicinity_node_condition_stale": "TestAPodStartsAfterTheServicesWork in e2e/nodecondition, without the " +
		"permission to write it",

	"kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total": "TestNodePortsOnLoopback in cmd/proxy",
	"kubeproxy_nftables_localhost_nodeport_rejected_packets_total": "TestWhatLoopbackDoesNotServeIsRefusedAndCounted in cmd/proxy, " +
		"with packets",
}

func TestEachDocumentedMetricChanges(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "report", "metrics", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented, _, _ := strings.Cut(string(text), "## kube-proxy metrics not provided")
	o, changedHere := newObservedProxy(t), map[string]bool{}
	for _, step := range append(metricSteps(), xdsClients) {
		before := o.page()
		step.do(o)
		for _, pattern := range step.texts {
			line := regexp.MustCompile("(?m)^" + pattern)
			if line.MatchString(before) {
				t.Errorf("%s: /metrics had %q before the event", step.title, pattern)
			}
			wait.Until(t, step.title+": /metrics has "+pattern, func() bool { return line.MatchString(o.page()) })
			name := regexp.MustCompile(`^[a-z_]+`).FindString(pattern)
			changedHere[name], changedHere[strings.TrimSuffix(name, "_count")] = true, true
		}
	}
	rows := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(documented, -1)
	if len(rows) < 25 {
		t.Fatalf("found only %d documented metrics; check the regular expression for the README's table", len(rows))
	}
	for _, row := range rows {
		if name := row[1]; changedHere[name] == (testedElsewhere[name] != "") {
			t.Errorf("%s: changed here %v, changed elsewhere by %q", name, changedHere[name], testedElsewhere[name])
		}
	}
}

// TestTheTestsOfOtherMetricsExist, so that a renamed or removed test is noticed.
func TestTheTestsOfOtherMetricsExist(t *testing.T) {
	declared := map[string]bool{}
	declaration := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, folder := range []string{"cmd", "e2e", "pkg"} {
		err := filepath.WalkDir(filepath.Join("..", "..", "..", folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, found := range declaration.FindAllSubmatch(text, -1) {
				declared[string(found[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for metric, test := range testedElsewhere {
		if name := regexp.MustCompile(`^\w+`).FindString(test); !declared[name] {
			t.Errorf("%s: there is no test %q", metric, name)
		}
	}
}

// xdsClients is the report of an xDS server; TestClientsOfTheNodeReachTheDaemon in e2e/xds has a real one in a
// daemon.
var xdsClients = metricStep{"xDS clients", func(o *observedProxy) {
	counts := xds.Counts{Streams: 2, Names: 6, Rejected: map[xds.RejectReason]int{xds.UnknownName: 1, xds.RemoteClient: 1}}
	counts.Sent[0], counts.NACKed[1] = 1, 1
	exposeXDS(o.recorder, func() xds.Counts { return counts })
}, []string{
	"vicinity_xds_streams 2\n", "vicinity_xds_subscribed_resources 6\n", `vicinity_xds_responses_total{result="sent",type="CDS"} 1` + "\n",
	`vicinity_xds_responses_total{result="nacked",type="EDS"} 1` + "\n", `vicinity_xds_rejections_total{reason="unknown_name"} 1` + "\n",
	`vicinity_xds_rejections_total{reason="remote_client"} 1` + "\n",
}}

func metricSteps() []metricStep {
	const v4, tcp = `{ip_family="IPv4"}`, `{ip_family="IPv4",operation=`
	return []metricStep{
		{"the program starts", func(o *observedProxy) { o.recorder.Set(metrics.BuildInfo, 1, "v1.2.3", "go1.26") }, []string{
			`vicinity_build_info{goversion="go1.26",version="v1.2.3"} 1\n`,
		}},
		{"the node and ten Services", func(o *observedProxy) {
			all := model.Change{Nodes: map[string]*model.Node{"node-a": {Name: "node-a"}}}
			for number := range 10 {
				all = all.Merge(newChange(service(number, 2, time.Time{})))
			}
			o.changes <- all
		}, []string{
			"kubeproxy_sync_proxy_rules_duration_seconds_count" + v4 + " 1\n",
			"kubeproxy_sync_full_proxy_rules_duration_seconds_count" + v4 + " 1\n",
			"kubeproxy_sync_proxy_rules_last_timestamp_seconds" + v4 + " 1", "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds" + v4 + " 1",
			"kubeproxy_sync_proxy_rules_service_changes_total 10\n", "kubeproxy_sync_proxy_rules_endpoint_changes_total 10\n",
			"vicinity_services 10\n",
			"vicinity_nft_elements_written_total" + tcp + `"add"} 7`,
			`vicinity_service_port_decisions{ip_family="IPv4",reason="AllEndpoints",traffic_policy="internal"} 10` + "\n",
		}},
		{"an EndpointSlice with a trigger time changes", func(o *observedProxy) {
			o.changes <- newChange(service(3, 3, time.Now()))
		}, []string{
			"kubeproxy_sync_partial_proxy_rules_duration_seconds_count" + v4 + " 1\n",
			"kubeproxy_network_programming_duration_seconds_count" + v4 + " 1\n", "vicinity_nft_elements_written_total" + tcp + `"delete"} [1-9]`,
		}},
		{"a policy keeps traffic on a node without endpoints", func(o *observedProxy) {
			local, _ := service(4, 2, time.Time{})
			local.InternalTrafficLocal = true
			o.changes <- newChange(local, nil)
		}, []string{
			`kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family="IPv4",traffic_policy="internal"} 1` + "\n",
			`vicinity_service_port_decisions{ip_family="IPv4",reason="AllEndpoints",traffic_policy="internal"} 9` + "\n",
			`vicinity_service_port_decisions{ip_family="IPv4",reason="NoneOnThisNode",traffic_policy="internal"} 1` + "\n",
		}},
		{"a load bound that moves half of the connections to other nodes", func(o *observedProxy) {
			// Two nodes and four endpoints, one of them here: half of this node's demand stays here.
			bounded, slice := service(8, 4, time.Time{})
			bounded.Topology = policy.Topology{Keys: []policy.Key{policy.Hostname, policy.AnyNode}, MaxLoad: 100}
			slice.Endpoints[0].Node = "node-a"
			change := newChange(bounded, slice)
			change.AllNodes, change.Nodes = new(true), map[string]*model.Node{"node-b": {Name: "node-b"}}
			o.changes <- change
		}, []string{
			`vicinity_expected_traffic_ratio{key="kubernetes.io/hostname"} 0.5` + "\n", `vicinity_expected_traffic_ratio{key="\*"} 0.5` + "\n",
			`vicinity_load_bounded_service_ports{demand_source="labels"} 1` + "\n",
		}},
		{"two nodes are evacuated, one of them for an hour", func(o *observedProxy) {
			o.changes <- model.Change{Demotions: map[model.DemotionKey]*model.Demotion{
				{Node: "node-b"}: {Until: new(time.Now().Add(time.Hour))}, {Node: "node-c"}: {},
			}}
		}, []string{
			`vicinity_evacuated_nodes{end="none"} 1` + "\n", `vicinity_evacuated_nodes{end="time"} 1` + "\n",
			`vicinity_service_port_decisions{ip_family="IPv4",reason="OnlyEvacuated",traffic_policy="internal"} [1-9]`,
		}},
		{"both evacuations end", func(o *observedProxy) {
			o.changes <- model.Change{Demotions: map[model.DemotionKey]*model.Demotion{{Node: "node-b"}: nil, {Node: "node-c"}: nil}}
		}, []string{`vicinity_evacuated_nodes{end="none"} 0` + "\n"}},
		{"two Services claim one address", func(o *observedProxy) {
			greedy, _ := service(5, 2, time.Time{})
			greedy.ExternalIPs = []netip.Addr{netip.MustParseAddr("10.96.0.6")}
			o.changes <- newChange(greedy, nil)
		}, []string{`vicinity_findings{reason="FrontendConflict"} 1` + "\n"}},
		{"the kernel rejects everything", func(o *observedProxy) {
			o.reject(everyBatch)
			o.changes <- newChange(service(6, 3, time.Time{}))
		}, []string{
			"kubeproxy_sync_proxy_rules_nftables_sync_failures_total" + v4 + " [1-9]",
			"kubeproxy_sync_proxy_rules_endpoint_changes_pending 1\n", "kubeproxy_sync_proxy_rules_service_changes_pending 1\n",
		}},
		{"it accepts everything again", func(o *observedProxy) { o.reject(nil) }, []string{
			"kubeproxy_sync_proxy_rules_endpoint_changes_pending 0\n", "kubeproxy_sync_proxy_rules_service_changes_pending 0\n",
		}},
		{"the kernel does not delete a chain", func(o *observedProxy) {
			o.reject(deletesChains)
			all := model.Change{}
			for number := range 10 {
				all = all.Merge(newChange(service(number, 1, time.Time{})))
			}
			o.changes <- all
		}, []string{"kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total" + v4 + " [1-9]"}},
		{"another process changes our tables", func(o *observedProxy) {
			o.reject(nil)
			o.recorder.ExternalChange("IPv4")
			o.driftDetected <- struct{}{}
		}, []string{
			`vicinity_nft_external_changes_total{ip_family="IPv4",stage="detected"} 1` + "\n",
			`vicinity_nft_external_changes_total{ip_family="IPv4",stage="repaired"} 1` + "\n",
		}},
		{"the kernel rejects a Service", func(o *observedProxy) {
			balancer := netip.MustParseAddr("203.0.113.7")
			o.kernel.rejectAddr.Store(&balancer)
			rejected, _ := service(7, 2, time.Time{})
			rejected.LoadBalancerIPs = []netip.Addr{balancer}
			o.changes <- newChange(rejected, nil)
		}, []string{`vicinity_findings{reason="FailedToProgram"} 1` + "\n"}},
		{"the Service is corrected", func(o *observedProxy) {
			o.changes <- newChange(service(7, 2, time.Time{}))
		}, []string{`vicinity_findings{reason="FailedToProgram"} 0` + "\n"}},
		{"load balancers and the kubelet check health", func(o *observedProxy) {
			o.feed.updateEligibility(nodeChange(&model.Node{Name: "node-a"}))
			o.get("/healthz", http.StatusOK)
			o.get("/livez", http.StatusOK)
		}, []string{`kubeproxy_proxy_healthz_total{code="200"} 1` + "\n", `kubeproxy_proxy_livez_total{code="200"} 1` + "\n"}},
		{"the node is being deleted", func(o *observedProxy) {
			o.feed.updateEligibility(nodeChange(&model.Node{Name: "node-a", IneligibleReason: "it is being deleted"}))
			o.get("/healthz", http.StatusServiceUnavailable)
			o.get("/livez", http.StatusOK)
		}, []string{`kubeproxy_proxy_healthz_total{code="503"} 1` + "\n", `kubeproxy_proxy_livez_total{code="200"} 2` + "\n"}},
		{"a health check port is in use", takeHealthCheckPort, []string{`vicinity_findings{reason="FailedToStartServiceHealthcheck"} 1` + "\n"}},
		{"a manifest does not parse", func(o *observedProxy) { o.feed.findings.change(problemsOf(o.t, "{broken"), nil) }, []string{
			`vicinity_findings{reason="Invalid"} 1` + "\n",
		}},
		{"topology is read from TopologySlices", func(o *observedProxy) { o.recorder.TopologyFrom("topologyslices") }, []string{
			`vicinity_node_topology_source{source="topologyslices"} 1` + "\n",
		}},
		{"topology is read from Nodes", func(o *observedProxy) { o.recorder.TopologyFrom("nodes") }, []string{
			`vicinity_node_topology_source{source="topologyslices"} 0` + "\n", `vicinity_node_topology_source{source="nodes"} 1` + "\n",
		}},
		{"measured demand was published in 2023", func(o *observedProxy) { o.recorder.DemandRenewed(time.Unix(1700000000, 0)) }, []string{
			`vicinity_demand_last_renewed_timestamp_seconds 1.7e\+09` + "\n",
		}},
		{"the API server stops responding", func(o *observedProxy) { o.recorder.WatchInterrupted("services", time.Unix(1700000000, 0)) },
			[]string{
				`vicinity_watch_interrupted_timestamp_seconds{resource="services"} 1.7e\+09` + "\n",
			}},
	}
}

// takeHealthCheckPort listens on the port of a Service's health check.
func takeHealthCheckPort(o *observedProxy) {
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { _ = listener.Close() })
	checked, _ := service(7, 1, time.Time{})
	checked.ExternalTrafficLocal = true
	checked.HealthCheckNodePort = netip.MustParseAddrPort(listener.Addr().String()).Port()
	o.changes <- newChange(checked, nil)
}

// problemsOf returns the findings about a directory with one file.
func problemsOf(t *testing.T, text string) []model.Finding {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "state.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var folder manifests.Folder
	update, err := folder.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return update.NewProblems
}

func TestTriggersBeforeTheProcessStartAreIgnored(t *testing.T) {
	o := newObservedProxy(t)
	o.changes <- newChange(service(1, 1, processStart.Add(-time.Nanosecond)))
	o.changes <- newChange(service(2, 1, processStart.Add(time.Nanosecond)))
	wait.Until(t, "both are applied", func() bool { return strings.Contains(o.page(), "vicinity_services 2\n") })
	if want := `kubeproxy_network_programming_duration_seconds_count{ip_family="IPv4"} 1` + "\n"; !strings.Contains(o.page(), want) {
		t.Errorf("/metrics lacks %q", want)
	}
}

func TestANodeIsEligibleUnlessItIsUnknownOrBeingRemoved(t *testing.T) {
	for name, test := range map[string]struct {
		own      localNodeState
		eligible bool
		reason   string
	}{
		"unknown": {localNodeState{}, false, "there is no Node object of this name"},
		"exists":  {localNodeState{node: &model.Node{Name: "node-a"}}, true, ""},
		"deleted": {localNodeState{node: &model.Node{Name: "node-a", IneligibleReason: "it is being deleted"}}, false, "it is being deleted"},
		"evacuated": {
			localNodeState{node: &model.Node{Name: "node-a"}, evacuation: &model.Demotion{}}, false,
			"it is being evacuated until the label vicinity.dev/evacuate is removed",
		},
		"evacuated until a deadline": {
			localNodeState{
				node: &model.Node{Name: "node-a"}, evacuation: &model.Demotion{Until: new(time.Date(2026, 11, 22, 18, 0, 0, 0, time.UTC))},
			}, false,
			"it is being evacuated until 2026-11-22 18:00 UTC",
		},
	} {
		if eligible, reason := test.own.eligibility(); eligible != test.eligible || reason != test.reason {
			t.Errorf("%s: %v, %q, want %v, %q", name, eligible, reason, test.eligible, test.reason)
		}
	}
}

// TestQueuedServicesAreInTheMetrics: a large Service is counted until its last step is applied.
func TestQueuedServicesAreInTheMetrics(t *testing.T) {
	o := newObservedProxy(t)
	o.changes <- newChange(service(1, 2, time.Time{}))
	wait.Until(t, "the first sync", func() bool { return strings.Contains(o.page(), "vicinity_services 1\n") })
	resume := make(chan struct{})
	block := sync.OnceFunc(func() { <-resume })
	blockInCleanup := func(batch ruleset.Batch) bool { // the cleanup of the first step waits
		if batch.Count(model.IPv4, ruleset.Add) == 0 && batch.Count(model.IPv4, ruleset.Delete) > 0 {
			block()
		}
		return false
	}
	o.kernel.reject.Store(&blockInCleanup)
	large, slice := service(2, 2, time.Time{})
	slice.Endpoints = nil
	for i := range model.MaxPortEndpoints / 2 { // enough for several steps
		slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{
			Addr: netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)}), Endpoint: model.Endpoint{Ready: true, Serving: true},
		})
	}
	o.changes <- newChange(large, slice)
	wait.Until(t, "a Service is queued", func() bool { return strings.Contains(o.page(), "vicinity_sync_queue_depth 1\n") })
	close(resume)
	wait.Until(t, "none is queued", func() bool { return strings.Contains(o.page(), "vicinity_sync_queue_depth 0\n") })
}
