package explain_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
)

// measuredCluster returns a cluster with one Service, which has two endpoints in each of two zones and the setting "measured".
func measuredCluster(clients ...string) *model.Cluster {
	service := web()
	service.Topology = policy.Topology{
		Keys: []policy.Key{policy.Zone, policy.AnyNode}, MaxLoad: 120, Clients: clients, Measured: true,
	}
	slice := webSlice()
	cluster, change := model.NewCluster("node-a"), model.Change{AllNodes: new(true), Nodes: map[string]*model.Node{}}
	for _, zone := range []string{"a", "b"} {
		name := "node-" + zone
		change.Nodes[name] = &model.Node{Name: name, Labels: map[string]string{string(policy.Zone): "zone-" + zone}}
		for i := range 2 {
			slice.Endpoints = append(slice.Endpoints, endpoint(fmt.Sprintf("10.244.%d.%d", zone[0], i), name, true))
		}
	}
	change.Services = map[model.ObjectName]*model.Service{service.Name: service}
	change.Slices = map[model.ObjectName]*model.EndpointSlice{slice.Name: slice}
	for name, ready := range map[string]int{"one": 1, "three": 3} {
		clientName := model.ObjectName{Namespace: "default", Name: name}
		client := &model.EndpointSlice{Name: clientName, Service: clientName, Family: model.IPv4}
		for i := range ready {
			client.Endpoints = append(client.Endpoints, endpoint(fmt.Sprintf("10.245.%d.%d", ready, i), "node-a", true))
		}
		change.Slices[clientName] = client
	}
	cluster.Apply(change)
	return cluster
}

// TestLoadReportsTheDemandSource: measured, with the effect of default demand; or default, and why in spite of the
// setting "measured".
func TestLoadReportsTheDemandSource(t *testing.T) {
	demands := map[model.ObjectName]*model.Demand{web().Name: {
		Zones:      map[string]uint32{"zone-a": 100_000, "zone-b": 900_000},
		ObservedAt: time.Date(2026, 11, 27, 14, 2, 3, 0, time.UTC), NodesReporting: 198, NodesTotal: 200, ConnectionsPerMinute: 30_012,
	}}
	const measured = "Demand was measured at 2026-11-27 14:02 UTC, 30012 connections per minute, with reports from 198 of 200 nodes: " +
		"zone-b 90 %, zone-a 10 %."
	const perNode = " Each Node counts as one client, unless its labels say otherwise."
	for name, test := range map[string]struct {
		state           model.DemandState
		demands         map[model.ObjectName]*model.Demand
		clients         []string
		source          string
		demand, assumed string
	}{
		"measured": {model.DemandActive, demands, nil, "measured", measured,
			"If each Node had the same demand, or that of its labels, the demand of zones would be zone-b 50 %, zone-a 50 %: planned with it, " +
				"10.244.98.0:8080 would get 1.80 times the mean."},
		"measured, clients are named": {model.DemandActive, demands, []string{"default/three"}, "measured", measured,
			"If each ready endpoint of default/three had the same demand, the demand of zones would be zone-b 0 %, zone-a 100 %: planned with " +
				"it, 10.244.98.0:8080 would get 1.88 times the mean."},
		"measured, one client is ready": {model.DemandActive, demands, []string{"default/one"}, "measured", measured,
			"If the one ready endpoint of default/one were the only client, the demand of zones would be zone-b 0 %, zone-a 100 %: planned " +
				"with it, 10.244.98.0:8080 would get 1.88 times the mean."},
		"measured, no client is ready": {model.DemandActive, demands, []string{"default/none"}, "measured", measured,
			"No endpoint of default/none is ready on a Node; if each Node had the same demand, the demand of zones would be zone-b 50 %, " +
				"zone-a 50 %: planned with it, 10.244.98.0:8080 would get 1.80 times the mean."},
		"no demand":           {model.DemandActive, nil, nil, "labels", string(v1alpha1.NoUsableDemand) + perNode, ""},
		"stale":               {model.DemandStale, demands, nil, "labels", string(v1alpha1.DemandLeaseNotRenewed) + perNode, ""},
		"no publisher":        {model.DemandUnavailable, nil, nil, "labels", string(v1alpha1.DemandNotPublished) + perNode, ""},
		"demand was not read": {model.DemandUnknown, nil, nil, "labels", string(v1alpha1.DemandUnknown) + perNode, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := measuredCluster(test.clients...)
			cluster.Apply(model.Change{Demands: test.demands, DemandState: &test.state})
			port := onlyPort(t, cluster)
			load := port.Load
			if load == nil || load.Demand != test.demand || load.Assumed != test.assumed || load.DemandSource != test.source {
				t.Fatalf("load %+v, want the sentences\n%s\n%s", load, test.demand, test.assumed)
			}
			isMeasured := test.source == "measured"
			if (load.Measured != nil) != isMeasured || (load.BusiestIfAssumed >= 1.8) != isMeasured {
				t.Errorf("Measured is %+v and BusiestIfAssumed %f, but both are set only for measured demand", load.Measured, load.BusiestIfAssumed)
			}
			if isMeasured && (load.Measured.Nodes != 200 || load.Measured.Zones["zone-a"] != 0.1) {
				t.Errorf("Measured is %+v, want 200 nodes, and a share of 0.1 for zone-a", load.Measured)
			}
			var page strings.Builder
			if err := explain.NewStream(&page, "text").Write([]explain.PortReport{port}); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(page.String(), test.demand+"\n") || !strings.Contains(page.String(), test.assumed) {
				t.Errorf("the text lacks the sentences about demand:\n%s", page.String())
			}
		})
	}
}

// TestLoadReportsOpenConnectionsAndAssumedZones checks the details of a measurement.
func TestLoadReportsOpenConnectionsAndAssumedZones(t *testing.T) {
	cluster, active := measuredCluster(), model.DemandActive
	cluster.Apply(model.Change{DemandState: &active, Demands: map[model.ObjectName]*model.Demand{web().Name: {
		Zones: map[string]uint32{"zone-a": 100_000, "zone-b": 900_000}, Open: map[string]uint32{"zone-a": 700_000, "zone-b": 300_000},
		AssumedZones: []string{"", "zone-a"}, NodesTotal: 3,
	}}})
	load := onlyPort(t, cluster).Load
	const want = "zone-b 90 %, zone-a 10 %. Open connections: zone-a 70 %, zone-b 30 %. Zones with a proxy that never reported count as " +
		"assumed: no zone, zone-a."
	if !strings.HasSuffix(load.Demand, want) {
		t.Errorf("the demand is %q, want the end %q", load.Demand, want)
	}
	if load.Measured.OpenConnections["zone-a"] != 0.7 || len(load.Measured.AssumedZones) != 2 || load.WaitingSince != nil {
		t.Errorf("the measurement is %+v, waiting since %v", load.Measured, load.WaitingSince)
	}
}

// TestLoadReportsWaitingMeasurements checks Services that the publisher's Lease lists, and others.
func TestLoadReportsWaitingMeasurements(t *testing.T) {
	since := time.Date(2026, 11, 27, 14, 2, 3, 0, time.UTC)
	listed := map[model.ObjectName]time.Time{web().Name: since}
	other := map[model.ObjectName]time.Time{{Namespace: "shop", Name: "db"}: since}
	const certain, perhaps = " A newer measurement has been waiting since 2026-11-27 14:02 UTC: ", " A newer measurement may be waiting: "
	for name, c := range map[string]struct {
		backlog model.DemandBacklog
		want    string
	}{
		"listed":            {model.DemandBacklog{Waiting: 1, Since: listed}, certain + "1 ServiceDemand waits for the publisher's budget."},
		"listed among many": {model.DemandBacklog{Waiting: 40, Since: listed}, certain + "40 ServiceDemands wait for the publisher's budget."},
		"not listed":        {model.DemandBacklog{Waiting: 40, Since: other}, perhaps + "40 ServiceDemands wait for the publisher's budget."},
		"another one waits": {model.DemandBacklog{Waiting: 1, Since: other}, ""},
		"none waits":        {model.DemandBacklog{}, ""},
	} {
		for _, demands := range []map[model.ObjectName]*model.Demand{{web().Name: {Zones: map[string]uint32{"zone-a": 1}}}, nil} {
			cluster, active := measuredCluster(), model.DemandActive
			cluster.Apply(model.Change{DemandState: &active, Demands: demands, DemandBacklog: &c.backlog})
			load := onlyPort(t, cluster).Load
			_, waiting, _ := strings.Cut(load.Demand, " A newer")
			if waiting != "" {
				waiting = " A newer" + waiting
			}
			if waiting != c.want || (load.WaitingSince != nil) != strings.HasPrefix(c.want, certain) {
				t.Errorf("%s: the demand is %q, waiting since %v; want %q", name, load.Demand, load.WaitingSince, c.want)
			}
			if load.WaitingSince != nil && !load.WaitingSince.Equal(since) {
				t.Errorf("%s: waiting since %v, want %v", name, load.WaitingSince, since)
			}
		}
	}
}
