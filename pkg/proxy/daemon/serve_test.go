package daemon

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/status"
)

func TestARefusedObjectCountsOnceHoweverManyProblemsItHas(t *testing.T) {
	named := func(name string) model.ObjectName { return model.ObjectName{Namespace: "shop", Name: name} }
	problems := newProblems()
	all := []convert.Problem{
		{File: "a.yaml", Reason: "does not parse"},
		{File: "a.yaml", Reason: "does not parse (document at line 7)"},
		{File: "b.yaml", Kind: "Service", Name: named("web"), Field: "spec.ports[0].port"},
		{File: "b.yaml", Kind: "Service", Name: named("web"), Field: "spec.ports[1].port"},
		{File: "b.yaml", Kind: "Service", Name: named("api")},
		{File: "b.yaml", Kind: "Service", Line: 9},
		{File: "b.yaml", Kind: "EndpointSlice", Name: named("web-1")},
	}
	for _, problem := range append(all, all...) {
		problems.add(problem)
	}
	total, got := problems.counts()
	if diff := cmp.Diff(map[string]int{"File": 1, "Service": 3, "EndpointSlice": 1}, got); diff != "" || total != 5 {
		t.Errorf("%d objects (-want +got):\n%s", total, diff)
	}
	if sentences := problems.list(); len(sentences) != len(all) || !slices.IsSorted(sentences) {
		t.Errorf("the sentences are %q", sentences)
	}
	for number, problem := range append(all, all...) {
		problems.remove(problem)
		if total, _ := problems.counts(); number == 0 && total != 5 {
			t.Errorf("%d objects are left when one of the two problems of the first is gone", total)
		}
	}
	if total, got := problems.counts(); total+len(got)+len(problems.list()) > 0 {
		t.Errorf("%d objects are left, of the kinds %v", total, got)
	}
}

// TestWhatIsLoggedOfAnObjectIsBounded, however often it is changed; other objects have their own lines.
func TestWhatIsLoggedOfAnObjectIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		feed := newFeed("node-a", ruleset.Config{}, nil, slog.New(slog.NewTextHandler(&log, nil)), &status.Status{}, metrics.NewRecorder(), nil)
		named := func(name string) model.ObjectName { return model.ObjectName{Namespace: "shop", Name: name} }
		change := func(name string, number int) {
			var parts []string
			for part := range 30 {
				parts = append(parts, fmt.Sprintf("address %d of version %d", part, number))
			}
			feed.warn(model.Change{Services: map[model.ObjectName]*model.Service{named(name): {LeftOut: parts}}})
			problem := convert.Problem{Kind: "Service", Name: named(name), Reason: fmt.Sprint("version ", number)}
			feed.report(convert.Update{Refused: []convert.Problem{problem}})
			feed.report(convert.Update{PutRight: []convert.Problem{problem}})
		}
		lines := func(text string) int { return strings.Count(log.String(), text) }
		for number := range 1000 {
			change("web", number)
		}
		if got := lines("shop/web"); got != linesPerObject+1 {
			t.Errorf("%d lines are about the object that changes, want %d and one that says so", got, linesPerObject)
		}
		change("db", 1)
		if got := lines("shop/db"); got != 32 {
			t.Errorf("%d lines are about another object, want 32", got)
		}
		time.Sleep(logPeriod)
		change("web", 1)
		if got := lines("shop/web"); got != linesPerObject+1+32 {
			t.Errorf("a minute later %d lines are about the object, want %d", got, linesPerObject+1+32)
		}
	})
}

func TestASyncIsCountedByFamily(t *testing.T) {
	recorder := metrics.NewRecorder()
	o := &observer{
		stdout: io.Discard, log: slog.New(slog.NewTextHandler(io.Discard, nil)), status: &status.Status{}, recorder: recorder,
		checks: &healthChecks{wanted: make(chan wantedChecks, 1)},
	}
	o.Synced(proxy.Report{
		Ports:   map[model.Family]int{model.IPv4: 3, model.IPv6: 2},
		Added:   map[model.Family]int{model.IPv4: 7},
		Deleted: map[model.Family]int{model.IPv6: 5},

		Contested: 2,
	}, time.Unix(100, 0), time.Unix(101, 0))
	o.FlowsLookedAt(map[model.Family]conntrack.Pass{model.IPv6: {Ended: 11}}, errors.New("the table is busy"))
	page := httptest.NewRecorder()
	recorder.Handler().ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, line := range []string{
		`vicinity_service_ports{ip_family="IPv4"} 3`, `vicinity_service_ports{ip_family="IPv6"} 2`,
		`vicinity_nft_elements_written_total{ip_family="IPv4",operation="add"} 7`,
		`vicinity_nft_elements_written_total{ip_family="IPv6",operation="delete"} 5`,
		"vicinity_frontends_contested 2", `kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family="IPv6"} 11`,
	} {
		if !strings.Contains(page.Body.String(), line+"\n") {
			t.Errorf("/metrics lacks %q", line)
		}
	}
}

func TestAFailedSyncShowsInHealthUntilOneSucceeds(t *testing.T) {
	status := &status.Status{}
	o := &observer{
		stdout: io.Discard, log: slog.New(slog.NewTextHandler(io.Discard, nil)), status: status, recorder: metrics.NewRecorder(),
		checks: &healthChecks{wanted: make(chan wantedChecks, 1)},
	}
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	o.Failed(errors.New("no buffer space"), proxy.Report{}, start, start.Add(time.Second), time.Second)
	if verdict := status.Verdict(start.Add(time.Hour)); verdict.Healthy || verdict.Ready || verdict.LastError != "no buffer space" {
		t.Errorf("an hour after a failure: %+v, want it neither healthy nor ready", verdict)
	}
	o.Synced(proxy.Report{}, start.Add(2*time.Second), start.Add(3*time.Second))
	if verdict := status.Verdict(start.Add(time.Hour)); !verdict.Healthy || !verdict.Ready || verdict.LastError != "" {
		t.Errorf("after a success: %+v, want it healthy and ready", verdict)
	}
}
