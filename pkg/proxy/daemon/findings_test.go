package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/servicefindings"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
)

// newTestFindings returns empty findings, their log, and the status to which they report.
func newTestFindings() (*findings, *strings.Builder, *status.Status) {
	var log strings.Builder
	health := &status.Status{}
	c := &common{log: slog.New(slog.NewTextHandler(&log, nil)), status: health, recorder: metrics.NewRecorder()}
	return newFindings(c, eventReporter{}), &log, health
}

func shopName(name string) model.ObjectName { return model.ObjectName{Namespace: "shop", Name: name} }

// serviceFinding returns a finding about a Service.
func serviceFinding(name string, code model.FindingCode, reason string) model.Finding {
	return model.Finding{Code: code, Reason: reason}.WithObject("Service", shopName(name))
}

// TestAFindingIsReportedWhenItIsNewAndWhenItIsOver, for each code, and whatever other findings are reported in between.
func TestAFindingIsReportedWhenItIsNewAndWhenItIsOver(t *testing.T) {
	for _, code := range model.FindingCodes {
		all, log, health := newTestFindings()
		a, b := serviceFinding("a", code, "why"), serviceFinding("b", code, "why")
		for i, step := range []struct {
			found, over []model.Finding
			want        string // the lines, by level and object
			standing    int
		}{
			{[]model.Finding{b}, nil, "WARN b", 1},
			{[]model.Finding{b}, nil, "", 1},
			{[]model.Finding{a}, nil, "WARN a", 2},
			{nil, []model.Finding{b}, "INFO b", 1},
			{[]model.Finding{b}, []model.Finding{a}, "WARN b INFO a", 1},
			{nil, []model.Finding{a, b}, "INFO b", 0},
		} {
			log.Reset()
			all.change(step.found, step.over)
			if got := linesOf(log.String()); got != step.want {
				t.Errorf("%s, step %d: the log has %q, want %q:\n%s", code, i, got, step.want, log)
			}
			wantInvalid := 0
			if code == model.Invalid {
				wantInvalid = step.standing
			}
			if got, invalid := len(all.active()), health.Health(time.Now()).InvalidObjects; got != step.standing || invalid != wantInvalid {
				t.Errorf("%s, step %d: %d active findings and %d invalid objects, want %d and %d", code, i, got, invalid, step.standing, wantInvalid)
			}
			if withCode := len(all.active(string(code))); withCode != step.standing {
				t.Errorf("%s, step %d: %d active findings with this code, want %d", code, i, withCode, step.standing)
			}
		}
	}
}

// linesOf returns level and Service of each line of a log.
func linesOf(log string) string {
	var lines []string
	for line := range strings.Lines(log) {
		_, level, _ := strings.Cut(line, "level=")
		level, _, _ = strings.Cut(level, " ")
		_, object, _ := strings.Cut(line, "Service shop/")
		object, _, _ = strings.Cut(object, ":")
		lines = append(lines, level+" "+object)
	}
	return strings.Join(lines, " ")
}

func TestTheLogHasFindingsInFull(t *testing.T) {
	all, log, _ := newTestFindings()
	all.change([]model.Finding{
		{Kind: "Node", Name: model.ObjectName{Name: "node-b"}, Code: model.ValueIgnored, Field: "metadata.labels[a]", Reason: "no time"},
		{Kind: "EndpointSlice", Name: shopName("web-1"), Code: model.PartiallyIgnored, Field: "ports[1].port", Reason: "70000"},
		{Kind: "Service", Name: shopName("web"), Code: "ClientsIgnored", Field: "vicinity.dev/clients", Reason: "nobody"},
	}, nil)
	for _, want := range []string{
		`msg="an invalid value is ignored; the rest of the object is active" ` +
			`problem="Node node-b: metadata.labels[a]: no time; it counts as absent" ` +
			"code=ValueIgnored\n",
		`msg="a part of an object is ignored; the rest is served" ` +
			`problem="EndpointSlice shop/web-1: ports[1].port: 70000" code=PartiallyIgnored` + "\n",
		`msg="an annotation is ignored" problem="Service shop/web: vicinity.dev/clients: nobody" code=ClientsIgnored` + "\n",
	} {
		if got := strings.Count(log.String(), want); got != 1 {
			t.Errorf("logged %d times, want once: %s\n%s", got, want, log)
		}
	}
}

// TestFindingsOfAServiceAreReplaced checks that only later findings of the same source replace the findings of a
// Service.
func TestFindingsOfAServiceAreReplaced(t *testing.T) {
	all, log, _ := newTestFindings()
	one, two := serviceFinding("web", model.PartiallyIgnored, "one"), serviceFinding("web", model.FrontendConflict, "two")
	all.change([]model.Finding{serviceFinding("web", model.PartiallyIgnored, "of its manifest")}, nil)
	for i, step := range []struct {
		found    []model.Finding
		standing string
		lines    int
	}{
		{[]model.Finding{one}, "of its manifest, one", 1},
		{[]model.Finding{one}, "of its manifest, one", 0},
		{[]model.Finding{one, two}, "of its manifest, one, two", 1},
		{[]model.Finding{two}, "of its manifest, two", 1},
		{nil, "of its manifest", 1},
		{nil, "of its manifest", 0},
	} {
		log.Reset()
		all.replace(sourceDecisions, servicefindings.ServiceFindings{Service: shopName("web"), Findings: step.found})
		all.replace(sourceKernel, servicefindings.ServiceFindings{Service: shopName("web")},
			servicefindings.ServiceFindings{Service: shopName("db")})
		var sentences []string
		for _, standing := range all.active() {
			sentences = append(sentences, standing.Sentence)
		}
		if got := strings.Join(sentences, ", "); got != step.standing || strings.Count(log.String(), "\n") != step.lines {
			t.Errorf("step %d: active findings %s, want %s and %d log lines:\n%s", i, got, step.standing, step.lines, log)
		}
	}
}

func TestFindingsEndWhenTheirSourceOmitsThem(t *testing.T) {
	all, _, _ := newTestFindings()
	count := func() int { return len(all.active()) }
	all.replace(sourceKernel, servicefindings.ServiceFindings{Service: shopName("a"),
		Findings: []model.Finding{serviceFinding("a", model.FailedToProgram, "why")}})
	both := []model.Finding{serviceFinding("a", model.HealthCheckListenFailed, "x"), serviceFinding("b", model.HealthCheckListenFailed, "x")}
	for i, step := range []struct {
		found []model.Finding
		want  int
	}{{both, 3}, {both[1:], 2}, {nil, 1}, {both, 3}} {
		all.replaceAll(sourceHealthChecks, step.found)
		if got := count(); got != step.want {
			t.Errorf("step %d: %d active findings, want %d", i, got, step.want)
		}
	}
}

func TestAnInvalidObjectCountsOnceHoweverManyReasonsItHas(t *testing.T) {
	all, _, _ := newTestFindings()
	found := []model.Finding{
		{File: "a.yaml", Reason: "does not parse"},
		{File: "a.yaml", Reason: "does not parse (document at line 7)"},
		{File: "b.yaml", Kind: "Service", Name: shopName("web"), Field: "spec.ports[0].port"},
		{File: "b.yaml", Kind: "Service", Name: shopName("web"), Field: "spec.ports[1].port"},
		{File: "b.yaml", Kind: "Service", Name: shopName("api")},
		{File: "b.yaml", Kind: "Service", Line: 9},
		{File: "b.yaml", Kind: "EndpointSlice", Name: shopName("web-1")},
	}
	for i := range found {
		found[i].Code = model.Invalid
	}
	all.change(append(found, found...), nil)
	if len(all.byObject) != 5 {
		t.Errorf("%d objects, want 5", len(all.byObject))
	}
	if invalid, others := all.active("Invalid"), all.active("ValueIgnored"); len(invalid) != len(found) || len(others) > 0 {
		t.Errorf("invalid objects are %v, ignored values %v", invalid, others)
	}
	for number, finding := range append(found, found...) {
		all.change(nil, []model.Finding{finding})
		if number == 0 && len(all.byObject) != 5 {
			t.Errorf("%d objects remain after one of the first one's two reasons ended, want 5", len(all.byObject))
		}
	}
	if len(all.byObject)+len(all.active()) > 0 {
		t.Errorf("%d objects remain, want none", len(all.byObject))
	}
}

// TestLogLinesPerObjectAreLimited, however often it is changed; other objects have their own lines.
func TestLogLinesPerObjectAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, log, _ := newTestFindings()
		change := func(name string, number int) {
			var found []model.Finding
			for part := range 16 {
				found = append(found, serviceFinding(name, model.PartiallyIgnored, fmt.Sprintf("address %d of version %d", part, number)))
			}
			all.change(found, nil)
			all.change(nil, found)
		}
		lines := func(text string) int { return strings.Count(log.String(), text) }
		for number := range 1000 {
			change("web", number)
		}
		if got := lines("shop/web"); got != linesPerObject+1 {
			t.Errorf("%d lines are about the object that changes, want %d and one about the suppression", got, linesPerObject)
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

func rejectedService(number int, reason string, tries int) syncer.Rejected {
	return syncer.Rejected{
		Service: shopName(fmt.Sprintf("web-%d", number)), Err: errors.New(reason),
		Since: time.Unix(0, 0), Next: time.Unix(int64(tries), 0), Tries: tries, HasApplied: number%2 == 0,
	}
}

func TestARejectedServiceIsLoggedOnceForEachReason(t *testing.T) {
	all, log, _ := newTestFindings()
	o := &observer{findings: all}
	for _, step := range []struct {
		title  string
		report syncer.Report
		want   int // lines
	}{
		{"rejected", syncer.Report{Rejected: []syncer.Rejected{rejectedService(1, "too long", 1), rejectedService(2, "in use", 1)}}, 2},
		{"retried", syncer.Report{Rejected: []syncer.Rejected{rejectedService(1, "too long", 2)}}, 0},
		{"for another reason", syncer.Report{Rejected: []syncer.Rejected{rejectedService(1, "too many", 3)}}, 1},
		{"accepted", syncer.Report{NoLongerRejected: []model.ObjectName{shopName("web-1")}}, 1},
		{"nothing", syncer.Report{}, 0},
		{"rejected again", syncer.Report{Rejected: []syncer.Rejected{rejectedService(1, "too many", 1)}}, 1},
	} {
		log.Reset()
		o.reportFindings(step.report)
		if lines := strings.Count(log.String(), "\n"); lines != step.want {
			t.Errorf("%s: %d lines in the log, want %d:\n%s", step.title, lines, step.want, log)
		}
	}
	want := []explain.Rejection{
		{Service: "shop/web-1", Message: "too many", Since: time.Unix(0, 0), Tries: 1, Next: time.Unix(1, 0)},
		{Service: "shop/web-2", Message: "in use", Since: time.Unix(0, 0), Tries: 1, Next: time.Unix(1, 0), HasApplied: true},
	}
	var got []explain.Rejection
	for _, one := range all.active("FailedToProgram") {
		got = append(got, *one.Kernel)
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("the page /findings (-want +got):\n%s", diff)
	}
}

// TestLogLinesPerSyncAreLimited: the page /findings has the findings beyond the limit, too.
func TestLogLinesPerSyncAreLimited(t *testing.T) {
	all, log, _ := newTestFindings()
	o := &observer{findings: all}
	var report syncer.Report
	for number := range 1000 {
		report.Rejected = append(report.Rejected, rejectedService(number, "too long", 1))
	}
	o.reportFindings(report)
	if lines := strings.Count(log.String(), "\n"); lines != maxLoggedAtOnce+1 || !strings.Contains(log.String(), "more=900") {
		t.Errorf("%d lines in the log, want %d and one that counts the other 900", lines, maxLoggedAtOnce)
	}
	if standing := all.active(); len(standing) != 1000 {
		t.Errorf("%d findings on the page, want all", len(standing))
	}
	if !slices.IsSortedFunc(all.active(), func(a, b ActiveFinding) int { return cmp.Compare(a.Name, b.Name) }) {
		t.Error("the findings are not sorted")
	}
}
