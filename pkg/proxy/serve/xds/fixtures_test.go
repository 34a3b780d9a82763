package xds

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

const domain = "cluster.local"

// testCluster is a cluster from the point of view of node-1 in zone a, and its table.
type testCluster struct {
	cluster *model.Cluster
	planner *selection.Planner
	table   *Table
	usage   usageTracker
}

func newTestCluster() *testCluster {
	cluster := model.NewCluster("node-1")
	t := &testCluster{cluster: cluster, planner: selection.NewPlanner(cluster), table: NewTable(domain)}
	t.apply(model.Change{Nodes: map[string]*model.Node{
		"node-1": {Name: "node-1", Labels: map[string]string{string(policy.Zone): "a"}},
	}})
	return t
}

// apply applies a change to the cluster, and the resulting decisions to the table.
func (t *testCluster) apply(change model.Change) {
	dirty := t.cluster.Apply(change)
	t.planner.ApplyChange(change)
	for _, name := range dirty {
		var digest any
		if decisions := t.planner.Decide(name, model.Families); len(decisions) > 0 {
			digest = t.table.Derive(decisions)
		}
		t.table.OnApplied(name, digest)
	}
}

// addService adds a Service with topology keys, ports, and endpoints such as "1@node-2/b".
func (t *testCluster) addService(name, keys string, ports []uint16, endpoints string) {
	service := &model.Service{
		Name: nameOf(name), ClusterIPs: []netip.Addr{addrOf(name)},
		Topology: policy.Topology{Keys: keysOf(keys)},
	}
	slice := &model.EndpointSlice{Name: nameOf(name + "-1"), Service: nameOf(name)}
	for _, port := range ports {
		port := model.ServicePort{Name: fmt.Sprint("port-", port), Protocol: model.TCP, Port: port}
		service.Ports = append(service.Ports, port)
		slice.Ports = append(slice.Ports, model.SlicePort{Name: port.Name, Protocol: model.TCP, Port: 8000 + port.Port})
	}
	for word := range strings.FieldsSeq(endpoints) {
		lastText, location, _ := strings.Cut(word, "@")
		node, zone, _ := strings.Cut(location, "/")
		var last byte
		_, _ = fmt.Sscan(lastText, &last)
		slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{
			Addr: netip.AddrFrom4([4]byte{10, 0, 0, last}), Endpoint: model.Endpoint{Node: node, Zone: zone, Ready: true, Serving: true},
		})
	}
	t.apply(model.Change{
		Services: map[model.ObjectName]*model.Service{service.Name: service},
		Slices:   map[model.ObjectName]*model.EndpointSlice{slice.Name: slice},
	})
}

// remove deletes a Service.
func (t *testCluster) remove(name string) {
	t.apply(model.Change{
		Services: map[model.ObjectName]*model.Service{nameOf(name): nil},
		Slices:   map[model.ObjectName]*model.EndpointSlice{nameOf(name + "-1"): nil},
	})
}

func keysOf(text string) []policy.Key {
	var keys []policy.Key
	for word := range strings.FieldsSeq(text) {
		switch word {
		case "hostname":
			word = string(policy.Hostname)
		case "zone":
			word = string(policy.Zone)
		}
		keys = append(keys, policy.Key(word))
	}
	return keys
}

func nameOf(name string) model.ObjectName { return model.ObjectName{Namespace: "shop", Name: name} }

// addrOf returns a ClusterIP for each name.
func addrOf(name string) netip.Addr {
	sum := uint32(0)
	for _, b := range []byte(name) {
		sum = sum*31 + uint32(b)
	}
	return netip.AddrFrom4([4]byte{10, 96, byte(sum >> 8), byte(sum)})
}

// receivedResponse is a short form of a response, as these tests parse it. In package e2e/xds real clients parse it.
type receivedResponse struct {
	version, nonce string
	resourceKind   kind
	names          []string
	// tiers are those of the first assignment: "1 2 (a, 2) | 3 (b, 1)": the last bytes of addresses, the zone, the weight.
	tiers string
}

func read(t *testing.T, response []byte) receivedResponse {
	t.Helper()
	if response == nil {
		return receivedResponse{}
	}
	got := receivedResponse{resourceKind: numKinds}
	fields(t, response, func(number int, value []byte) {
		switch number {
		case 1:
			got.version = string(value)
		case 2:
			got.readResource(t, value)
		case 4:
			k, ok := kindOf(string(value))
			if !ok {
				t.Errorf("response of unexpected type %s", value)
			}
			got.resourceKind = k
		case 5:
			got.nonce = string(value)
		}
	})
	return got
}

func (r *receivedResponse) readResource(t *testing.T, resource []byte) {
	t.Helper()
	fields(t, resource, func(number int, value []byte) {
		if number == 1 && string(value) != typeURLs[r.resourceKind] {
			t.Errorf("resource of type %s in a response of %s", value, r.resourceKind)
		}
		if number != 2 {
			return
		}
		tiers := map[uint64][]string{}
		fields(t, value, func(number int, value []byte) {
			switch {
			case number == 1:
				r.names = append(r.names, string(value))
			case number == 2 && r.resourceKind == assignments:
				priority, locality := readLocality(t, value)
				tiers[priority] = append(tiers[priority], locality)
			}
		})
		var parts []string
		for priority := range uint64(len(tiers)) {
			parts = append(parts, strings.Join(tiers[priority], ", "))
		}
		if len(r.names) == 1 {
			r.tiers = strings.Join(parts, " | ")
		}
	})
}

func readLocality(t *testing.T, message []byte) (priority uint64, locality string) {
	t.Helper()
	var endpoints []string
	zone, weight := "", uint64(0)
	for rest := message; len(rest) > 0; {
		number, wireType, n := protowire.ConsumeTag(rest)
		if wireType == protowire.VarintType && number == 5 {
			priority, _ = protowire.ConsumeVarint(rest[n:])
		}
		rest = rest[n+protowire.ConsumeFieldValue(number, wireType, rest[n:]):]
	}
	fields(t, message, func(number int, value []byte) {
		switch number {
		case 1:
			fields(t, value, func(_ int, value []byte) { zone += string(value) })
		case 2:
			text := string(value)
			at := strings.Index(text, "10.0.0.")
			end := strings.IndexFunc(text[at+7:], func(r rune) bool { return r < '0' || r > '9' })
			endpoints = append(endpoints, text[at+7:at+7+end])
		case 3:
			weight, _ = protowire.ConsumeVarint(value[1:])
		}
	})
	return priority, fmt.Sprintf("%s (%s, %d)", strings.Join(endpoints, " "), zone, weight)
}

func fields(t *testing.T, message []byte, take func(int, []byte)) {
	t.Helper()
	if err := eachField(message, func(number int, value []byte) error { take(number, value); return nil }); err != nil {
		t.Errorf("%v: %s", err, base64.StdEncoding.EncodeToString(message))
	}
}

// client sends requests to a session, and reads its responses.
type client struct {
	t          *testing.T
	session    *session
	lastNonces [numKinds]string // nonces
}

// newSession returns a session of a client of the socket.
func (t *testCluster) newSession(defaultType string) *session {
	t.usage.admit(netip.Addr{}, usageCounts{openStreams: 1})
	return newSession(t.table, &t.usage, netip.Addr{}, defaultType)
}

func (t *testCluster) newClient(test *testing.T) *client {
	return &client{t: test, session: t.newSession("")}
}

func (c *client) subscribe(k kind, names ...string) requestResult {
	result, _ := c.session.handleRequest(request{typeURL: typeURLs[k], nonce: c.lastNonces[k], names: names})
	return result
}

// nextResponse returns the next response, and acknowledges it with the same names.
func (c *client) nextResponse() receivedResponse {
	c.t.Helper()
	_, response, _ := c.session.next()
	got := read(c.t, response)
	if response != nil {
		c.lastNonces[got.resourceKind] = got.nonce
		if result := c.subscribe(got.resourceKind, c.subscriptionOf(got.resourceKind)...); result.isNACK || len(result.added)+len(result.removed)+
			len(result.unknownNames) > 0 {
			c.t.Errorf("an acknowledgement was processed as %+v", result)
		}
	}
	return got
}

func (c *client) subscriptionOf(k kind) []string {
	var names []string
	for name := range c.session.stream.subscriptions[k].names {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// expect expects a response of a kind, with these names, and with these tiers of the only assignment.
func (c *client) expect(k kind, names, tiers string) {
	c.t.Helper()
	got := c.nextResponse()
	if got.nonce == "" || got.version == "" || got.resourceKind != k || strings.Join(got.names, " ") != names || got.tiers != tiers {
		c.t.Errorf("got %s of %q: %q, want %s of %q: %q", got.resourceKind, strings.Join(got.names, " "), got.tiers, k, names, tiers)
	}
}

func (c *client) expectNothing() {
	c.t.Helper()
	if _, response, _ := c.session.next(); response != nil {
		c.t.Errorf("got %+v, want no response", read(c.t, response))
	}
}
