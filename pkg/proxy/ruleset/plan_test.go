package ruleset_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// planCase is one change of a running table: its operations, in their order, and those of the cleanup after it.
type planCase struct {
	have, want    []ruleset.Service
	plan, cleanup []string
}

func checkPlans(t *testing.T, tests map[string]planCase) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := start(t, test.have...)
			plan := r.change(t, test.want...)
			if diff := cmp.Diff(test.plan, planned(plan)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.cleanup, r.cleanUp(t)); diff != "" {
				t.Errorf("cleanup (-want +got):\n%s", diff)
			}
			if again := planned(r.plan(test.want...)); again != nil {
				t.Errorf("a second plan is not empty: %v", again)
			}
		})
	}
}

func services(list ...ruleset.Service) []ruleset.Service { return list }

// withPortName gives a port a name.
func withPortName(port ruleset.Port, name string) ruleset.Port {
	port.ID.Port = name
	return port
}

// many returns the given number of endpoints.
func many(count int) []string {
	var addrs []string
	for number := range count {
		addrs = append(addrs, fmt.Sprintf("10.244.7.%d:8080", number+1))
	}
	return addrs
}

// formatAddr is an endpoint as operations write it.
func formatAddr(endpoint string) string { return strings.ReplaceAll(endpoint, ":", " ") }

func TestPlansOfEndpoints(t *testing.T) {
	web := func(endpoints ...string) ruleset.Service { return serviceOf(portOf("web", "10.96.0.1", endpoints...)) }
	db := func(endpoints ...string) ruleset.Service { return serviceOf(portOf("db", "10.96.0.2", endpoints...)) }
	const frontend, other = "10.96.0.1 80", "10.96.0.2 80"
	const preallocated = ruleset.PreallocatedSlots // that add nothing of their own
	slot := func(number int) string {
		return fmt.Sprintf("%s slot/%d => %s", frontend, number, formatAddr(many(number + 1)[number]))
	}
	var slots []string
	for number := range preallocated + 1 {
		slots = append(slots, slot(number))
	}
	checkPlans(t, map[string]planCase{
		"nothing changes": {have: services(web(first)), want: services(web(first))},
		"a new Service: only its elements": {want: services(web(first, second)), plan: []string{
			"+ services: " + frontend + " => class/2",
			"+ endpoints: " + frontend + " slot/0 => 10.244.1.1 8080, " + frontend + " slot/1 => 10.244.2.2 8080",
			"+ cluster-ips: 10.96.0.1",
		}},
		"a new Service of a new size: its chain before its dispatch entry": {
			want: services(web(many(preallocated + 1)...)), plan: []string{
				"+ chain lb-33", "0 chain lb-33", "+ rules of lb-33",
				"+ dispatch: class/33 => jump lb-33",
				"+ services: " + frontend + " => class/33",
				"+ endpoints: " + strings.Join(sorted(slots...), ", "),
				"+ cluster-ips: 10.96.0.1",
			},
		},
		"a new Service of an existing size: neither chain nor dispatch entry": {
			have: services(db(many(preallocated + 1)...)), want: services(web(many(preallocated + 1)...)), plan: []string{
				"+ services: " + frontend + " => class/33",
				"+ endpoints: " + strings.Join(sorted(slots...), ", "),
				"+ cluster-ips: 10.96.0.1",
			},
		},
		"an endpoint is replaced: only its slot": {have: services(web(first, second)), want: services(web(third, second)), plan: []string{
			"- endpoints: " + frontend + " slot/0 => 10.244.1.1 8080",
			"+ endpoints: " + frontend + " slot/0 => 10.244.3.3 9090",
		}},
		"the port has another name: only its comment": {
			have: services(web(first)), want: services(serviceOf(withPortName(portOf("web", "10.96.0.1", first), "https"))), plan: []string{
				"- services: " + frontend + " => class/1", "+ services: " + frontend + " => class/1",
			},
		},
		"endpoints in another order": {have: services(web(first, second)), want: services(web(second, first))},
		"one endpoint more: another class, which exists": {
			have: services(web(first)), want: services(web(first, second)), plan: []string{
				"- services: " + frontend + " => class/1",
				"+ services: " + frontend + " => class/2",
				"+ endpoints: " + frontend + " slot/1 => 10.244.2.2 8080",
			},
		},
		"one endpoint more than preallocated: a new class": {
			have: services(web(many(preallocated)...)), want: services(web(many(preallocated + 1)...)), plan: []string{
				"+ chain lb-33", "0 chain lb-33", "+ rules of lb-33",
				"+ dispatch: class/33 => jump lb-33",
				"- services: " + frontend + " => class/32",
				"+ services: " + frontend + " => class/33",
				"+ endpoints: " + slot(preallocated),
			},
		},
		"another endpoint more: the cleanup deletes the unused chain": {
			have: services(web(many(preallocated + 1)...)), want: services(web(many(preallocated + 2)...)), plan: []string{
				"+ chain lb-34", "0 chain lb-34", "+ rules of lb-34",
				"+ dispatch: class/34 => jump lb-34",
				"- services: " + frontend + " => class/33",
				"+ services: " + frontend + " => class/34",
				"+ endpoints: " + slot(preallocated+1),
			},
			cleanup: []string{"- dispatch: class/33 => jump lb-33", "0 chain lb-33", "- chain lb-33"},
		},
		"another endpoint more, while another Service uses the old chain": {
			have: services(web(many(preallocated+1)...), db(many(preallocated+1)...)), want: services(web(many(preallocated + 2)...)),
			plan: []string{
				"+ chain lb-34", "0 chain lb-34", "+ rules of lb-34",
				"+ dispatch: class/34 => jump lb-34",
				"- services: " + frontend + " => class/33",
				"+ services: " + frontend + " => class/34",
				"+ endpoints: " + slot(preallocated+1),
			},
		},
		"two Services swap classes in one plan": {
			have: services(web(first), db(third, second)), want: services(web(first, second), db(third)),
			plan: []string{
				"- services: " + frontend + " => class/1, " + other + " => class/2",
				"+ services: " + frontend + " => class/2, " + other + " => class/1",
				"+ endpoints: " + frontend + " slot/1 => 10.244.2.2 8080",
			},
			cleanup: []string{"- endpoints: " + other + " slot/1 => 10.244.2.2 8080"},
		},
		"the last endpoint is removed: connections are refused": {have: services(web(first)), want: services(web()), plan: []string{
			"- services: " + frontend + " => class/1",
			"+ services: " + frontend + " => refuse",
		}, cleanup: []string{"- endpoints: " + frontend + " slot/0 => 10.244.1.1 8080"}},
		"the Service is deleted: everything that it owns": {have: services(web(first), db()), want: services(emptyService("web")), plan: []string{
			"- services: " + frontend + " => class/1",
			"- cluster-ips: 10.96.0.1",
		}, cleanup: []string{"- endpoints: " + frontend + " slot/0 => 10.244.1.1 8080"}},
		"an unknown Service is deleted": {have: services(web(first)), want: services(emptyService("ghost"))},
		"both families, IPv4 first": {have: services(serviceOf(portOf("web", "10.96.0.1"), portOf("web", "fd00:96::1"))),
			want: services(emptyService("web")), plan: []string{
				"- services: " + frontend + " => refuse", "- cluster-ips: 10.96.0.1",
				"ip6 - services: fd00:96::1 80 => refuse", "ip6 - cluster-ips: fd00:96::1",
			},
		},
	})
}

func TestAPlanThatIsNotAcceptedChangesNothing(t *testing.T) {
	have := services(
		serviceOf(local(sticky(portOf("web", "10.96.0.1", first, second), time.Hour), 1), portOf("web", "fd00:96::1")),
		serviceOf(portOf("db", "10.96.0.2", third)),
	)
	for name, want := range map[string][]ruleset.Service{
		"Services are deleted": services(emptyService("web"), emptyService("db")),
		"endpoints, affinity and families": services(
			serviceOf(portOf("web", "10.96.0.1", second)), serviceOf(portOf("db", "fd00:96::2", "[fd00:244::3]:9090"))),
		"Services swap frontends": services(
			serviceOf(portOf("web", "10.96.0.2", third)), serviceOf(portOf("db", "10.96.0.1", first, second))),
		"a Service is added": services(serviceOf(sticky(portOf("new", "10.96.0.9", first), time.Hour))),
	} {
		t.Run(name, func(t *testing.T) {
			untouched, ready := start(t, have...), start(t, have...)
			once := planned(ready.plan(want...))
			if !ready.mirror.Equal(untouched.mirror) {
				t.Error("the mirror changed before the plan was accepted")
			}
			if diff := cmp.Diff(once, planned(ready.plan(want...))); diff != "" {
				t.Errorf("a second plan differs from the first (-first +second):\n%s", diff)
			}
			ready.change(t, want...)
			if ready.mirror.Equal(untouched.mirror) {
				t.Error("the mirror did not change after the plan was accepted")
			}
		})
	}
}

// TestAPlanWritesToNothingItWasGiven, although it assigns slots in another order.
func TestAPlanWritesToNothingItWasGiven(t *testing.T) {
	given := func() []ruleset.Service { return services(serviceOf(portOf("web", "10.96.0.1", second, third, first))) }
	r, wanted := start(t, serviceOf(portOf("web", "10.96.0.1", first, second))), given()
	plan := r.change(t, wanted...)
	if diff := cmp.Diff(given(), wanted, comparePorts); diff != "" {
		t.Errorf("the argument changed (-before +after):\n%s", diff)
	}
	if got := r.mirror.Service(serviceName("web")).Ports[0].Cluster; got[0].String() != first || plan.Services() != 1 {
		t.Errorf("a plan of %d Services assigned the slots %v, want one Service whose first slot stays", plan.Services(), got)
	}
}

func TestTheMirrorCountsWhatIsApplied(t *testing.T) {
	r := start(t, serviceOf(portOf("web", "10.96.0.1", first), portOf("web", "fd00:96::1")), serviceOf(portOf("db", "10.96.0.2")))
	check := func(when string, services, ipv4, ipv6 int) {
		t.Helper()
		m := r.mirror
		if m.Services() != services || m.Ports(model.IPv4) != ipv4 || m.Ports(model.IPv6) != ipv6 {
			t.Errorf("%s: %d Services with %d IPv4 and %d IPv6 ports, want %d, %d and %d",
				when, m.Services(), m.Ports(model.IPv4), m.Ports(model.IPv6), services, ipv4, ipv6)
		}
	}
	check("at the start", 2, 2, 1)
	r.change(t, serviceOf(portOf("web", "10.96.0.1")))
	check("after a port was removed", 2, 2, 0)
	r.change(t, emptyService("db"))
	check("after a Service was deleted", 1, 1, 0)
	if got := r.mirror.Service(serviceName("db")); len(got.Ports) > 0 {
		t.Errorf("the deleted Service owns %+v", got)
	}
	if got := r.mirror.Service(serviceName("web")); len(got.Ports) != 1 || got.Ports[0].Frontends[0].Class != ruleset.RefuseClass {
		t.Errorf("the changed Service owns %+v", got)
	}
}

// TestElementsAddedAgainAreNotCleanedUp: the mirror equals that of a fresh start.
func TestElementsAddedAgainAreNotCleanedUp(t *testing.T) {
	const third = "10.244.3.3:8080"
	web := func(endpoints ...string) ruleset.Service { return serviceOf(portOf("web", "10.96.0.1", endpoints...)) }
	r := start(t, web(first, second, third))
	r.change(t, web(first, second))
	r.change(t, web(first, second, third))
	if !r.mirror.Equal(start(t, web(first, second, third)).mirror) {
		t.Error("something is left to clean up")
	}
}
