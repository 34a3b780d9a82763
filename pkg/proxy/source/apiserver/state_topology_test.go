package apiserver

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/nodes"
)

// topologySlice returns a TopologySlice that describes nodes by their racks.
func topologySlice(name string, keys []policy.Key, racks map[string]string) *object {
	slice := &model.TopologySlice{Keys: keys, Nodes: map[string]*model.Node{}}
	for node, value := range racks {
		slice.Nodes[node] = &model.Node{Name: node, Labels: map[string]string{string(rack): value}}
	}
	return &object{name: model.ObjectName{Name: name}, value: slice}
}

func serviceOf(name string, keys ...policy.Key) *object {
	fullName := model.ObjectName{Namespace: "default", Name: name}
	return &object{name: fullName, value: &model.Service{Name: fullName, Topology: policy.Topology{Keys: append(keys, policy.AnyNode)}}}
}

// delivered returns the Services that a state delivers, by name.
func delivered(s *state) string {
	update, _ := s.takeUpdate()
	var names []string
	for name := range update.Change.Services {
		names = append(names, name.Name)
	}
	slices.Sort(names)
	return fmt.Sprint(names)
}

// rackState is a state, and the racks of the nodes that it delivered.
type rackState struct {
	*state
	racks map[string]string
}

func newRackState() rackState { return rackState{newState("node-0"), map[string]string{}} }

// takeRacks takes the update, and returns the racks.
func (r rackState) takeRacks() map[string]string {
	update, _ := r.takeUpdate()
	for name, node := range update.Change.Nodes {
		if delete(r.racks, name); node != nil {
			r.racks[name] = node.Labels[string(rack)]
		}
	}
	return r.racks
}

// The result must be right after any history of slices, including contradictory ones.
func TestNodesAreMergedFromAllSlices(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		s := newRackState()
		s.put(convert.Services, serviceOf("racked", rack))
		current := map[string]map[string]string{}
		for step := range 30 {
			name := fmt.Sprint("slice-", random.IntN(4))
			switch random.IntN(6) {
			case 0:
				delete(current, name)
				s.remove(convert.TopologySlices, model.ObjectName{Name: name})
			case 1: // a complete list
				var all []*object
				current = map[string]map[string]string{}
				for range random.IntN(4) {
					name := fmt.Sprint("slice-", random.IntN(4))
					if current[name] == nil {
						current[name] = randomRacks(random)
						all = append(all, topologySlice(name, []policy.Key{rack}, current[name]))
					}
				}
				s.replace(convert.TopologySlices, all)
			default:
				current[name] = randomRacks(random)
				s.put(convert.TopologySlices, topologySlice(name, []policy.Key{rack}, current[name]))
			}
			s.wait(nodes.NodeRetention)
			want := map[string]string{}
			for _, name := range slices.Backward(slices.Sorted(maps.Keys(current))) {
				maps.Copy(want, current[name])
			}
			if s.nodes.SliceNodeCount() != len(want) {
				t.Fatalf("seed %d, step %d: %d nodes are described, want %d", seed, step, s.nodes.SliceNodeCount(), len(want))
			}
			delete(want, "node-0") // described by its own Node
			if diff := cmp.Diff(want, s.takeRacks()); diff != "" {
				t.Fatalf("seed %d, step %d: nodes (-want +got):\n%s", seed, step, diff)
			}
		}
	}
}

func randomRacks(random *rand.Rand) map[string]string {
	racks := map[string]string{}
	for range random.IntN(5) {
		racks[fmt.Sprint("node-", random.IntN(8))] = fmt.Sprint("rack-", random.IntN(3))
	}
	return racks
}

// Nodes that a slice omits must be removed at once.
func TestNodeRetentionAfterSliceDeletion(t *testing.T) {
	s := newRackState()
	s.put(convert.Services, serviceOf("racked", rack))
	keys := []policy.Key{rack}
	s.replace(convert.TopologySlices, []*object{
		topologySlice("a", keys, map[string]string{"node-1": "r1", "node-2": "r2"}), topologySlice("b", keys, map[string]string{"node-3": "r3"}),
	})
	check := func(what string, want map[string]string) {
		t.Helper()
		if diff := cmp.Diff(want, s.takeRacks()); diff != "" {
			t.Errorf("%s: nodes (-want +got):\n%s", what, diff)
		}
	}
	s.put(convert.TopologySlices, topologySlice("a", keys, map[string]string{"node-1": "r1"}))
	check("a slice omits a node", map[string]string{"node-1": "r1", "node-3": "r3"})
	s.remove(convert.TopologySlices, model.ObjectName{Name: "a"})
	s.remove(convert.TopologySlices, model.ObjectName{Name: "b"})
	check("all slices are deleted", map[string]string{"node-1": "r1", "node-3": "r3"})
	s.put(convert.TopologySlices, topologySlice("c", keys, map[string]string{"node-3": "r4"}))
	check("one is published again", map[string]string{"node-1": "r1", "node-3": "r4"})
	s.wait(nodes.NodeRetention)
	check("after NodeRetention", map[string]string{"node-3": "r4"})
	s.replace(convert.TopologySlices, nil)
	check("an empty list", map[string]string{"node-3": "r4"})
}

// A Service must not wait forever, and no other Service may wait.
func TestServiceIsBlockedUntilItsLabelIsPublished(t *testing.T) {
	s := newState("node-0")
	s.put(convert.Services, serviceOf("racked", rack))
	s.put(convert.Services, serviceOf("nonsense", row))
	s.put(convert.Services, serviceOf("plain"))
	step := func(what, want string) {
		t.Helper()
		if got := delivered(s); got != want {
			t.Errorf("%s: delivered %s, want %s", what, got, want)
		}
	}
	step("no node is known", "[plain]")
	one, two := map[string]string{"node-1": "r1"}, map[string]string{"node-2": "r2"}
	none := []policy.Key{policy.Zone}
	s.replace(convert.TopologySlices, []*object{topologySlice("a", none, one), topologySlice("b", none, two)})
	step("keys in use before the list are not waited for", "[nonsense racked]")

	s.remove(convert.Services, model.ObjectName{Namespace: "default", Name: "racked"})
	step("a Service is deleted", "[racked]")
	s.put(convert.Services, serviceOf("racked", rack))
	s.wait(nodes.LabelTimeout - 1)
	step("a newly used label", "[]")
	s.put(convert.Services, serviceOf("other"))
	s.put(convert.TopologySlices, topologySlice("a", []policy.Key{rack, policy.Zone}, one))
	step("one of two slices contains it", "[other]")
	s.put(convert.TopologySlices, topologySlice("b", []policy.Key{rack, policy.Zone}, two))
	step("both contain it", "[racked]")
	s.wait(1)
	step("after the timeout", "[]")

	s.put(convert.Services, serviceOf("waiting", "example.com/nobody"))
	s.wait(nodes.LabelTimeout - 1)
	step("a label that is not published", "[]")
	s.wait(1)
	step("the wait timed out", "[waiting]")
	s.put(convert.Services, serviceOf("waiting-2", "example.com/nobody"))
	step("it is not waited for again", "[waiting-2]")
}

// Until all lists are complete, the known state must stay.
func TestSourceSwitchKeepsNodes(t *testing.T) {
	s := newRackState()
	s.put(convert.Services, serviceOf("racked", rack))
	node := func(name, value string) *object {
		labels := map[string]string{rack: value, "other": "x"}
		return &object{name: model.ObjectName{Name: name}, value: &model.Node{Name: name, Labels: labels}}
	}
	s.replace(convert.OtherNodes, []*object{node("node-1", "r1"), node("node-2", "r2")})
	want := map[string]string{"node-1": "r1", "node-2": "r2"}
	check := func(what string) {
		t.Helper()
		if diff := cmp.Diff(want, s.takeRacks()); diff != "" {
			t.Errorf("%s: nodes (-want +got):\n%s", what, diff)
		}
	}
	check("from Nodes")
	s.switchSource(sourceFrom(convert.TopologySlices))
	s.replace(convert.TopologySlices, []*object{topologySlice("a", []policy.Key{rack}, want)})
	if update, isNew := s.takeUpdate(); isNew {
		t.Errorf("slices with the same content deliver %+v", update)
	}
	want = map[string]string{"node-2": "r3"}
	s.put(convert.TopologySlices, topologySlice("a", []policy.Key{rack}, want))
	check("only from slices")
	s.switchSource(sourceFrom(convert.OtherNodes))
	check("while Nodes are listed")
	want = map[string]string{"node-1": "r1", "node-2": "r2"}
	s.replace(convert.OtherNodes, []*object{node("node-1", "r1"), node("node-2", "r2")})
	check("from Nodes again")
}

func sourceFrom(kinds ...*convert.Kind) *source {
	var result source
	for _, kind := range kinds {
		result.requests = append(result.requests, resourceRequest{kind: kind})
	}
	return &result
}

// The lists may come in any order, and count when all are complete.
func TestNodesAreMergedFromProxiesAndLabelledNodes(t *testing.T) {
	slice := func(zones map[string]string) *object {
		content := &model.TopologySlice{Keys: append([]policy.Key{policy.Zone}, policy.DemandLabels[:]...), Nodes: map[string]*model.Node{}}
		for node, zone := range zones {
			content.Nodes[node] = &model.Node{Name: node, Labels: map[string]string{string(policy.Zone): zone}}
		}
		return &object{name: model.ObjectName{Namespace: "kube-system", Name: "proxies-1"}, value: content}
	}
	demand := nodeObject("n1", map[string]string{policy.DemandLabel: "7"})
	controlPlane := nodeObject("n2", map[string]string{policy.ControlPlaneLabel: "", policy.NoBalancersLabel: ""})
	withoutProxy := nodeObject("n9", map[string]string{policy.DemandLabel: "3"}) // without a proxy: its zone is unknown
	lists := map[*convert.Kind][]*object{
		convert.ProxySlices:       {slice(map[string]string{"n0": "a", "n1": "a", "n2": "b"})},
		convert.NodesWithDemand:   {demand, withoutProxy},
		convert.ControlPlaneNodes: {controlPlane},
	}
	kinds := []*convert.Kind{convert.ProxySlices, convert.NodesWithDemand, convert.ControlPlaneNodes}
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		w := &testState{newState("n0")}
		w.bounded(80)
		w.switchSource(sourceFrom(kinds...))
		for _, i := range order[:2] {
			w.replace(kinds[i], lists[kinds[i]])
			if got := w.delivered(); got != "" {
				t.Errorf("order %v: delivered %s before all lists are complete", order, got)
			}
		}
		w.replace(kinds[order[2]], lists[kinds[order[2]]])
		got := w.delivered()
		for part := range strings.FieldsSeq("node/n1{zone=a,demand-weight=7} " +
			"node/n2{control-plane=,exclude-from-external-load-balancers=,zone=b} service/web:80") {
			if !strings.Contains(got, part) {
				t.Errorf("order %v: %s lacks %s", order, got, part)
			}
		}
		if strings.Contains(got, "n9") || strings.Contains(got, "n0") {
			t.Errorf("order %v: %s", order, got)
		}
		steps := []struct {
			desc string
			do   func()
			want string
		}{
			{"a demand changes", func() { w.put(convert.NodesWithDemand, nodeObject("n1", map[string]string{policy.DemandLabel: "8"})) },
				"node/n1{zone=a,demand-weight=8}"},
			{"the demand is removed", func() { w.remove(convert.NodesWithDemand, model.ObjectName{Name: "n1"}) }, "node/n1{zone=a}"},
			{"a proxy is replaced", func() { w.put(convert.ProxySlices, slice(map[string]string{"n1": "a"})) }, ""},
			{"the proxy is back in another zone", func() { w.put(convert.ProxySlices, slice(map[string]string{"n1": "a", "n2": "c"})) },
				"node/n2{control-plane=,exclude-from-external-load-balancers=,zone=c}"},
			{"a Service needs racks and is blocked", func() { w.service("racked", 81, rack, policy.AnyNode) }, ""},
			{"the source is switched to Nodes", func() { w.switchSource(sourceFrom(convert.OtherNodes)) }, ""},
			{"another Service is not blocked", func() { w.bounded(82) }, "service/web:82"},
			{"Nodes are listed", func() {
				w.list(nodeObject("n1", map[string]string{rack: "1", string(policy.Zone): "a"}))
			}, "-node/n2 node/n1{rack=1,zone=a} service/racked:81"},
		}
		for _, step := range steps {
			step.do()
			if got := w.delivered(); got != step.want {
				t.Errorf("order %v, %s: delivered %q, want %q", order, step.desc, got, step.want)
			}
		}
	}
}

// A node whose proxy does not come back counts as deleted after a while.
func TestNodeWithoutProxyExpires(t *testing.T) {
	w := &testState{newState("n0")}
	w.bounded(80)
	w.switchSource(sourceFrom(convert.ProxySlices))
	slice := func(nodes ...string) *object {
		content := &model.TopologySlice{Keys: []policy.Key{policy.Zone}, Nodes: map[string]*model.Node{}}
		for _, node := range nodes {
			content.Nodes[node] = &model.Node{Name: node, Labels: map[string]string{}}
		}
		return &object{name: model.ObjectName{Name: "proxies-1"}, value: content}
	}
	w.replace(convert.ProxySlices, []*object{slice("n1", "n2", "n3")})
	w.wait(nodes.LabelTimeout) // for the demand of nodes, which no object states here
	w.delivered()
	w.put(convert.ProxySlices, slice("n1"))
	if got := w.delivered(); got != "" || w.nodes.NodeCount() != 4 {
		t.Errorf("two proxies are gone: delivered %q, %d nodes known", got, w.nodes.NodeCount())
	}
	w.put(convert.ProxySlices, slice("n1", "n2"))
	w.wait(nodes.NodeRetention)
	if got := w.delivered(); got != "-node/n3" {
		t.Errorf("one of them is back: delivered %q", got)
	}
}
