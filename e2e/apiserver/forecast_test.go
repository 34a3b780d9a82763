package apiserver_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/forecast"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// userKubeconfig returns the kubeconfig of a user who may list what a forecast needs.
func userKubeconfig(t *testing.T, name string) (kubeconfig string) {
	t.Helper()
	list := func(group string, resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: []string{"list"}, APIGroups: []string{group}, Resources: resources}
	}
	return site.Kubeconfig(t, api.User(t, name, list("", "services", "nodes"), list("discovery.k8s.io", "endpointslices"),
		list("networking.k8s.io", "servicecidrs"), list(v1alpha1.SchemeGroupVersion.Group, v1alpha1.ServiceDemandResource)))
}

// run runs a command with a user's kubeconfig and returns its output.
func (p *fakePublisher) run(kubeconfig string, arguments ...string) (stdout, stderr string) {
	p.t.Helper()
	command := exec.CommandContext(p.t.Context(), site.Program(p.t, "proxy"), append(arguments, "--kubeconfig", kubeconfig)...)
	var out, errText strings.Builder
	command.Stdout, command.Stderr = &out, &errText
	if err := command.Run(); err != nil {
		p.t.Fatalf("%q: %v\n%s", arguments, err, errText.String())
	}
	return out.String(), errText.String()
}

// TestCommandsPlanWithMeasuredDemandLikeProxies checks that forecast, explain and render of a cluster plan with
// measured demand while the Lease is current. To check that, they need the right to get that one Lease; without it they
// assume that it is current.
func TestCommandsPlanWithMeasuredDemandLikeProxies(t *testing.T) {
	p := newPublication(t)
	self := p.node("self", zoneLabel+"=zone-a")
	p.node("other", zoneLabel+"=zone-b")
	p.service("web", measured)
	p.slice("web-1", "web", "10.0.0.1")
	p.writeDemand("web", 900_000)
	web := p.name("web").String()
	withoutLease, withLease := userKubeconfig(t, "stranger"), userKubeconfig(t, "reader")
	api.Grant(t, "reader", rbacv1.PolicyRule{
		Verbs: []string{"get"}, APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
		ResourceNames: []string{v1alpha1.DemandLeaseName},
	})
	for _, step := range []struct {
		desc       string
		prepare    func()
		kubeconfig string
		want       string // the source of the demand
		text       string // empty: no text about the Lease
	}{
		{"the Lease is current", func() {}, withLease, "measured", ""},
		{"the Lease is forbidden", func() {}, withoutLease, "measured", ""},
		{"the Lease is expired", func() { p.renewLease(time.Now().Add(-2 * time.Hour)) }, withLease, "labels",
			string(v1alpha1.DemandLeaseNotRenewed)},
		{"there is no Lease", p.deleteLease, withLease, "labels", string(v1alpha1.DemandNotPublished)},
	} {
		step.prepare()
		texts := map[string]string{}
		stdout, _ := p.run(step.kubeconfig, "forecast", web, "-o", "json")
		var report forecast.Report
		must.Succeed(t, json.Unmarshal([]byte(stdout), &report))
		service := &report.Services[0]
		if service.DemandSource != step.want || service.Projections[0].PlannedWith != step.want {
			t.Errorf("%s: forecast: demand from %q, planned with %q, want %q for both", step.desc, service.DemandSource,
				service.Projections[0].PlannedWith, step.want)
		}
		texts["forecast"] = strings.Join(report.Notes, "\n")

		stdout, texts["explain"] = p.run(step.kubeconfig, "explain", web, "--node", self, "--node-topology-source", "nodes", "-o", "json")
		var ports []explain.PortReport
		must.Succeed(t, json.Unmarshal([]byte(stdout), &ports))
		if ports[0].Load == nil || ports[0].Load.DemandSource != step.want {
			t.Errorf("%s: explain reports the load %+v, want demand from %q", step.desc, ports[0].Load, step.want)
		}
		_, texts["render"] = p.run(step.kubeconfig, "render", "--node", self)
		for command, text := range texts {
			if !strings.Contains(text, step.text) || strings.Contains(text, "Lease") != (step.text != "") {
				t.Errorf("%s: %s prints %q", step.desc, command, text)
			}
		}
	}
}
