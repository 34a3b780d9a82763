package cluster

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
)

const (
	rack = "example.com/rack"
	row  = "example.com/row"
)

func nameOf(name string) model.ObjectName { return model.ObjectName{Namespace: "default", Name: name} }

// world is a state with what informers would have cached.
type world struct {
	*state
	services map[string]*object[*model.Service]
	cached   *object[*model.EndpointSlice]
	version  int
}

// testPace is easy to reckon with.
var testPace = pace{interval: 5 * time.Second, patience: 10 * time.Second}

// newWorld returns a world in which the first update was taken.
func newWorld() *world {
	w := &world{state: newState("self"), services: map[string]*object[*model.Service]{}}
	w.now = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	return w
}

// passes lets time pass, as the edge does: it looks when it is told to, and at the end.
func (w *world) passes(duration time.Duration) {
	end := w.now.Add(duration)
	for {
		_, next := w.pass(testPace)
		if next.IsZero() || !next.Before(end) {
			break
		}
		w.now = next
	}
	w.now = end
	w.pass(testPace)
}

// begin lets the list begin that is due now.
func (w *world) begin() { w.passes(0) }

func (w *world) nextVersion() string {
	w.version++
	return fmt.Sprint(w.version)
}

// service puts a version of a Service with topology keys; its port tells versions apart.
func (w *world) service(name string, port uint16, keys ...policy.Key) {
	w.putVersion(name, &model.Service{
		Name: nameOf(name), Ports: []model.ServicePort{{Port: port}}, Topology: policy.Topology{Keys: keys},
	})
}

func (w *world) putVersion(name string, value *model.Service, refused ...convert.Problem) {
	now := &object[*model.Service]{name: nameOf(name), resourceVersion: w.nextVersion(), value: value, refused: refused}
	w.putService(w.services[name], now)
	w.services[name] = now
}

func (w *world) deleteService(name string) {
	w.serviceGone(nameOf(name))
	delete(w.services, name)
}

// slice puts a version of the slice "a".
func (w *world) slice(value *model.EndpointSlice) {
	now := &object[*model.EndpointSlice]{name: nameOf("a"), resourceVersion: w.nextVersion(), value: value}
	w.putSlice(w.cached, now)
	w.cached = now
}

func nodeObject(name string, labels map[string]string) *object[*model.Node] {
	return &object[*model.Node]{name: model.ObjectName{Name: name}, value: &model.Node{Name: name, Labels: labels}}
}

// list tells all nodes to the set that is coming, as a complete list. If it may not begin yet, it does so when it may.
func (w *world) list(nodes ...*object[*model.Node]) {
	set := w.coming
	w.begin()
	if !set.isBegun() {
		w.passes(testPace.interval)
	}
	for _, node := range nodes {
		w.putNode(set, node)
	}
	w.listed(set)
}

// delivered takes what is new and writes it in words, sorted: "service/web:80", "node/n1{rack=1}", "-" before what is gone.
func (w *world) delivered() string {
	update, _ := w.take()
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
