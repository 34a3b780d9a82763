package apiserver

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/nodes"
)

const (
	rack = "example.com/rack"
	row  = "example.com/row"
)

func nameOf(name string) model.ObjectName { return model.ObjectName{Namespace: "default", Name: name} }

// testState is a state with objects that a test writes.
type testState struct{ *state }

func newTestState() *testState { return &testState{newState("")} }

// wait advances the clock.
func (s *state) wait(duration time.Duration) *nodes.WaitTimeout {
	s.now = s.now.Add(duration)
	timeouts, _ := s.expire()
	return timeouts
}

// service puts a version of a Service with topology keys; its port distinguishes versions.
func (s *testState) service(name string, port uint16, keys ...policy.Key) {
	s.putVersion(name, &model.Service{
		Name: nameOf(name), Ports: []model.ServicePort{{Port: port}}, Topology: policy.Topology{Keys: keys},
	})
}

// bounded puts a version of the Service "web" whose load is bounded by zones.
func (s *testState) bounded(port uint16) {
	s.putVersion("web", &model.Service{
		Name: nameOf("web"), Ports: []model.ServicePort{{Port: port}},
		Topology: policy.Topology{Keys: []policy.Key{policy.Zone, policy.AnyNode}, MaxLoad: 120},
	})
}

// measured puts a version of a Service that is planned with measured demand.
func (s *testState) measured(name string, port uint16) {
	s.putVersion(name, &model.Service{
		Name: nameOf(name), Ports: []model.ServicePort{{Port: port}},
		Topology: policy.Topology{Keys: []policy.Key{policy.Zone, policy.AnyNode}, MaxLoad: 120, Measured: true},
	})
}

// demandObject returns the measured demand of a Service; its rate distinguishes versions.
func demandObject(name string, rate uint64) *object {
	return &object{name: nameOf(name), value: &model.Demand{Zones: map[string]uint32{"zone-a": 1_000_000}, ConnectionsPerMinute: rate}}
}

// putVersion puts a version of a Service; a nil value means that it is not ours to serve, or invalid.
func (s *testState) putVersion(name string, value *model.Service, rejected ...model.Finding) {
	received := &object{name: nameOf(name), rejected: rejected}
	if value != nil {
		received.value = value
	}
	s.put(convert.Services, received)
}

func (s *testState) deleteService(name string) { s.remove(convert.Services, nameOf(name)) }

// slice puts a version of the slice "a".
func (s *testState) slice(value *model.EndpointSlice) {
	received := &object{name: nameOf("a")}
	if value != nil {
		received.value = value
	}
	s.put(convert.EndpointSlices, received)
}

func nodeObject(name string, labels map[string]string) *object {
	return &object{name: model.ObjectName{Name: name}, value: &model.Node{Name: name, Labels: labels}}
}

// other puts a version of another node, n1.
func (s *testState) other(labels map[string]string) {
	s.put(convert.OtherNodes, nodeObject("n1", labels))
}

// list delivers the complete list of the other nodes.
func (s *testState) list(nodes ...*object) { s.replace(convert.OtherNodes, nodes) }

// delivered takes the update and returns it as sorted text: "service/web:80", "node/n1{rack=1}", with "-" before
// deleted objects.
func (s *testState) delivered() string {
	update, _ := s.takeUpdate()
	return updateText(update)
}

func updateText(update convert.Update) string {
	var words []string
	for name, service := range update.Change.Services {
		if service == nil {
			words = append(words, "-service/"+name.Name)
			continue
		}
		words = append(words, fmt.Sprintf("service/%s:%d", name.Name, service.Ports[0].Port))
	}
	for name, slice := range update.Change.Slices {
		if slice == nil {
			words = append(words, "-slice/"+name.Name)
			continue
		}
		words = append(words, fmt.Sprintf("slice/%s:%d", name.Name, len(slice.Endpoints)))
	}
	for name, node := range update.Change.Nodes {
		if node == nil {
			words = append(words, "-node/"+name)
			continue
		}
		var labels []string
		for _, key := range slices.Sorted(maps.Keys(node.Labels)) {
			labels = append(labels, key[strings.LastIndex(key, "/")+1:]+"="+node.Labels[key])
		}
		words = append(words, "node/"+name+"{"+strings.Join(labels, ",")+"}")
	}
	for key, demotion := range update.Change.Demotions {
		if demotion == nil {
			words = append(words, "-demotion/"+key.Node)
			continue
		}
		words = append(words, "demotion/"+key.Node)
	}
	for name, demand := range update.Change.Demands {
		if demand == nil {
			words = append(words, "-demand/"+name.Name)
			continue
		}
		words = append(words, fmt.Sprintf("demand/%s:%d", name.Name, demand.ConnectionsPerMinute))
	}
	if state := update.Change.DemandState; state != nil {
		words = append(words, map[model.DemandState]string{
			model.DemandUnknown: "unknown", model.DemandUnavailable: "unpublished", model.DemandStale: "stale", model.DemandActive: "counts",
		}[*state])
	}
	for name, prefixes := range update.Change.ServiceCIDRs {
		words = append(words, fmt.Sprintf("range/%s:%v", name, prefixes))
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

func endpointsAt(texts ...string) []model.SliceEndpoint {
	var endpoints []model.SliceEndpoint
	for _, text := range texts {
		endpoints = append(endpoints, model.SliceEndpoint{Addr: netip.MustParseAddr(text)})
	}
	return endpoints
}
