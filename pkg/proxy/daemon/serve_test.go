package daemon

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/conntrackgc"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// observerOf returns the observer of node-a, without output.
func observerOf(health *status.Status, recorder *metrics.Recorder) *observer {
	c := &common{options: &Options{Node: "node-a"}, log: slog.New(slog.DiscardHandler), status: health, recorder: recorder}
	return &observer{common: c, stdout: io.Discard, findings: newFindings(c, eventReporter{})}
}

func TestASyncIsCountedByFamily(t *testing.T) {
	recorder := metrics.NewRecorder()
	o := observerOf(&status.Status{}, recorder)
	none := metrics.PortReason{Family: model.IPv6, Code: selection.NoneOnThisNode}
	setPortCounts(recorder, metrics.PortCounts{Reasons: map[metrics.PortReason]int{none: 2}})
	o.Synced(syncer.Report{
		Added:   map[model.Family]int{model.IPv4: 7},
		Deleted: map[model.Family]int{model.IPv6: 5},
	}, time.Unix(100, 0), time.Unix(101, 0))
	page := httptest.NewRecorder()
	recorder.Handler().ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, line := range []string{
		`vicinity_service_port_decisions{ip_family="IPv6",reason="NoneOnThisNode",traffic_policy="internal"} 2`,
		`kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family="IPv6",traffic_policy="internal"} 2`,
		`vicinity_nft_elements_written_total{ip_family="IPv4",operation="add"} 7`,
		`vicinity_nft_elements_written_total{ip_family="IPv6",operation="delete"} 5`,
	} {
		if !strings.Contains(page.Body.String(), line+"\n") {
			t.Errorf("/metrics lacks %q", line)
		}
	}
}

func TestConntrackDumpsAndCleanupsAreInTheMetrics(t *testing.T) {
	c := &common{recorder: metrics.NewRecorder(), log: slog.New(slog.DiscardHandler)}
	c.onConntrackDump(conntrack.DumpStats{Took: time.Second, Truncated: 2})
	c.onConntrackCleanup(conntrackgc.CleanupResult{
		Flows:     map[model.Family]conntrackgc.PassResult{model.IPv6: {Deleted: 11}},
		Unreplied: map[model.Protocol]int{model.SCTP: 3}, Closed: map[model.Protocol]int{model.TCP: 4},
	}, errors.New("busy"))
	page := httptest.NewRecorder()
	c.recorder.Handler().ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, line := range []string{
		`vicinity_conntrack_stale_entries_deleted_total{protocol="SCTP",state="unreplied"} 3`,
		`vicinity_conntrack_stale_entries_deleted_total{protocol="TCP",state="unreplied"} 0`,
		`vicinity_conntrack_stale_entries_deleted_total{protocol="TCP",state="closed"} 4`,
		`vicinity_conntrack_dump_duration_seconds_count{result="complete"} 0`,
		`vicinity_conntrack_dump_duration_seconds_sum{result="truncated"} 1`,
		`kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family="IPv6"} 11`,
	} {
		if !strings.Contains(page.Body.String(), line+"\n") {
			t.Errorf("/metrics lacks %q", line)
		}
	}
}

func TestAFailedSyncShowsInHealthUntilOneSucceeds(t *testing.T) {
	syncStatus := &status.Status{}
	o := observerOf(syncStatus, metrics.NewRecorder())
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	o.Failed(errors.New("no buffer space"), syncer.Report{}, start, start.Add(time.Second), time.Second)
	if health := syncStatus.Health(start.Add(time.Hour)); health.Healthy || health.Ready || health.LastError != "no buffer space" {
		t.Errorf("an hour after a failure: %+v, want it neither healthy nor ready", health)
	}
	o.Synced(syncer.Report{}, start.Add(2*time.Second), start.Add(3*time.Second))
	if health := syncStatus.Health(start.Add(time.Hour)); !health.Healthy || !health.Ready || health.LastError != "" {
		t.Errorf("after a success: %+v, want it healthy and ready", health)
	}
}
