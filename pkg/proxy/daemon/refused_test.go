package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/explain"
)

func refusedService(number int, reason string, tries int) proxy.Refused {
	return proxy.Refused{
		Service: model.ObjectName{Namespace: "shop", Name: fmt.Sprintf("web-%d", number)}, Err: errors.New(reason),
		Since: time.Unix(0, 0), Next: time.Unix(int64(tries), 0), Tries: tries, InForce: number%2 == 0,
	}
}

// loggingObserver returns an observer and its log.
func loggingObserver(t *testing.T) (*observer, *strings.Builder) {
	t.Helper()
	var log strings.Builder
	return &observer{log: slog.New(slog.NewTextHandler(&log, nil))}, &log
}

func TestARefusedServiceIsLoggedOnceForEachReason(t *testing.T) {
	o, log := loggingObserver(t)
	for _, step := range []struct {
		title  string
		report proxy.Report
		want   int // lines
	}{
		{"refused", proxy.Report{Refused: []proxy.Refused{refusedService(1, "too long", 1), refusedService(2, "in use", 1)}}, 2},
		{"again", proxy.Report{Refused: []proxy.Refused{refusedService(1, "too long", 2)}}, 0},
		{"for another reason", proxy.Report{Refused: []proxy.Refused{refusedService(1, "too many", 3)}}, 1},
		{"taken", proxy.Report{NoLongerRefused: []model.ObjectName{{Namespace: "shop", Name: "web-1"}}}, 1},
		{"nothing", proxy.Report{}, 0},
		{"refused anew", proxy.Report{Refused: []proxy.Refused{refusedService(1, "too many", 1)}}, 1},
	} {
		before := strings.Count(log.String(), "\n")
		o.reportRefused(step.report)
		if lines := strings.Count(log.String(), "\n") - before; lines != step.want {
			t.Errorf("%s: %d lines in the log, want %d:\n%s", step.title, lines, step.want, log)
		}
	}
	want := explain.Refusals{Node: "node-a1", Services: []explain.Refusal{
		{Service: "shop/web-1", Message: "too many", Since: time.Unix(0, 0), Tries: 1, Next: time.Unix(1, 0)},
		{Service: "shop/web-2", Message: "in use", Since: time.Unix(0, 0), Tries: 1, Next: time.Unix(1, 0), InForce: true},
	}}
	if diff := cmp.Diff(want, o.refused.list("node-a1")); diff != "" {
		t.Errorf("the page /refused (-want +got):\n%s", diff)
	}
}

// TestManyRefusedServicesAreLoggedInABoundedNumberOfLines, and are all on the page.
func TestManyRefusedServicesAreLoggedInABoundedNumberOfLines(t *testing.T) {
	o, log := loggingObserver(t)
	var report proxy.Report
	for number := range 1000 {
		report.Refused = append(report.Refused, refusedService(number, "too long", 1))
	}
	o.reportRefused(report)
	if lines := strings.Count(log.String(), "\n"); lines != loggedRefusals+1 || !strings.Contains(log.String(), "more=900") {
		t.Errorf("%d lines in the log, want %d and one that counts the other 900", lines, loggedRefusals)
	}
	if services := o.refused.list("").Services; len(services) != 1000 {
		t.Errorf("%d Services on the page, want all", len(services))
	}
}
