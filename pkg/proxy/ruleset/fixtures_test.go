package ruleset_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

func serviceName(name string) model.ObjectName {
	return model.ObjectName{Namespace: "default", Name: name}
}

// portOf returns the Service port that the tests start from: TCP port 80, called http, of the frontend's family,
// balanced over endpoints that are all elsewhere; refused if there are none.
func portOf(service, clusterIP string, endpoints ...string) ruleset.Port {
	addr := netip.MustParseAddr(clusterIP)
	frontend := ruleset.Frontend{Frontend: model.Frontend{Addr: addr, Protocol: model.TCP, Port: 80}, Class: ruleset.RefuseClass}
	if len(endpoints) > 0 {
		frontend.Class = ruleset.BalanceClass(len(endpoints))
	}
	port := ruleset.Port{
		ID:        model.PortID{Service: serviceName(service), Port: "http", Protocol: model.TCP, Family: model.FamilyOf(addr)},
		ClusterIP: addr,
		Frontends: []ruleset.Frontend{frontend},
	}
	for _, endpoint := range endpoints {
		port.Cluster = append(port.Cluster, netip.MustParseAddrPort(endpoint))
	}
	return port
}

func sticky(port ruleset.Port, timeout time.Duration) ruleset.Port {
	port.Affinity = timeout
	return port
}

// local puts the first endpoints of a port on this node.
func local(port ruleset.Port, count int) ruleset.Port {
	port.OnNode = port.Cluster[:count]
	return port
}

func serviceOf(ports ...ruleset.Port) ruleset.Service {
	return ruleset.Service{Name: ports[0].ID.Service, Ports: ports}
}

// emptyService is a Service that owns nothing.
func emptyService(name string) ruleset.Service { return ruleset.Service{Name: serviceName(name)} }

// operations returns a short form of a batch, a line for each operation: "+ set name", "- services key key", "0 chain
// lb-2". Families are written only where they are IPv6. The elements of an operation are sorted, because their order is
// irrelevant.
func operations(batch ruleset.Batch) []string {
	var lines []string
	for _, op := range batch.Ops {
		line := map[ruleset.Verb]string{ruleset.Add: "+", ruleset.Delete: "-", ruleset.Flush: "0"}[op.Verb]
		if op.Family == model.IPv6 {
			line = "ip6 " + line
		}
		lines = append(lines, line+" "+formatObject(op.Object))
	}
	return lines
}

func formatObject(object ruleset.Object) string {
	switch object := object.(type) {
	case ruleset.TableObject:
		return "table"
	case ruleset.CounterObject:
		return "counter " + object.Name
	case ruleset.SetObject:
		return "set " + object.Set.Name
	case ruleset.ChainObject:
		return "chain " + object.Chain.Name
	case ruleset.RulesObject:
		return "rules of " + object.Chain.Name
	case ruleset.ElementsObject:
		return object.Set.Name + ": " + strings.Join(formatElements(object.Set, slices.Collect(object.Elements)), ", ")
	}
	panic(fmt.Sprintf("object %T has no short form", object))
}

func formatElements(set ruleset.Set, elements []ruleset.Element) []string {
	var texts []string
	for _, element := range elements {
		text := formatTuple(set.Key, element.Key)
		if set.IsMap() && set.Value[0] == ruleset.TypeVerdict {
			text += " => " + formatVerdict(element.Verdict)
		} else if set.IsMap() {
			text += " => " + formatTuple(set.Value, element.Value)
		}
		texts = append(texts, text)
	}
	slices.Sort(texts)
	return texts
}

// formatTuple omits the protocol if it is TCP.
func formatTuple(types []ruleset.Type, tuple ruleset.Tuple) string {
	var texts []string
	addrs := []netip.Addr{tuple.Addr, tuple.Source}
	for _, fieldType := range types {
		switch fieldType {
		case ruleset.TypeAddr:
			texts, addrs = append(texts, addrs[0].String()), addrs[1:]
		case ruleset.TypePort:
			texts = append(texts, fmt.Sprint(tuple.Port))
		case ruleset.TypeClass:
			texts = append(texts, formatNumber(tuple.Number))
		case ruleset.TypeProto:
			if tuple.Proto != model.TCP {
				texts = append(texts, tuple.Proto.String())
			}
		case ruleset.TypeVerdict:
			panic("a verdict is not part of a tuple")
		}
	}
	return strings.Join(texts, " ")
}

func formatNumber(number uint32) string {
	size, isEndpoint, isNumber := ruleset.NumberKind(number)
	switch class := ruleset.Class(number); {
	case number == 0 || number>>24 == 0xf5: // a port has the number of its list once it is planned
		return "sources"
	case class == ruleset.RefuseClass:
		return "refuse"
	case class == ruleset.DropClass:
		return "drop"
	case class.IsSplit():
		return fmt.Sprintf("class/%d-local/%d", class.Slots(), class.LocalSlots())
	case class.IsBalanced():
		return fmt.Sprintf("class/%d", class.Slots())
	case number>>24 == 0xf7:
		return fmt.Sprintf("%ssticky/%d-%d", []string{"", "nodeport-"}[number&1], number>>6&0x1ffff, number>>1&0x1f)
	case number>>24 == 0xfa:
		return "dedicated"
	case isNumber && isEndpoint:
		return fmt.Sprintf("endpoint/%d", number&uint32(ruleset.SizeClasses()[size]-1))
	case isNumber:
		return "port"
	case number >= ruleset.ClusterSlot:
		return fmt.Sprintf("slot/%d", number-ruleset.ClusterSlot)
	case number >= ruleset.LocalSlot:
		return fmt.Sprintf("local-slot/%d", number-ruleset.LocalSlot)
	}
	return fmt.Sprintf("%#x", number)
}

// formatEndpoint formats the number of an endpoint of a port with few endpoints, none of which collides with it.
func formatEndpoint(endpoint string) string {
	const port = 0xf0000000
	return formatNumber(ruleset.NumberOf(port, netip.MustParseAddrPort(endpoint)))
}

func formatVerdict(verdict ruleset.Verdict) string {
	kind := map[ruleset.VerdictKind]string{ruleset.Drop: "drop", ruleset.Jump: "jump ", ruleset.Goto: "goto "}[verdict.Kind]
	return kind + verdict.Chain
}

// bothFamilies is a configuration with a prefix of pods in each family, and node ports on the node's primary
// addresses.
var bothFamilies = ruleset.Config{
	Families: model.Families,
	LocalTraffic: ruleset.LocalTraffic{
		Prefixes: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/32")},
	},
	NodePorts: model.NodePortAddresses{Primary: true},
}

// initialNodeState is the node state in which the tests start.
var initialNodeState = ruleset.NodeState{
	NodePortAddrs: []netip.Addr{netip.MustParseAddr("192.168.0.1"), netip.MustParseAddr("fd00:168::1")},
	ServiceCIDRs:  []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")},
}

// rig is a kernel in memory and the mirror of it.
type rig struct {
	ruleset.Tables
	mirror    *ruleset.Mirror
	nodeState ruleset.NodeState
}

// start runs a full sync of an empty kernel.
func start(t testing.TB, services ...ruleset.Service) *rig {
	t.Helper()
	r := &rig{nodeState: initialNodeState}
	mirror, plan := ruleset.PlanFullSync(bothFamilies, services, initialNodeState, nil)
	mustApply(t, &r.Tables, plan.Batch)
	r.mirror = mirror
	return r
}

// plan plans with the current node state.
func (r *rig) plan(services ...ruleset.Service) *ruleset.Plan {
	return r.mirror.Plan(services, r.nodeState)
}

// change plans, commits and accepts. It does not clean up.
func (r *rig) change(t testing.TB, services ...ruleset.Service) *ruleset.Plan {
	t.Helper()
	plan := r.plan(services...)
	mustApply(t, &r.Tables, plan.Prerequisites)
	mustApply(t, &r.Tables, plan.Batch)
	r.mirror.Accept(plan)
	return plan
}

// changeNodeState changes the node state and nothing else.
func (r *rig) changeNodeState(t testing.TB, state ruleset.NodeState) *ruleset.Plan {
	t.Helper()
	r.nodeState = state
	return r.change(t)
}

func (r *rig) cleanUp(t testing.TB) []string {
	t.Helper()
	return cleanUpAll(t, &r.Tables, r.mirror)
}

// cleanUpAll cleans up until nothing is left over, and returns all operations.
func cleanUpAll(t testing.TB, tables *ruleset.Tables, mirror *ruleset.Mirror) []string {
	t.Helper()
	var cleaned []string
	for batch := mirror.Cleanup(1 << 20); len(batch.Ops) > 0; batch = mirror.Cleanup(1 << 20) {
		mustApply(t, tables, batch)
		mirror.CleanupDone()
		cleaned = append(cleaned, operations(batch)...)
	}
	return cleaned
}

// planned returns the operations of both batches of a plan.
func planned(plan *ruleset.Plan) []string {
	return append(operations(plan.Prerequisites), operations(plan.Batch)...)
}

func mustApply(t testing.TB, tables *ruleset.Tables, batch ruleset.Batch) {
	t.Helper()
	if err := tables.Apply(batch); err != nil {
		t.Fatalf("apply %s: %v", strings.Join(operations(batch), "; "), err)
	}
}

func text(t testing.TB, tables *ruleset.Tables) string {
	t.Helper()
	var printed strings.Builder
	if err := tables.Print(&printed); err != nil {
		t.Fatalf("print the tables: %v", err)
	}
	return printed.String()
}
