package daemon

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/servicehealth"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/status"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

func freePort(t *testing.T) uint16 {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return netip.MustParseAddrPort(listener.Addr().String()).Port()
}

// TestHealthChecksFollowTheReports: what a report does not contain stays as it was, and the addresses are those of
// node ports.
func TestHealthChecksFollowTheReports(t *testing.T) {
	checks := &healthChecks{
		servers:  servicehealth.New(slog.New(slog.DiscardHandler), func() bool { return true }),
		findings: newFindings(slog.New(slog.DiscardHandler), &status.Status{}, metrics.NewRecorder(), nil), recorder: metrics.NewRecorder(),
		config: ruleset.Config{Families: model.Families, NodePorts: model.NodePortAddresses{Primary: true}},
		wanted: make(chan wantedChecks, 1),
	}
	ended := make(chan error)
	go func() { ended <- checks.run(t.Context()) }()
	port := freePort(t)
	here := ruleset.Surroundings{NodePortAddrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}
	one := map[model.ObjectName]selection.HealthCheck{
		{Namespace: "shop", Name: "web"}: {Port: port, Endpoints: map[model.Family]int{model.IPv4: 1}},
	}
	for _, step := range []struct {
		says   string
		report proxy.Report
		want   int // status; zero if no server listens
	}{
		{"a Service with an endpoint here", proxy.Report{HealthChecks: one, Surroundings: here}, http.StatusOK},
		{"nothing new about health checks", proxy.Report{Surroundings: here}, http.StatusOK},
		{"no address serves node ports", proxy.Report{}, 0},
		{"one does again", proxy.Report{Surroundings: here}, http.StatusOK},
		{"the Service is gone", proxy.Report{HealthChecks: map[model.ObjectName]selection.HealthCheck{}, Surroundings: here}, 0},
	} {
		checks.follow(step.report)
		got := -1
		for deadline := time.Now().Add(patience); got != step.want && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			got = statusOf(fmt.Sprintf("http://127.0.0.1:%d/", port))
		}
		if got != step.want {
			t.Fatalf("%s: status %d, want %d", step.says, got, step.want)
		}
	}
}

// statusOf asks over a new connection; zero if no server listens.
func statusOf(url string) int {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}
