package proxy_test

import (
	"errors"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// checked returns a Service that load balancers ask about on a port.
func checked(name, clusterIP string, number uint16) *model.Service {
	return nameService(name, clusterIP, local, func(service *model.Service) { service.HealthCheckNodePort = number })
}

func TestHealthChecksAreReportedWhenTheyChange(t *testing.T) {
	type checks = map[string]int // endpoints by Service
	unready := answeredBy("web", 1, 2)
	unready.Endpoints[0].Ready = false
	p := starting(&memoryKernel{})
	for _, step := range []struct {
		title  string
		change model.Change
		want   checks // nil: as before
	}{
		{"there is no Service", model.Change{}, checks{}},
		{"a Service without a health check", oneService(nameService("dns", "10.96.0.1", local), answeredBy("dns", 1)), nil},
		{"a Service with one", oneService(checked("web", "10.96.0.2", 32000), answeredBy("web", 1)), checks{"web": 1}},
		{"nothing happens", model.Change{}, nil},
		{"the same comes again", oneService(checked("web", "10.96.0.2", 32000), answeredBy("web", 1)), nil},
		{"an endpoint on this node", answers(answeredBy("web", 1, 2)), checks{"web": 2}},
		{"an endpoint elsewhere", answers(answeredBy("web", 1, 2, 11)), nil},
		{"one is not ready any more", answers(unready), checks{"web": 1}},
		{"all endpoints are gone", answers(answeredBy("web")), checks{"web": 0}},
		{"a second Service", oneService(checked("other", "10.96.0.3", 32001), answeredBy("other", 3)), checks{"web": 0, "other": 1}},
		{"the first wants no check any more", oneService(nameService("web", "10.96.0.2", local), nil), checks{"other": 1}},
		{"the second is deleted", without("other"), checks{}},
		{"a Service is deleted that had none", without("dns"), nil},
	} {
		p.Apply(step.change)
		report := mustSync(t, p)
		if (report.HealthChecks == nil) != (step.want == nil) {
			t.Errorf("%s: reported %v, want %v", step.title, report.HealthChecks, step.want)
		}
		got := checks{}
		for name, check := range report.HealthChecks {
			got[name.Name] = check.Endpoints[model.IPv4]
		}
		if diff := cmp.Diff(step.want, got); step.want != nil && diff != "" {
			t.Errorf("%s: health checks (-want +got):\n%s", step.title, diff)
		}
	}
}

func TestAnotherHealthCheckPortIsReported(t *testing.T) {
	p := starting(&memoryKernel{})
	p.Apply(oneService(checked("web", "10.96.0.2", 32000), answeredBy("web", 1)))
	mustSync(t, p)
	p.Apply(oneService(checked("web", "10.96.0.2", 32001), nil))
	name := model.ObjectName{Namespace: "default", Name: "web"}
	if got := mustSync(t, p).HealthChecks[name].Port; got != 32001 {
		t.Errorf("port %d, want 32001", got)
	}
}

// TestReportedHealthChecksAreNeverChanged: they are served by others, while the proxy goes on.
func TestReportedHealthChecksAreNeverChanged(t *testing.T) {
	p := starting(&memoryKernel{})
	var reported, kept []map[model.ObjectName]selection.HealthCheck
	for _, change := range []model.Change{
		oneService(checked("web", "10.96.0.2", 32000), answeredBy("web", 1)),
		answers(answeredBy("web", 1, 2)),
		oneService(checked("other", "10.96.0.3", 32001), answeredBy("other", 3)).Then(answers(answeredBy("web"))),
		without("web"),
		without("other"),
	} {
		p.Apply(change)
		checks := mustSync(t, p).HealthChecks
		copied := map[model.ObjectName]selection.HealthCheck{}
		for name, check := range checks {
			copied[name] = selection.HealthCheck{Port: check.Port, Endpoints: maps.Clone(check.Endpoints)}
		}
		reported, kept = append(reported, checks), append(kept, copied)
		p.Distrust()
		mustSync(t, p)
	}
	if diff := cmp.Diff(kept, reported); diff != "" {
		t.Errorf("health checks that were reported (-then +now):\n%s", diff)
	}
}

// TestHealthChecksOfASyncThatFailsAreReportedByTheNext, whether the kernel did what it was asked or not.
func TestHealthChecksOfASyncThatFailsAreReportedByTheNext(t *testing.T) {
	for name, after := range map[string]bool{"the kernel refuses": false, "the kernel does it, and fails": true} {
		t.Run(name, func(t *testing.T) {
			fails := false
			p := starting(&faultyKernel{&memoryKernel{}, func() (bool, bool) { return fails && !after, fails && after }})
			p.Apply(oneService(checked("web", "10.96.0.2", 32000), answeredBy("web", 1)))
			mustSync(t, p)
			fails = true
			p.Apply(answers(answeredBy("web", 1, 2)))
			if _, err := p.Sync(t.Context()); !errors.Is(err, errInjected) {
				t.Fatalf("error %v, want the injected one", err)
			}
			fails = false
			report := mustSync(t, p)
			if got := report.HealthChecks[model.ObjectName{Namespace: "default", Name: "web"}].Endpoints[model.IPv4]; got != 2 {
				t.Errorf("%d endpoints, want 2", got)
			}
		})
	}
}
