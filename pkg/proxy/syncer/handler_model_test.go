package syncer_test

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// handlerModel records the calls of a handler. It keeps the owner of each frontend in two ways, which reveal different
// errors: by Service, where a frontend may have two owners, and by frontend, where the last decision wins.
type handlerModel struct {
	t             testing.TB
	byService     map[model.ObjectName]map[model.Frontend]string // with the endpoints that were chosen
	byFrontend    map[model.Frontend]model.ObjectName
	lostFrontends int // how often a Service lost a frontend and stayed
	counts        metrics.PortCounts
	checks        healthChecks
	sync          selection.SyncState
	counter       *metrics.PortCounter
}

func newHandlerModel(t testing.TB) *handlerModel {
	m := &handlerModel{
		t: t, byService: map[model.ObjectName]map[model.Frontend]string{}, byFrontend: map[model.Frontend]model.ObjectName{},
	}
	m.counter = metrics.NewPortCounter(func(now metrics.PortCounts) { m.counts = now })
	return m
}

// derivedData is the derived data of each handler: frontends with endpoints, counts and health checks.
type derivedData struct {
	frontends       map[model.Frontend]string
	counts, checked any
}

func (m *handlerModel) Derive(decisions []selection.Decision) any {
	frontends := map[model.Frontend]string{}
	for _, decision := range decisions {
		var chosen []netip.AddrPort
		choice, _ := decision.Selection.ClusterIP()
		for i := range choice.Endpoints {
			chosen = append(chosen, choice.Endpoints[i].Addr)
		}
		for _, owned := range decision.Frontends {
			frontends[owned.Frontend] = fmt.Sprint(len(chosen), chosen[:min(len(chosen), 20)])
		}
	}
	return derivedData{frontends, m.counter.Derive(decisions), m.checks.Derive(decisions)}
}

func (m *handlerModel) OnApplied(service model.ObjectName, derived any) {
	for frontend := range m.byService[service] {
		m.remove(service, frontend)
	}
	delete(m.byService, service)
	all, _ := derived.(derivedData)
	for frontend := range all.frontends {
		m.byFrontend[frontend] = service
	}
	if len(all.frontends) > 0 {
		m.byService[service] = maps.Clone(all.frontends)
	}
	m.counter.OnApplied(service, all.counts)
	m.checks.OnApplied(service, all.checked)
}

func (m *handlerModel) OnFrontendsLost(service model.ObjectName, frontends []model.Frontend) {
	for _, frontend := range frontends {
		if _, owns := m.byService[service][frontend]; owns {
			m.lostFrontends++
			m.remove(service, frontend)
			delete(m.byService[service], frontend)
		}
	}
}

func (m *handlerModel) remove(service model.ObjectName, frontend model.Frontend) {
	if m.byFrontend[frontend] == service {
		delete(m.byFrontend, frontend)
	}
}

// OnSynced checks that no frontend has two owners.
func (m *handlerModel) OnSynced(sync selection.SyncState) {
	m.sync = sync
	m.counter.OnSynced(sync)
	all := map[model.Frontend]model.ObjectName{}
	for service, frontends := range m.byService {
		for frontend := range frontends {
			if other, isClaimed := all[frontend]; isClaimed {
				m.t.Errorf("%s belongs to %s and to %s", frontend, service, other)
			}
			all[frontend] = service
		}
	}
	if diff := cmp.Diff(all, m.byFrontend, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		m.t.Errorf("owners (-by Service +by frontend):\n%s", diff)
	}
}

// comparableState returns the state that is compared with a fresh start.
func (m *handlerModel) comparableState() any {
	maps.DeleteFunc(m.counts.Reasons, func(_ metrics.PortReason, count int) bool { return count == 0 })
	for service, frontends := range m.byService {
		if len(frontends) == 0 {
			delete(m.byService, service)
		}
	}
	return struct {
		ByService map[model.ObjectName]map[model.Frontend]string
		Reasons   map[metrics.PortReason]int
		Checks    map[model.ObjectName]selection.HealthCheck
		Sync      selection.SyncState
	}{m.byService, m.counts.Reasons, m.checks.all, m.sync}
}

// checkOwners checks the owners against the tables, whose elements name them in comments. While a Service waits, or
// after a failure, the tables may have more.
func (m *handlerModel) checkOwners(kernel *memoryKernel, mayHaveMore bool) {
	m.t.Helper()
	got, want := map[model.Frontend]string{}, map[model.Frontend]string{}
	for frontend, service := range m.byFrontend {
		got[frontend] = service.String()
	}
	for _, family := range model.Families {
		for _, set := range []ruleset.Set{ruleset.Services, ruleset.NodePorts} {
			for _, element := range elementsIfExists(kernel, family, set) {
				owner, _, _ := strings.Cut(element.Comment, ":")
				frontend := ruleset.FrontendOf(family, element)
				if _, isKnown := got[frontend]; isKnown || !mayHaveMore {
					want[frontend] = owner
				}
			}
		}
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		m.t.Errorf("owners (-tables +handler):\n%s", diff)
	}
}
