package proxy_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// scriptedKernel is the kernel in memory with a test's hand in it. A hook that is nil does nothing.
type scriptedKernel struct {
	memoryKernel
	// refuse is asked before each batch that is not empty, when the earlier ones are done.
	refuse func(ruleset.Batch) error
	// committed is called after each batch that was done.
	committed func(ruleset.Batch)
	// known are the last numbers that the endpoints of stickyService were seen with: a packet may have drawn such a
	// number.
	known map[int]uint32
	// blind is the error of asking what a table holds.
	blind error
	// slow is how long each batch takes.
	slow time.Duration
}

func (k *scriptedKernel) Commit(ctx context.Context, batch ruleset.Batch) error {
	if len(batch.Ops) == 0 {
		return nil
	}
	time.Sleep(k.slow)
	if k.refuse != nil {
		if err := k.refuse(batch); err != nil {
			return err
		}
	}
	if err := k.memoryKernel.Commit(ctx, batch); err != nil {
		return err
	}
	if k.committed != nil {
		k.committed(batch)
	}
	return nil
}

func (k *scriptedKernel) Objects(ctx context.Context, family model.Family) (ruleset.Objects, error) {
	if k.blind != nil {
		return ruleset.Objects{}, k.blind
	}
	return k.memoryKernel.Objects(ctx, family)
}

// refuseAll refuses every batch.
func refuseAll(ruleset.Batch) error { return errInjected }

// refuseSweeps refuses the batches that remove chains and sets, and nothing else.
func refuseSweeps(batch ruleset.Batch) error {
	for _, op := range batch.Ops {
		switch op.Object.(type) {
		case ruleset.ChainObject, ruleset.SetObject:
			if op.Verb == ruleset.Delete {
				return errInjected
			}
		}
	}
	return nil
}

// rebuilds reports whether a batch deletes a table.
func rebuilds(batch ruleset.Batch) bool {
	return slices.ContainsFunc(batch.Ops, func(op ruleset.Op) bool {
		_, isTable := op.Object.(ruleset.TableObject)
		return isTable && op.Verb == ruleset.Delete
	})
}

const affinityTimeout = time.Hour

// stickyService has session affinity and the given endpoints, 10.244.0.N.
func stickyService(endpoints ...int) model.Change {
	name := model.ObjectName{Namespace: "default", Name: "sticky"}
	slice := &model.EndpointSlice{Name: name, Service: name, Ports: []model.SlicePort{{Protocol: model.TCP, Port: 8080}}}
	for _, number := range endpoints {
		slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{
			Addr: podAddr(number), Endpoint: model.Endpoint{Node: "elsewhere", Ready: true, Serving: true},
		})
	}
	service := &model.Service{
		Name: name, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.9.9")}, AffinityTimeout: affinityTimeout,
		Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80}},
	}
	return model.Change{
		Services: map[model.ObjectName]*model.Service{name: service}, Slices: map[model.ObjectName]*model.EndpointSlice{name: slice},
	}
}

func podAddr(number int) netip.Addr { return netip.AddrFrom4([4]byte{10, 244, 0, byte(number)}) }

// stickyFrontend is the frontend of stickyService.
var stickyFrontend = ruleset.Tuple{Addr: netip.MustParseAddr("10.96.9.9"), Proto: model.TCP, Port: 80}

// numberOf returns the number of the port of stickyService, and the map in which its clients are remembered; no number if
// they are not.
func (k *scriptedKernel) numberOf(t testing.TB) (port uint32, clients ruleset.Set) {
	t.Helper()
	for _, element := range elementsIfThere(&k.memoryKernel, model.IPv4, ruleset.Services) {
		if element.Key == stickyFrontend && isSticky(ruleset.Class(element.Value.Number)) {
			clients = ruleset.Affinity(element.Value.Number >> 1 & 0x1f)
		}
	}
	for _, element := range elementsIfThere(&k.memoryKernel, model.IPv4, ruleset.StickyPorts) {
		if element.Key == stickyFrontend {
			port = element.Value.Number
		}
	}
	return port, clients
}

// endpoints returns the endpoints of stickyService by their numbers.
func (k *scriptedKernel) endpoints(t testing.TB) map[uint32]int {
	t.Helper()
	port, _ := k.numberOf(t)
	endpoints := map[uint32]int{}
	if k.known == nil {
		k.known = map[int]uint32{}
	}
	for _, set := range []ruleset.Set{ruleset.Numbered, ruleset.NumberedCollided} {
		for _, element := range elementsIfThere(&k.memoryKernel, model.IPv4, set) {
			if element.Key.Proto == model.TCP && portOf(element.Key.Number) == port {
				endpoint := int(element.Value.Addr.As4()[3])
				endpoints[element.Key.Number], k.known[endpoint] = endpoint, element.Key.Number
			}
		}
	}
	return endpoints
}

// remember is what the sticky chain does for a client, 192.0.2.N, that drew an endpoint.
func (k *scriptedKernel) remember(t testing.TB, client, endpoint int) {
	t.Helper()
	k.endpoints(t)
	port, clients := k.numberOf(t)
	element := ruleset.Element{
		Key:   ruleset.Tuple{Addr: netip.AddrFrom4([4]byte{192, 0, byte(2 + client>>8), byte(client)}), Number: port},
		Value: ruleset.Tuple{Number: k.known[endpoint]},
	}
	batch := ruleset.Batch{Ops: []ruleset.Op{{Verb: ruleset.Add, Family: model.IPv4, Object: ruleset.ElementsObject{
		Set: clients, Elements: slices.Values([]ruleset.Element{element}),
	}}}}
	if err := k.Apply(batch); err != nil || k.known[endpoint] == 0 {
		t.Fatalf("client %d and endpoint %d, of the number %x: %v", client, endpoint, k.known[endpoint], err)
	}
}

// remembered returns the clients that come back to their endpoint, as client:endpoint.
func (k *scriptedKernel) remembered(t testing.TB) []string {
	t.Helper()
	port, clients := k.numberOf(t)
	endpoints := k.endpoints(t)
	var list []string
	for _, element := range elementsIfThere(&k.memoryKernel, model.IPv4, clients) {
		endpoint, isThere := endpoints[element.Value.Number]
		if isThere && element.Key.Number == port {
			list = append(list, fmt.Sprintf("%d:%d", element.Key.Addr.As4()[3], endpoint))
		}
	}
	return list
}
