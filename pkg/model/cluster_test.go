package model

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

func named(name string) ObjectName { return ObjectName{Namespace: "default", Name: name} }

// serviceNamed returns a Service with the earliest creation time and the given topology keys.
func serviceNamed(name string, keys ...policy.Key) *Service {
	return &Service{Name: named(name), Created: time.Unix(0, 0), Topology: policy.Topology{Keys: keys}}
}

func sliceFor(name, service string) *EndpointSlice {
	return &EndpointSlice{Name: named(name), Service: named(service)}
}

// withEndpointsOn adds endpoints on some nodes, optionally with a zone in the slice: "node-2 node-3/a".
func (s *EndpointSlice) withEndpointsOn(locations string) *EndpointSlice {
	for location := range strings.FieldsSeq(locations) {
		node, zone, _ := strings.Cut(location, "/")
		s.Endpoints = append(s.Endpoints, SliceEndpoint{Endpoint: Endpoint{Node: node, Zone: zone}})
	}
	return s
}

func nodeWith(name string, labels ...string) *Node {
	node := &Node{Name: name, Labels: map[string]string{}}
	for _, label := range labels {
		key, value, _ := strings.Cut(label, "=")
		node.Labels[key] = value
	}
	return node
}

// changeOf returns a change from the new versions of objects, and from the names of deleted Services.
func changeOf(objects ...any) Change {
	change := Change{Services: map[ObjectName]*Service{}, Slices: map[ObjectName]*EndpointSlice{}, Nodes: map[string]*Node{}}
	for _, object := range objects {
		switch object := object.(type) {
		case *Service:
			change.Services[object.Name] = object
		case ObjectName:
			change.Services[object] = nil
		case *EndpointSlice:
			change.Slices[object.Name] = object
		case *Node:
			change.Nodes[object.Name] = object
		}
	}
	return change
}

// namesText formats names without their namespace: "db web".
func namesText(names []ObjectName) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = name.Name
	}
	return strings.Join(texts, " ")
}

const (
	zoneLabel = string(policy.Zone)
	rackLabel = "example.com/rack"
)

// startingCluster returns the initial state for the tests of Apply, from the view of node-1.
func startingCluster() *Cluster {
	cluster := NewCluster("node-1")
	cluster.Apply(changeOf(
		serviceNamed("plain"),
		serviceNamed("racks", rackLabel),
		serviceNamed("zones", policy.Zone, policy.AnyNode),
		serviceNamed("anywhere", policy.AnyNode),
		serviceNamed("elsewhere", policy.Hostname, policy.Zone, rackLabel),
		sliceFor("plain-1", "plain"),
		sliceFor("racks-2", "racks").withEndpointsOn("node-1"),
		sliceFor("racks-3", "racks").withEndpointsOn("node-2/b node-3/a node-4"),
		sliceFor("zones-2", "zones").withEndpointsOn("node-2 node-5/a node-3"),
		sliceFor("elsewhere-1", "elsewhere").withEndpointsOn("node-6/a"),
		sliceFor("early-1", "early"),
		nodeWith("node-1", zoneLabel+"=a", rackLabel+"=1", "colour=red"),
		nodeWith("node-2", zoneLabel+"=b", rackLabel+"=2", "colour=red"),
		nodeWith("node-4", rackLabel+"="),
		nodeWith("node-6", zoneLabel+"=a", rackLabel+"=1"),
	))
	return cluster
}

func TestApplyReturnsAffectedServices(t *testing.T) {
	tests := map[string]struct {
		change Change
		want   string
	}{
		"nothing":                                      {Change{}, ""},
		"a new Service":                                {changeOf(serviceNamed("web")), "web"},
		"a Service with an old slice":                  {changeOf(serviceNamed("early")), "early"},
		"a changed Service":                            {changeOf(serviceNamed("plain", policy.Zone)), "plain"},
		"a deleted Service":                            {Change{Services: map[ObjectName]*Service{named("plain"): nil}}, "plain"},
		"an unknown deleted Service":                   {Change{Services: map[ObjectName]*Service{named("ghost"): nil}}, "ghost"},
		"several Services, sorted":                     {changeOf(serviceNamed("z"), serviceNamed("a"), sliceFor("m-1", "m")), "a m z"},
		"a new slice":                                  {changeOf(sliceFor("zones-1", "zones")), "zones"},
		"a changed slice":                              {changeOf(sliceFor("plain-1", "plain")), "plain"},
		"a deleted slice":                              {Change{Slices: map[ObjectName]*EndpointSlice{named("plain-1"): nil}}, "plain"},
		"an unknown deleted slice":                     {Change{Slices: map[ObjectName]*EndpointSlice{named("ghost-1"): nil}}, ""},
		"a slice that now names another Service: both": {changeOf(sliceFor("plain-1", "racks")), "plain racks"},
		"a slice before its Service":                   {changeOf(sliceFor("later-1", "later")), "later"},

		"a node label that no Service uses":            {changeOf(nodeWith("node-2", zoneLabel+"=b", rackLabel+"=2", "colour=blue")), ""},
		"an unchanged node":                            {changeOf(nodeWith("node-2", zoneLabel+"=b", rackLabel+"=2", "colour=red")), ""},
		"a node label that topology keys name":         {changeOf(nodeWith("node-2", zoneLabel+"=b", rackLabel+"=9", "colour=red")), "racks"},
		"a removed node label":                         {changeOf(nodeWith("node-2", zoneLabel+"=b", "colour=red")), "racks"},
		"another node's zone: Services with zone keys": {changeOf(nodeWith("node-2", zoneLabel+"=c", rackLabel+"=2", "colour=red")), "zones"},
		"this node's zone: also Services that may have hints": {
			changeOf(nodeWith("node-1", zoneLabel+"=c", rackLabel+"=1", "colour=red")), "elsewhere plain zones",
		},
		"this node's rack: Services with rack keys": {changeOf(nodeWith("node-1", zoneLabel+"=a", rackLabel+"=9", "colour=red")),
			"elsewhere racks"},
		"a new node with endpoints": {
			changeOf(nodeWith("node-3", zoneLabel+"=a", rackLabel+"=1")), "racks zones",
		},
		"a new node with endpoints whose slices have the zone": {
			changeOf(nodeWith("node-5", zoneLabel+"=a", rackLabel+"=1")), "",
		},
		"a new node without endpoints":                {changeOf(nodeWith("node-9", zoneLabel+"=a", rackLabel+"=1")), ""},
		"a zone that the slices have":                 {changeOf(nodeWith("node-6", zoneLabel+"=b", rackLabel+"=1")), ""},
		"a rack, which no slice has":                  {changeOf(nodeWith("node-6", zoneLabel+"=a", rackLabel+"=2")), "elsewhere"},
		"a new node without labels":                   {changeOf(nodeWith("node-3")), ""},
		"a removed label with an empty value":         {changeOf(nodeWith("node-4")), "racks"},
		"an added label with an empty value":          {changeOf(nodeWith("node-3", rackLabel+"=")), "racks"},
		"another deleted node":                        {Change{Nodes: map[string]*Node{"node-2": nil}}, "racks zones"},
		"this node's object is deleted":               {Change{Nodes: map[string]*Node{"node-1": nil}}, ""},
		"an unknown deleted node":                     {Change{Nodes: map[string]*Node{"node-9": nil}}, ""},
		"a Service and a node label that it now uses": {changeOf(serviceNamed("plain", "colour"), nodeWith("node-3", "colour=red")), "plain"},
		"a Service and its slice":                     {changeOf(serviceNamed("plain"), sliceFor("plain-1", "plain")), "plain"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := namesText(startingCluster().Apply(test.change)); got != test.want {
				t.Errorf("Apply returned %q, want %q", got, test.want)
			}
		})
	}
}

func TestSlicesOfAreSortedAndFollowTheirLabel(t *testing.T) {
	cluster := NewCluster("node-1")
	deletionOf := func(name string) Change { return Change{Slices: map[ObjectName]*EndpointSlice{named(name): nil}} }
	steps := []struct {
		title   string
		change  Change
		web, db string
	}{
		{"two slices in any order", changeOf(sliceFor("web-3", "web")).Merge(changeOf(sliceFor("web-1", "web"))), "web-1 web-3", ""},
		{"a slice between them", changeOf(sliceFor("web-2", "web")), "web-1 web-2 web-3", ""},
		{"a changed slice", changeOf(sliceFor("web-2", "web")), "web-1 web-2 web-3", ""},
		{"a slice that now names another Service", changeOf(sliceFor("web-2", "db")), "web-1 web-3", "web-2"},
		{"a slice of the other Service", changeOf(sliceFor("db-1", "db")), "web-1 web-3", "db-1 web-2"},
		{"a deleted slice", deletionOf("web-1"), "web-3", "db-1 web-2"},
		{"the last slice is deleted", deletionOf("web-3"), "", "db-1 web-2"},
		{"a slice is deleted again", deletionOf("web-3"), "", "db-1 web-2"},
	}
	namesOf := func(service string) string {
		var names []ObjectName
		for _, slice := range cluster.SlicesOf(named(service)) {
			names = append(names, slice.Name)
		}
		return namesText(names)
	}
	for _, step := range steps {
		before := cluster.SlicesOf(named("web"))
		copied := append([]*EndpointSlice(nil), before...)
		cluster.Apply(step.change)
		if web, db := namesOf("web"), namesOf("db"); web != step.web || db != step.db {
			t.Errorf("%s: slices of web are %q and of db %q, want %q and %q", step.title, web, db, step.web, step.db)
		}
		if diff := cmp.Diff(copied, before, compareAddrs); diff != "" {
			t.Errorf("%s: Apply modified a list that SlicesOf had returned:\n%s", step.title, diff)
		}
	}
}

func TestClusterReturnsNodes(t *testing.T) {
	cluster := NewCluster("node-1")
	if self := cluster.Self(); self.Name != "node-1" || self.Labels != nil {
		t.Errorf("Self of an unknown node returned %+v, want its name and nil labels", self)
	}
	cluster.Apply(changeOf(nodeWith("node-2", "colour=red"), nodeWith("node-1"), nodeWith("node-10")))
	for name, want := range map[string]bool{"node-1": true, "node-10": true, "node-2": true, "node-3": false} {
		if _, known := cluster.NodeLabels(name); known != want {
			t.Errorf("%s is known: %v, want %v", name, known, want)
		}
	}
	if self := cluster.Self(); self.Labels == nil {
		t.Error("Self of a known node without labels returned nil labels")
	}
	if labels, known := cluster.NodeLabels("node-2"); !known || labels["colour"] != "red" {
		t.Errorf("node-2 has labels %v, known: %v", labels, known)
	}
	cluster.Apply(Change{Nodes: map[string]*Node{"node-2": nil}})
	if labels, known := cluster.NodeLabels("node-2"); known || labels != nil {
		t.Errorf("a deleted node has labels %v, known: %v", labels, known)
	}
	cluster.Apply(Change{Nodes: map[string]*Node{"node-1": nil}})
	if self := cluster.Self(); self.Labels == nil {
		t.Error("Self returned nil labels after this node's object was deleted")
	}
}

func TestClusterReturnsServices(t *testing.T) {
	cluster := NewCluster("node-1")
	other := &Service{Name: ObjectName{Namespace: "another", Name: "z"}, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}}
	web := serviceNamed("web")
	cluster.Apply(changeOf(web, serviceNamed("db"), other))
	if got := namesText(cluster.ServiceNames()); got != "z db web" {
		t.Errorf("Services %q, want them by namespace, then name", got)
	}
	if cluster.Service(web.Name) != web {
		t.Error("Service did not return the applied object")
	}
	cluster.Apply(Change{Services: map[ObjectName]*Service{web.Name: nil}})
	if cluster.Service(web.Name) != nil || namesText(cluster.ServiceNames()) != "z db" {
		t.Errorf("a deleted Service still exists: %v", cluster.ServiceNames())
	}
}
