package accounting_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/forecast"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/monitoring"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// prometheus is a real Prometheus on a node that scrapes the proxies on the other nodes.
type prometheus struct {
	t    testing.TB
	node *fabric.Node
}

const prometheusAddress = "127.0.0.1:9090"

// scrapeConfig scrapes as in our documents and the PodMonitor: the node is the instance, and the targets have a label
// namespace that is not the namespace of Services.
const scrapeConfig = `global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
- job_name: vicinity-proxy
  honor_labels: true
  static_configs:
`

func (s *setup) startPrometheus(host *fabric.Node, watched monitoring.Files, targets ...*fabric.Node) *prometheus {
	s.t.Helper()
	config := fmt.Sprintf(scrapeConfig, watched.Rules(s.t))
	for _, node := range targets {
		config += fmt.Sprintf("  - {targets: [%q], labels: {instance: %s, namespace: kube-system}}\n", node.IPv4.String()+":10249", node.Name)
	}
	folder := s.t.TempDir()
	file := filepath.Join(folder, "prometheus.yaml")
	must.Succeed(s.t, os.WriteFile(file, []byte(config), 0o600))
	process := site.Start(s.t, host.Namespace, exec.Command(site.Program(s.t, "prometheus"), "--config.file", file,
		"--storage.tsdb.path", filepath.Join(folder, "data"), "--web.listen-address", prometheusAddress))
	p := &prometheus{s.t, host}
	process.WaitFor(s.t, "Prometheus is ready", func() error {
		_, err := site.Page(host.Namespace, prometheusAddress, "/-/ready")
		return err
	})
	return p
}

// query runs an instant query, and returns the number of series and their sum.
func (p *prometheus) query(query string) (series int, sum float64) { return p.queryAt("", query) }

// queryAt runs a query at a time in seconds; if timestamp is empty, at the current time.
func (p *prometheus) queryAt(timestamp, query string) (series int, sum float64) {
	p.t.Helper()
	values := url.Values{"query": {query}}
	if timestamp != "" {
		values.Set("time", timestamp)
	}
	page, err := site.Page(p.node.Namespace, prometheusAddress, "/api/v1/query?"+values.Encode())
	must.Succeed(p.t, err)
	var response struct {
		Data struct{ Result []struct{ Value [2]any } }
	}
	must.Succeed(p.t, json.Unmarshal([]byte(page), &response))
	for _, sample := range response.Data.Result {
		value, err := strconv.ParseFloat(sample.Value[1].(string), 64)
		must.Succeed(p.t, err)
		sum += value
	}
	return len(response.Data.Result), sum
}

// forecastCommand returns the command from the help of `proxy forecast`, for this Prometheus and this cluster's manifests.
func (s *setup) forecastCommand() string {
	s.t.Helper()
	help, err := exec.Command(site.Program(s.t, "proxy"), "forecast", "--help").Output()
	must.Succeed(s.t, err)
	query := regexp.MustCompile(`promtool query instant .*\\\n.*vicinity_service_traffic.*\n.*--price.*`).FindString(string(help))
	if query == "" {
		s.t.Fatalf("no traffic query in the help:\n%s", help)
	}
	readme, err := os.ReadFile("../../cmd/proxy/traffic.md")
	must.Succeed(s.t, err)
	for line := range strings.Lines(query) {
		if !strings.Contains(string(readme), strings.TrimSpace(line)) {
			s.t.Errorf("traffic.md lacks %s", line)
		}
	}
	return strings.NewReplacer("promtool", site.Program(s.t, "promtool"), "http://prometheus:9090", "http://"+prometheusAddress,
		"proxy forecast", site.Program(s.t, "proxy")+" forecast -o json --manifests "+s.manifests).Replace(query)
}

// timeOf returns the time of a query's result.
func timeOf(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	var samples []struct{ Value [2]any }
	must.Succeed(t, json.Unmarshal(text, &samples))
	return fmt.Sprintf("%.3f", samples[0].Value[0])
}

// transfer transfers megabytes from a client to a Service and as many back, and ends the connection.
func (s *setup) transfer(client *fabric.Pod, to *service, megabytes int) {
	s.t.Helper()
	wait.Success(s.t, "a transfer to "+to.name, func() error {
		conn, err := client.Dial("tcp", to.clusterIP(model.IPv4).String(), fabric.Timeout)
		if err != nil {
			return err
		}
		defer conn.Close()
		return fabric.Transfer(conn, megabytes*1_000_000, megabytes*1_000_000)
	})
	var table *conntrack.Conn
	must.Succeed(s.t, client.Node.Do(func() (err error) { table, err = conntrack.Dial(); return err }))
	defer table.Close()
	s.endIn(table, func(netip.AddrPort) bool { return true })
}

// emptyMetrics are the metrics that are empty without an API server, a load bound, node ports on loopback, or a failure.
var emptyMetrics = []string{
	"vicinity_watch_interrupted_timestamp_seconds", "rest_client_requests_total", "rest_client_request_duration_seconds",
	"vicinity_expected_traffic_ratio", "kubeproxy_nftables_localhost_nodeport_rejected_packets_total",
	"vicinity_findings", "vicinity_other_service_proxies", "vicinity_demand_last_renewed_timestamp_seconds",
}

// TestForecastOfTrafficInPrometheus makes real transfers, which the proxies of two nodes in two zones count and a
// real Prometheus scrapes. With the documented query, the forecast reports the counted share of traffic to other zones,
// and the dashboard's panels have series.
func TestForecastOfTrafficInPrometheus(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	otherClient := s.addPod(s.otherZone, "other-client")
	near := s.add("near", allKeys, endpoint{pod: s.addPod(s.sameZone, "on-in-zone")})
	far := s.add("far", allKeys, endpoint{pod: s.addPod(s.otherZone, "on-off-zone")})
	near.port, far.port = transferPort, transferPort
	s.write()
	for _, node := range []*fabric.Node{s.local, s.otherZone} {
		s.startCounting(node, "--metrics-bind-address", "0.0.0.0:10249", "--xds-bind-address", "127.0.0.1:18000") // all panels have series
	}
	// A rate needs two values of a series. A proxy does not count connections from before its start.
	for _, flow := range []struct {
		client *fabric.Pod
		to     *service
	}{{s.client, near}, {s.client, far}, {otherClient, far}} {
		wait.Until(t, "a connection that is counted", func() bool {
			s.transfer(flow.client, flow.to, 1)
			for series := range s.nonzeroSeries(flow.client.Node, "vicinity_service_traffic_bytes_total") {
				if strings.Contains(series, fmt.Sprintf("service=%q", flow.to.name)) {
					return true
				}
			}
			return false
		})
	}
	watched := monitoring.Files{Folder: "proxy", Job: "vicinity-proxy"}
	p := s.startPrometheus(s.noZone, watched, s.local, s.otherZone)
	const bytes = `vicinity_service_traffic_bytes_total{service!="", namespace="shop"}`
	wait.Until(t, "two scrapes of three flows in two directions", func() bool {
		_, scrapes := p.query("min(count_over_time(" + bytes + "[1h]))")
		series, _ := p.query(bytes)
		return series == 6 && scrapes >= 2
	})
	_, before := p.query("sum(" + bytes + ")")
	s.transfer(s.client, near, 4)
	s.transfer(s.client, far, 8)
	s.transfer(otherClient, far, 2)
	wait.Until(t, "the transferred bytes", func() bool {
		_, after := p.query("sum(" + bytes + ")")
		return after-before >= 2*(4+8+2)*1e6
	})

	// The documented command runs in Prometheus's namespace.
	command := exec.Command("sh", "-ec", s.forecastCommand())
	command.Dir = t.TempDir()
	output, err := s.noZone.Run(command)
	must.Succeed(t, err)
	var report forecast.Report
	if err := json.Unmarshal([]byte(output[strings.Index(output, "{"):]), &report); err != nil {
		t.Fatalf("%v:\n%s", err, output)
	}
	const month = 30 * 24 * 3600
	timestamp := timeOf(t, filepath.Join(command.Dir, "bytes.json"))
	_, all := p.queryAt(timestamp, "sum(rate("+bytes+"[1d]))")
	_, crossing := p.queryAt(timestamp, `sum(rate(vicinity_service_traffic_bytes_total{locality="other_zone"}[1d]))`)
	current := report.Costs[0]
	for what, pair := range map[string][2]float64{
		"bytes in a month": {report.BytesInMonth, all * month},
		"to other zones":   {current.Bytes, crossing * month},
		"money":            {current.Money, crossing * month / 1e9 * 0.01},
	} {
		if got, want := pair[0], pair[1]; got < want*0.99 || got > want*1.01 || want == 0 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	if crossing < 0.5*all || crossing > 0.65*all { // 8 of 14
		t.Errorf("%v of %v B/s were counted to other zones", crossing, all)
	}

	queryCount := 0
	for panel, queries := range watched.Queries(t) {
		for _, query := range queries {
			queryCount++
			if slices.ContainsFunc(emptyMetrics, func(metric string) bool { return strings.Contains(query, metric) }) {
				continue
			}
			wait.Until(t, fmt.Sprintf("series for the panel %q: %s", panel, query), func() bool {
				series, _ := p.query(query)
				return series > 0
			})
		}
	}
	if queryCount < 50 {
		t.Errorf("the dashboard has only %d queries", queryCount)
	}
	wait.Until(t, "the recorded in-zone share of shop/far, 2 of 10", func() bool { // rules are evaluated once a second
		_, share := p.query(`vicinity:service_in_zone_traffic:ratio_rate1h{namespace="shop", service="far"}`)
		return share > 0.1 && share < 0.3
	})
}
