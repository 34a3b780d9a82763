package syncer_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/servicefindings"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// moment returns the trigger time of an EndpointSlice, n seconds after a fixed time.
func moment(n int) time.Time { return time.Unix(1700000000+int64(n), 0) }

// stamped returns the change of a Service's slice to a number of endpoints, caused at moment(n); zero means no trigger
// time.
func stamped(name string, endpoints, n int) model.Change {
	slice := sliceOf(model.ObjectName{Namespace: "default", Name: name}, endpoints)
	if n > 0 {
		slice.TriggeredAt = moment(n)
	}
	return model.Change{Slices: map[model.ObjectName]*model.EndpointSlice{slice.Name: slice}}
}

func TestTriggersAreReportedByTheSyncThatAppliesTheirChanges(t *testing.T) {
	kernel := &scriptedKernel{}
	p := newProxy(kernel)
	p.Apply(manyServices(3, 2))
	deletion := model.Change{Slices: map[model.ObjectName]*model.EndpointSlice{{Namespace: "default", Name: "service-1"}: nil}}
	for _, step := range []struct {
		title   string
		changes []model.Change
		fails   bool
		want    []time.Time
	}{
		{"no slice has a trigger time", nil, false, nil},
		{"two slices change", []model.Change{stamped("service-0", 1, 1), stamped("service-1", 1, 2)}, false, []time.Time{moment(1), moment(2)}},
		{"the same versions arrive again", []model.Change{stamped("service-0", 1, 1), stamped("service-1", 1, 2)}, false, nil},
		{"a slice changes twice before the sync: the older time counts", []model.Change{
			stamped("service-0", 2, 3), stamped("service-0", 3, 4),
		}, false, []time.Time{moment(3)}},
		{"the kernel rejects a change", []model.Change{stamped("service-0", 4, 5)}, true, nil},
		{"it waited, even if it changes again", []model.Change{stamped("service-0", 5, 6)}, false, []time.Time{moment(5)}},
		{"a slice changes and is deleted", []model.Change{stamped("service-1", 2, 7), deletion}, false, nil},
		{"it is added again without a trigger time", []model.Change{stamped("service-1", 2, 0)}, false, nil},
	} {
		for _, change := range step.changes {
			p.Apply(change)
		}
		if step.fails {
			kernel.reject = rejectAll
			if report, err := p.Sync(t.Context()); err == nil || report.Triggered != nil {
				t.Errorf("%s: error %v, reported %v", step.title, err, report.Triggered)
			}
			kernel.reject = nil
			continue
		}
		got := mustSync(t, p).Triggered
		slices.SortFunc(got[model.IPv4], time.Time.Compare)
		if diff := cmp.Diff(step.want, got[model.IPv4]); diff != "" || len(got[model.IPv6]) > 0 {
			t.Errorf("%s: causes (-want +got):\n%s\nIPv6: %v", step.title, diff, got[model.IPv6])
		}
	}
}

// greedyServices returns Services that each claim a number of frontends of service-0 of manyServices.
func greedyServices(services, frontends int) model.Change {
	change := manyServices(1, 1)
	owner := change.Services[model.ObjectName{Namespace: "default", Name: "service-0"}]
	owner.Ports = nil
	for port := range frontends {
		owner.Ports = append(owner.Ports, model.ServicePort{Name: fmt.Sprint(port), Protocol: model.TCP, Port: uint16(1000 + port)})
	}
	for number := range services {
		name := model.ObjectName{Namespace: "greedy", Name: fmt.Sprintf("service-%03d", number)}
		change.Services[name] = &model.Service{
			Name: name, Ports: owner.Ports, ExternalIPs: owner.ClusterIPs,
			ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 97, byte(number >> 8), byte(number)})},
		}
	}
	return change
}

func TestServicesThatLoseAFrontendAreReportedWithTheOwner(t *testing.T) {
	var reported []servicefindings.ServiceFindings
	p := newProxy(&memoryKernel{}, servicefindings.NewCollector(func(found []servicefindings.ServiceFindings) { reported = found }))
	p.Apply(greedyServices(1, 2))
	owner, greedy := model.ObjectName{Namespace: "default", Name: "service-0"}, model.ObjectName{Namespace: "greedy", Name: "service-000"}
	lost := func(port uint16) model.Finding {
		return model.Finding{Code: model.FrontendConflict, Reason: fmt.Sprintf(
			"10.96.0.0:%d/TCP belongs to the Service default/service-0, whose ClusterIP it is, until that Service releases it.", port,
		)}.WithObject("Service", greedy)
	}
	want := []servicefindings.ServiceFindings{{Service: greedy, Findings: []model.Finding{lost(1000), lost(1001)}}}
	for _, step := range []struct {
		title  string
		change model.Change
		want   []servicefindings.ServiceFindings
	}{
		{"the first sync", model.Change{}, want},
		{"the owner releases the frontends", manyServices(2, 1), []servicefindings.ServiceFindings{{Service: greedy}}},
		{"another Service changes", resized(1), nil},
		{"both claim them again", greedyServices(1, 2), want},
		{"the owner is deleted", model.Change{Services: map[model.ObjectName]*model.Service{owner: nil}},
			[]servicefindings.ServiceFindings{{Service: greedy}}},
		{"it is added again", greedyServices(1, 2), want},
		{
			"the greedy one is deleted", model.Change{Services: map[model.ObjectName]*model.Service{greedy: nil}},
			[]servicefindings.ServiceFindings{{Service: greedy}},
		},
	} {
		reported = nil
		p.Apply(step.change)
		mustSync(t, p)
		if diff := cmp.Diff(step.want, reported); diff != "" {
			t.Errorf("%s: found (-want +got):\n%s", step.title, diff)
		}
	}
}

// TestReportedFindingsAreLimited, and a full sync reports the end of findings of deleted Services.
func TestReportedFindingsAreLimited(t *testing.T) {
	var reported []servicefindings.ServiceFindings
	p := newProxy(&memoryKernel{}, servicefindings.NewCollector(func(found []servicefindings.ServiceFindings) { reported = found }))
	all := greedyServices(servicefindings.MaxServices+20, selection.MaxFindings+5)
	p.Apply(all)
	report := mustSync(t, p)
	if len(reported) != servicefindings.MaxServices || report.Contested != selection.MaxFindings+5 {
		t.Errorf("%d Services with findings and %d contested frontends", len(reported), report.Contested)
	}
	for _, one := range reported {
		if len(one.Findings) < selection.MaxFindings || len(one.Findings) > 2*selection.MaxFindings {
			t.Errorf("%s: %d findings", one.Service, len(one.Findings))
		}
	}
	deletion := model.Change{Services: map[model.ObjectName]*model.Service{}}
	for name := range all.Services {
		deletion.Services[name] = nil
	}
	p.ForceFullSync()
	p.Apply(deletion)
	afterDeletion := mustSync(t, p)
	if len(reported) != servicefindings.MaxServices || !afterDeletion.Full {
		t.Errorf("%d Services reported after all were deleted, full %v; want %d", len(reported), afterDeletion.Full, servicefindings.MaxServices)
	}
	for _, one := range reported {
		if len(one.Findings) > 0 {
			t.Errorf("%s is deleted, but has findings: %v", one.Service, one.Findings)
		}
	}
}

func TestAFailedSyncReportsOnlyWhetherItWasFull(t *testing.T) {
	kernel := &scriptedKernel{}
	p := newProxy(kernel)
	p.Apply(manyServices(3, 2))
	mustSync(t, p)
	kernel.reject = rejectAll
	p.Apply(manyServices(3, 1))
	for _, want := range []syncer.Report{{}, {Full: true}, {Full: true}} {
		report, err := p.Sync(t.Context())
		if err == nil {
			t.Fatal("the sync succeeded")
		}
		if diff := cmp.Diff(want, report, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("report (-want +got):\n%s", diff)
		}
	}
}

func TestEachChangeIsQueuedOnceHoweverOftenItsSyncFails(t *testing.T) {
	withRunningProxy(t, func(t *testing.T, r *run) {
		r.reject(rejectAll)
		r.changes <- manyServices(3, 2)
		r.advance(100 * time.Millisecond)
		r.reject(nil)
		r.changes <- resized(1)
		r.advance(time.Minute)
		r.driftDetected <- struct{}{}
		r.advance(time.Minute)
		r.take()
		r.mutex.Lock()
		defer r.mutex.Unlock()
		want := []syncer.Changes{{Services: 3, EndpointSlices: 3}, {}, {EndpointSlices: 1}, {}}
		if diff := cmp.Diff(want, r.changesQueued); diff != "" {
			t.Errorf("changes queued (-want +got):\n%s", diff)
		}
	})
}
