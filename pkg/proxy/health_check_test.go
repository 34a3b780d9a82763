package proxy_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// checked returns a Service that load balancers ask about on a port.
func checked(name, clusterIP string, number uint16) *model.Service {
	return nameService(name, clusterIP, local, func(service *model.Service) { service.HealthCheckNodePort = number })
}

func TestHealthChecksFollowTheServices(t *testing.T) {
	type answered = map[string]int // endpoints by Service
	unready := answeredBy("web", 1, 2)
	unready.Endpoints[0].Ready = false
	read := &healthChecks{}
	p := starting(&memoryKernel{}, read)
	for _, step := range []struct {
		title   string
		change  model.Change
		changes bool
		want    answered
	}{
		{"there is no Service", model.Change{}, false, answered{}},
		{"a Service without a health check", oneService(nameService("dns", "10.96.0.1", local), answeredBy("dns", 1)), false, answered{}},
		{"a Service with one", oneService(checked("web", "10.96.0.2", 32000), answeredBy("web", 1)), true, answered{"web": 1}},
		{"nothing happens", model.Change{}, false, answered{"web": 1}},
		{"the same comes again", oneService(checked("web", "10.96.0.2", 32000), answeredBy("web", 1)), false, answered{"web": 1}},
		{"an endpoint on this node", answers(answeredBy("web", 1, 2)), true, answered{"web": 2}},
		{"an endpoint elsewhere", answers(answeredBy("web", 1, 2, 11)), false, answered{"web": 2}},
		{"one is not ready any more", answers(unready), true, answered{"web": 1}},
		{"all endpoints are gone", answers(answeredBy("web")), true, answered{"web": 0}},
		{
			"a second Service", oneService(checked("other", "10.96.0.3", 32001), answeredBy("other", 3)), true,
			answered{"web": 0, "other": 1},
		},
		{"the first wants no check any more", oneService(nameService("web", "10.96.0.2", local), nil), true, answered{"other": 1}},
		{"the second is deleted", without("other"), true, answered{}},
		{"a Service is deleted that had none", without("dns"), false, answered{}},
	} {
		p.Apply(step.change)
		mustSync(t, p)
		got := answered{}
		for name, check := range read.all {
			got[name.Name] = check.Endpoints[model.IPv4]
		}
		if diff := cmp.Diff(step.want, got); diff != "" || read.take() != step.changes {
			t.Errorf("%s: health checks (-want +got):\n%s", step.title, diff)
		}
	}
}

// TestHealthChecksOfASyncThatFailsAreReportedByTheNext, whether the kernel did what it was asked or not.
func TestHealthChecksOfASyncThatFailsAreReportedByTheNext(t *testing.T) {
	for name, after := range map[string]bool{"the kernel refuses": false, "the kernel does it, and fails": true} {
		t.Run(name, func(t *testing.T) {
			fails := false
			read := &healthChecks{}
			p := starting(&faultyKernel{&memoryKernel{}, func() (bool, bool) { return fails && !after, fails && after }}, read)
			p.Apply(oneService(checked("web", "10.96.0.2", 32000), answeredBy("web", 1)))
			mustSync(t, p)
			fails = true
			p.Apply(answers(answeredBy("web", 1, 2)))
			if _, err := p.Sync(t.Context()); !errors.Is(err, errInjected) {
				t.Fatalf("error %v, want the injected one", err)
			}
			fails = false
			mustSync(t, p)
			if got := read.all[model.ObjectName{Namespace: "default", Name: "web"}].Endpoints[model.IPv4]; got != 2 {
				t.Errorf("%d endpoints, want 2", got)
			}
		})
	}
}
