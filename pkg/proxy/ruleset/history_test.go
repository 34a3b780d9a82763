package ruleset_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// history is a cluster that changes at random, and the tables that follow it.
type history struct {
	*rig
	cluster *model.Cluster
	random  *rand.Rand
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{rig: start(t), cluster: model.NewCluster(node1.Name), random: rand.New(rand.NewPCG(seed, 0))}
	h.cluster.Apply(model.Change{Nodes: map[string]*model.Node{node1.Name: &node1}})
	return h
}

func (h *history) oneIn(n int) bool { return h.random.IntN(n) == 0 }

// servicesOf returns what some Services own in the current cluster.
func (h *history) servicesOf(names []model.ObjectName) []ruleset.Service {
	var owned []ruleset.Service
	for _, name := range names {
		service := ruleset.Service{Name: name}
		for _, decision := range selection.NewPlanner(h.cluster).Decide(name, model.Families) {
			decision.Selection.Cluster.Endpoints = weighted(decision.Selection.Cluster.Endpoints)
			if local := decision.Selection.Local; local != nil {
				local.Endpoints = weighted(local.Endpoints)
			}
			service.Ports = append(service.Ports, ruleset.NewPort(decision))
		}
		owned = append(owned, service)
	}
	return owned
}

// weighted repeats some endpoints. How often depends on what else is chosen, so that slots are added and removed with
// other endpoints.
func weighted(endpoints []model.PortEndpoint) []model.PortEndpoint {
	var repeated []model.PortEndpoint
	for _, endpoint := range endpoints {
		bytes := endpoint.Addr.Addr().As16()
		repeated = append(repeated, slices.Repeat([]model.PortEndpoint{endpoint}, 1+int(bytes[15])*len(endpoints)%4)...)
	}
	return repeated
}

// randomService has some of the frontends of everyKind, any policies, and may claim addresses that others claim too.
func (h *history) randomService(number int) *model.Service {
	service := everyKind(fmt.Sprint("service-", number), number)
	service.Created = time.Unix(int64(number), 0)
	service.InternalTrafficLocal, service.ExternalTrafficLocal = h.oneIn(3), h.oneIn(2)
	service.AffinityTimeout = time.Duration(h.random.IntN(3)) * time.Hour
	if h.oneIn(3) {
		service.Ports[0].NodePort = 0
	}
	if h.oneIn(3) {
		service.LoadBalancerIPs = nil
	}
	if h.oneIn(3) {
		service.SourceRanges = nil
	}
	if h.oneIn(2) {
		service.ExternalIPs = []netip.Addr{netip.MustParseAddr("198.51.100.99"), netip.MustParseAddr("2001:db8:2::99")}
	}
	if h.oneIn(3) { // with enough endpoints its ports have dedicated maps
		service.ExternalIPs = append(service.ExternalIPs, manyAddrs(fmt.Sprintf("198.18.%d.0", number), 150)...)
	}
	if h.oneIn(4) {
		service.Topology.Keys = []policy.Key{"kubernetes.io/hostname"}
	}
	if h.oneIn(4) {
		service.Ports = append(service.Ports, model.ServicePort{Name: "dns", Protocol: model.UDP, Port: 53, NodePort: service.Ports[0].NodePort})
	}
	if h.oneIn(4) {
		service.ClusterIPs = service.ClusterIPs[:1]
	}
	return &service
}

func (h *history) randomSlice(service model.ObjectName, family model.Family) *model.EndpointSlice {
	slice := &model.EndpointSlice{Name: serviceName(service.Name + "-" + family.String()), Service: service, Family: family}
	slice.Ports = []model.SlicePort{
		{Name: "http", Protocol: model.TCP, Port: uint16(8080 + h.random.IntN(2))}, {Name: "dns", Protocol: model.UDP, Port: 53},
	}
	pods := 6
	if h.oneIn(3) {
		pods = 24
	}
	for number := range pods {
		if h.oneIn(2) {
			endpoint := pod{[]string{node1.Name, "node-2"}[number%2], number}
			slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{
				Addr: endpoint.addr(family), Endpoint: model.Endpoint{Node: endpoint.node, Ready: true, Serving: true},
			})
		}
	}
	return slice
}

// step changes a Service, one of its slices or the node state. Occasionally a plan is not committed, and the next one
// includes its changes.
func (h *history) step(t *testing.T) {
	t.Helper()
	number := 1 + h.random.IntN(4)
	name := serviceName(fmt.Sprint("service-", number))
	change := model.Change{Services: map[model.ObjectName]*model.Service{}, Slices: map[model.ObjectName]*model.EndpointSlice{}}
	switch h.random.IntN(8) {
	case 0:
		change.Services[name] = nil
	case 1, 2, 3:
		change.Services[name] = h.randomService(number)
	case 4, 5, 6:
		slice := h.randomSlice(name, model.Families[h.random.IntN(2)])
		change.Slices[slice.Name] = slice
	case 7:
		addrs := []string{fmt.Sprint("192.168.0.", number), fmt.Sprint("fd00:168::", number)}
		h.nodeState = nodeStateWith(addrs, initialNodeState.ServiceCIDRs[h.random.IntN(3):])
	}
	wanted := h.servicesOf(h.cluster.Apply(change))
	if h.oneIn(10) {
		h.plan(wanted...)
	}
	before, numbers, wasClean := entriesOf(t, &h.Tables), numbersOf(h.mirror), h.mirror.IsClean()
	plan := h.change(t, wanted...)
	checkKept(t, numbers, numbersOf(h.mirror))
	if h.oneIn(4) {
		checkNumbers(t, h.rig)
	}
	if wasClean && len(wanted) < 2 { // frontends may move between two
		checkWrites(t, before, entriesOf(t, &h.Tables), plan)
	}
	if again := planned(h.plan(wanted...)); again != nil {
		t.Errorf("a second plan is not empty: %v", again)
	}
	if h.oneIn(3) {
		for _, line := range h.cleanUp(t) {
			set, _, isElements := strings.Cut(line, ":")
			if isElements && !isDeferred(set) {
				t.Errorf("the cleanup deletes an element that the plan should have deleted: %s", line)
			}
		}
	}
	if h.oneIn(12) {
		h.restart(t)
	}
}

// isDeferred reports whether a packet in flight may look up an element of a set after its plan: then the cleanup
// deletes it.
func isDeferred(set string) bool {
	return strings.Contains(set, "endpoints") || strings.Contains(set, "dispatch") || strings.HasSuffix(set, " sources") || set == "sources"
}

// isAddedFirst reports whether elements of other sets lead a packet to those of a set, which must exist before them.
func isAddedFirst(set string) bool {
	return strings.Contains(set, "dispatch") || strings.Contains(set, "numbered") || strings.Contains(set, "/") || set == "sources"
}

// entry is an element of a set or, without an element, a set or a chain.
type entry struct {
	family  model.Family
	set     string
	element ruleset.Element
}

func entriesOf(t *testing.T, tables *ruleset.Tables) map[entry]bool {
	t.Helper()
	entries := map[entry]bool{}
	for _, family := range model.Families {
		objects := tables.Objects(family)
		for _, chain := range objects.Chains {
			entries[entry{family: family, set: "chain " + chain}] = true
		}
		for _, set := range objects.Sets {
			entries[entry{family: family, set: "set " + set}] = true
			elements, err := tables.Elements(family, ruleset.Set{Name: set})
			if err != nil {
				t.Fatal(err)
			}
			for _, element := range elements {
				entries[entry{family, set, element}] = true
			}
		}
	}
	return entries
}

// checkWrites checks that a plan adds only what did not exist, and deletes only what does not exist afterwards.
func checkWrites(t *testing.T, before, after map[entry]bool, plan *ruleset.Plan) {
	t.Helper()
	for i, op := range slices.Concat(plan.Prerequisites.Ops, plan.Batch.Ops) {
		object, isElements := op.Object.(ruleset.ElementsObject)
		if isPrepared := i < len(plan.Prerequisites.Ops); isElements && op.Verb == ruleset.Add && isAddedFirst(object.Set.Name) != isPrepared {
			t.Errorf("elements of %s are in the prerequisites: %t", object.Set.Name, isPrepared)
		}
		if !isElements {
			name := formatObject(op.Object)
			isDedicated := strings.Contains(name, "/") // such a chain changes with the number of slots
			if op.Verb == ruleset.Add && !isDedicated && before[entry{family: op.Family, set: name}] {
				t.Errorf("%s existed before", name)
			}
			continue
		}
		for element := range object.Elements {
			written := entry{op.Family, object.Set.Name, element}
			if isNeeded := before[written] != after[written] && after[written] == (op.Verb == ruleset.Add); !isNeeded {
				t.Errorf("%s: existed before: %t, afterwards: %t", operations(ruleset.Batch{Ops: []ruleset.Op{op}}), before[written], after[written])
			}
			if isDeferred(object.Set.Name) && op.Verb == ruleset.Delete && !isReplaced(after, written) {
				t.Errorf("%s is deleted before the cleanup", operations(ruleset.Batch{Ops: []ruleset.Op{op}}))
			}
		}
	}
}

// isReplaced reports whether an element was replaced by another one.
func isReplaced(after map[entry]bool, old entry) bool {
	for other := range after {
		if other.family == old.family && other.set == old.set && other.element.Key == old.element.Key {
			return true
		}
	}
	return false
}

// restart restarts the proxy with the current tables, and checks that the numbers are the same as before.
func (h *history) restart(t *testing.T) {
	t.Helper()
	before := numbersOf(h.mirror)
	wanted := h.servicesOf(h.cluster.ServiceNames())
	h.random.Shuffle(len(wanted), func(i, j int) { wanted[i], wanted[j] = wanted[j], wanted[i] })
	h.rig.restart(t, asFound, wanted...)
	if diff := diffNumbers(before, numbersOf(h.mirror)); diff != "" {
		t.Errorf("numbers (-before +after a restart):\n%s", diff)
	}
}

// TestAnyHistoryEndsLikeAFullSync: what Services with frontends of every kind own does not depend on their history,
// except for the numbers of session affinity, which are restored. It also checks that no batch is rejected, and that
// the numbers are correct.
func TestAnyHistoryEndsLikeAFullSync(t *testing.T) {
	dedicated, sticky, collided := 0, 0, 0
	for seed := range uint64(10) {
		h := newHistory(t, seed)
		for range 60 {
			h.step(t)
			if t.Failed() {
				t.Fatalf("failed with seed %d", seed)
			}
			collided += len(lookupsIn(t, &h.Tables, model.IPv4).collided)
		}
		h.cleanUp(t)
		wanted := h.servicesOf(h.cluster.ServiceNames())
		fresh, _ := ruleset.PlanFullSync(bothFamilies, wanted, h.nodeState, nil)
		if !h.mirror.Equal(fresh) {
			t.Errorf("seed %d: the mirror differs from that of a full sync", seed)
		}
		var sameSlots []ruleset.Service // the order of slots depends on history
		for _, service := range wanted {
			sameSlots = append(sameSlots, h.mirror.Service(service.Name))
		}
		for _, name := range dedicatedMapsIn(&h.Tables) {
			dedicated++
			if strings.HasPrefix(name, "sticky-") {
				sticky++
			}
		}
		var tables ruleset.Tables
		_, plan := ruleset.PlanFullSync(bothFamilies, sameSlots, h.nodeState, numbersInUse(&h.Tables))
		mustApply(t, &tables, plan.Batch)
		if diff := cmp.Diff(text(t, &tables), text(t, &h.Tables)); diff != "" {
			t.Fatalf("seed %d: tables (-full sync +history):\n%s", seed, diff)
		}
	}
	if dedicated == sticky || sticky == 0 || collided == 0 {
		t.Errorf("the histories had %d dedicated maps, %d of them with affinity, and %d collided numbers; want some of each",
			dedicated, sticky, collided)
	}
}
