package daemon

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/kube"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/events"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/metrics"
)

// TestDroppedEventsAreInTheMetrics reports more Events than the queue holds while nothing reads it. No request is sent.
func TestDroppedEventsAreInTheMetrics(t *testing.T) {
	options := &Options{Node: "node-a", Connection: kube.Connection{Server: "http://127.0.0.1:1"}}
	c := &common{options: options, recorder: metrics.NewRecorder(), log: slog.New(slog.DiscardHandler)}
	src, err := newSource(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 103 { // 100 may wait
		src.reporter.report(events.Started("node-a", fmt.Sprint(i)))
	}
	page := httptest.NewRecorder()
	c.recorder.Handler().ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if want := "\nvicinity_events_dropped_total 3\n"; !strings.Contains(page.Body.String(), want) {
		t.Errorf("/metrics lacks %q", want)
	}
}
