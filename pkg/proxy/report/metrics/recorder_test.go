package metrics

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// expect compares the series of the named metrics with the exposition format's text.
func expect(t *testing.T, r *Recorder, exposition string, names ...string) {
	t.Helper()
	if err := testutil.GatherAndCompare(r.registry, strings.NewReader(exposition), names...); err != nil {
		t.Error(err)
	}
}

func TestCountersExistAtTheStartAndTimesDoNot(t *testing.T) {
	expect(t, NewRecorder(), `
# HELP kubeproxy_sync_proxy_rules_nftables_sync_failures_total Number of failed syncs.
# TYPE kubeproxy_sync_proxy_rules_nftables_sync_failures_total counter
kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family="IPv4"} 0
kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family="IPv6"} 0
# HELP vicinity_nft_external_changes_total `+externalChanges.help+`
# TYPE vicinity_nft_external_changes_total counter
vicinity_nft_external_changes_total{ip_family="IPv4",stage="detected"} 0
vicinity_nft_external_changes_total{ip_family="IPv4",stage="repaired"} 0
vicinity_nft_external_changes_total{ip_family="IPv6",stage="detected"} 0
vicinity_nft_external_changes_total{ip_family="IPv6",stage="repaired"} 0
# HELP vicinity_nft_elements_written_total Number of elements of nftables sets and maps that were added to or deleted from the kernel.
# TYPE vicinity_nft_elements_written_total counter
vicinity_nft_elements_written_total{ip_family="IPv4",operation="add"} 0
vicinity_nft_elements_written_total{ip_family="IPv4",operation="delete"} 0
vicinity_nft_elements_written_total{ip_family="IPv6",operation="add"} 0
vicinity_nft_elements_written_total{ip_family="IPv6",operation="delete"} 0
`, lastQueued.name, lastSync.name, syncFailures.name, externalChanges.name, ElementsWritten.name)
}

func TestASyncIsObservedWithKubeProxysBuckets(t *testing.T) {
	r := NewRecorder()
	r.ObserveSync(false, 3*time.Millisecond, nil)
	r.ObserveSync(true, 20*time.Second, errors.New("no buffer space available"))

	expect(t, r, histogramText(syncDuration.name, syncDuration.help, "20.003", 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2)+
		histogramText(fullSyncDuration.name, fullSyncDuration.help, "20", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1)+
		histogramText(partialSyncDuration.name, partialSyncDuration.help, "0.003", 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)+`
# HELP kubeproxy_sync_proxy_rules_nftables_sync_failures_total Number of failed syncs.
# TYPE kubeproxy_sync_proxy_rules_nftables_sync_failures_total counter
kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family="IPv4"} 1
kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family="IPv6"} 1
`, syncDuration.name, fullSyncDuration.name, partialSyncDuration.name, syncFailures.name)
}

// histogramText returns the series of both families of a sync's duration, given the cumulative count of each bucket.
func histogramText(name, help, sum string, counts ...int) string {
	bounds := strings.Fields("0.001 0.002 0.004 0.008 0.016 0.032 0.064 0.128 0.256 0.512 1.024 2.048 4.096 8.192 16.384 +Inf")
	var b strings.Builder
	b.WriteString("# HELP " + name + " " + help + "\n# TYPE " + name + " histogram\n")
	for _, family := range families {
		for i, bound := range bounds {
			b.WriteString(name + `_bucket{ip_family="` + family + `",le="` + bound + `"} ` + strconv.Itoa(counts[i]) + "\n")
		}
		b.WriteString(name + `_sum{ip_family="` + family + `"} ` + sum + "\n")
		b.WriteString(name + `_count{ip_family="` + family + `"} ` + strconv.Itoa(counts[len(bounds)-1]) + "\n")
	}
	return b.String()
}

func TestBothFamiliesAreQueuedAndDoneTogether(t *testing.T) {
	r := NewRecorder()
	r.SyncQueued(time.Unix(1700000000, 250_000_000))
	r.SyncDone(time.Unix(1700000001, 500_000_000), false)

	expect(t, r, `
# HELP kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds Unix time of the last request for a sync: a change, a repair or a retry.
# TYPE kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds gauge
kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family="IPv4"} 1.70000000025e+09
kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family="IPv6"} 1.70000000025e+09
# HELP kubeproxy_sync_proxy_rules_last_timestamp_seconds Time of the last successful sync, in seconds since 1970.
# TYPE kubeproxy_sync_proxy_rules_last_timestamp_seconds gauge
kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} 1.7000000015e+09
kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv6"} 1.7000000015e+09
`, lastQueued.name, lastSync.name)
}

func TestElementsAndForeignChangesAreCountedByFamily(t *testing.T) {
	r := NewRecorder()
	r.Add(ElementsWritten, 3, "IPv4", OperationAdd)
	r.Add(ElementsWritten, 4, "IPv4", OperationAdd)
	r.Add(ElementsWritten, 1, "IPv6", OperationDelete)
	r.ExternalChange("IPv6")

	expect(t, r, `
# HELP vicinity_nft_external_changes_total `+externalChanges.help+`
# TYPE vicinity_nft_external_changes_total counter
vicinity_nft_external_changes_total{ip_family="IPv4",stage="detected"} 0
vicinity_nft_external_changes_total{ip_family="IPv4",stage="repaired"} 0
vicinity_nft_external_changes_total{ip_family="IPv6",stage="detected"} 1
vicinity_nft_external_changes_total{ip_family="IPv6",stage="repaired"} 0
# HELP vicinity_nft_elements_written_total Number of elements of nftables sets and maps that were added to or deleted from the kernel.
# TYPE vicinity_nft_elements_written_total counter
vicinity_nft_elements_written_total{ip_family="IPv4",operation="add"} 7
vicinity_nft_elements_written_total{ip_family="IPv4",operation="delete"} 0
vicinity_nft_elements_written_total{ip_family="IPv6",operation="add"} 0
vicinity_nft_elements_written_total{ip_family="IPv6",operation="delete"} 1
`, ElementsWritten.name, externalChanges.name)
}

func TestTheHandlerServesOnlyMetrics(t *testing.T) {
	for name, c := range map[string]struct {
		method, path string
		status       int
		holds        []string
	}{
		"the page has our metrics, the runtime's and the process's": {
			http.MethodGet, "/metrics", http.StatusOK, []string{syncDuration.name, "go_goroutines", "process_open_fds"},
		},
		"HEAD":                      {http.MethodHead, "/metrics", http.StatusOK, nil},
		"POST is not allowed":       {http.MethodPost, "/metrics", http.StatusMethodNotAllowed, nil},
		"another path is not found": {http.MethodGet, "/", http.StatusNotFound, nil},
		"a path below is not found": {http.MethodGet, "/metrics/slis", http.StatusNotFound, nil},
	} {
		t.Run(name, func(t *testing.T) {
			response := httptest.NewRecorder()
			NewRecorder().Handler().ServeHTTP(response, httptest.NewRequest(c.method, c.path, nil))
			if diff := cmp.Diff(c.status, response.Code); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			for _, want := range c.holds {
				if !strings.Contains(response.Body.String(), want) {
					t.Errorf("the page lacks %s", want)
				}
			}
		})
	}
}

func TestTwoRecordersDoNotMixAndMayBeScrapedWhileTheyCount(t *testing.T) {
	counting, idle := NewRecorder(), NewRecorder()
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for n := range 50 {
				counting.Add(ElementsWritten, 1, "IPv4", OperationAdd)
				counting.CollectFrom(ServicePortsByReason, func(add Add) { add(float64(n), "IPv4", PolicyInternal, "AllEndpoints") })
				response := httptest.NewRecorder()
				counting.Handler().ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/metrics", nil))
				if _, err := io.Copy(io.Discard, response.Result().Body); err != nil || response.Code != http.StatusOK {
					t.Errorf("scrape: status %d, %v", response.Code, err)
				}
			}
		})
	}
	group.Wait()
	if got := testutil.ToFloat64(ElementsWritten.collector(counting).WithLabelValues("IPv4", OperationAdd)); got != 200 {
		t.Errorf("counted %v elements, want 200", got)
	}
	if got := testutil.ToFloat64(ElementsWritten.collector(idle).WithLabelValues("IPv4", OperationAdd)); got != 0 {
		t.Errorf("the idle recorder counted %v elements", got)
	}
}

func TestDroppedEventsAreCollectedWithEveryScrape(t *testing.T) {
	r, dropped := NewRecorder(), 3
	expectDropped := func(want int) {
		t.Helper()
		expect(t, r, `
# HELP vicinity_events_dropped_total `+EventsDropped.help+`
# TYPE vicinity_events_dropped_total counter
vicinity_events_dropped_total `+strconv.Itoa(want)+`
`, EventsDropped.name)
	}
	expectDropped(0) // without Events, as with objects in files
	r.CollectFrom(EventsDropped, func(add Add) { add(float64(dropped)) })
	expectDropped(3)
	dropped = 5
	expectDropped(5)
}

func TestTheTimeOfDemandExistsWhileItIsKnown(t *testing.T) {
	r := NewRecorder()
	expect(t, r, "", demandAge.name)
	r.DemandRenewed(time.Unix(1700000000, 500_000_000))
	expect(t, r, `
# HELP vicinity_demand_last_renewed_timestamp_seconds `+demandAge.help+`
# TYPE vicinity_demand_last_renewed_timestamp_seconds gauge
vicinity_demand_last_renewed_timestamp_seconds 1.7000000005e+09
`, demandAge.name)
	r.DemandRenewed(time.Time{})
	expect(t, r, "", demandAge.name)
}
