//go:build linux

package conntrackgc

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/serviceindex"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// The addresses of the tests.
var (
	clusterScope = selection.Scope{
		Pods:      []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/32")},
		NodePorts: []netip.Addr{netip.MustParseAddr("172.30.0.1"), netip.MustParseAddr("fd00:30::1")},
	}
	// withoutPods is the scope of a node without configured pod addresses.
	withoutPods = selection.Scope{NodePorts: clusterScope.NodePorts}
	// onAllAddrs is the scope of a node that serves node ports on every address.
	onAllAddrs = selection.Scope{Pods: clusterScope.Pods, AllAddrFamilies: model.Families}
)

// isLocalAddr simulates the kernel of a node with three addresses, one of which is local only by a route.
func isLocalAddr(addr netip.Addr) (bool, error) {
	switch addr.String() {
	case "172.30.0.1", "192.168.0.1", "198.51.100.7":
		return true, nil
	}
	return false, nil
}

const (
	pod, node, host = "10.244.1.9:40000", "172.30.0.1:40000", "172.30.0.201:40000"
	host6           = "[fd00:30::c9]:40000"
)

// testCluster is a cluster with one Service whose connections are classified.
type testCluster struct {
	cluster *model.Cluster
	planner *selection.Planner
	index   *serviceindex.Index
	scope   selection.Scope
	// isComplete is set if syncs are full.
	isComplete  bool
	lastScanned uint64 // number of the last sync before a scan
}

var shop = model.ObjectName{Namespace: "shop", Name: "web"}

const (
	servicePort    = 80
	nodePortNumber = 30080
	endpointPort   = 8080
)

// newTestCluster returns a cluster whose Service has endpoints on this node and elsewhere: "here ADDR", "there ADDR".
func newTestCluster(edit func(*model.Service), endpoints ...string) *testCluster {
	c := &testCluster{cluster: model.NewCluster("here"), index: serviceindex.New(StaleEntryWindow), scope: clusterScope}
	c.planner = selection.NewPlanner(c.cluster)
	service := &model.Service{Name: shop, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00:96::a")}}
	service.ExternalIPs = []netip.Addr{netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("2001:db8::1")}
	for _, protocol := range []model.Protocol{model.TCP, model.SCTP} {
		port := model.ServicePort{Name: protocol.String(), Protocol: protocol, Port: servicePort, NodePort: nodePortNumber}
		service.Ports = append(service.Ports, port)
	}
	if edit != nil {
		edit(service)
	}
	c.cluster.Apply(model.Change{
		Services: map[model.ObjectName]*model.Service{shop: service}, Nodes: map[string]*model.Node{"here": {Name: "here"}},
	})
	c.serve(endpoints...)
	return c
}

// serve replaces the endpoints, in one sync.
func (c *testCluster) serve(endpoints ...string) {
	slices := map[model.ObjectName]*model.EndpointSlice{}
	for _, family := range model.Families {
		slice := &model.EndpointSlice{Name: model.ObjectName{Namespace: "shop", Name: family.String()}, Service: shop, Family: family}
		for _, protocol := range model.Protocols {
			slice.Ports = append(slice.Ports, model.SlicePort{Name: protocol.String(), Protocol: protocol, Port: endpointPort})
		}
		for i := 0; i < len(endpoints); i += 2 {
			addr := netip.MustParseAddr(endpoints[i+1])
			if model.FamilyOf(addr) == family {
				slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{
					Addr: addr, Endpoint: model.Endpoint{Node: endpoints[i], Ready: true, Serving: true},
				})
			}
		}
		slices[slice.Name] = slice
	}
	c.cluster.Apply(model.Change{Slices: slices})
	c.synced()
}

func (c *testCluster) synced() {
	c.index.OnApplied(shop, c.index.Derive(c.planner.Decide(shop, model.Families)))
	c.index.OnSynced(selection.SyncState{Scope: c.scope, Full: c.isComplete})
}

func (c *testCluster) newClassifier(now time.Time) *classifier {
	return &classifier{now: now, snapshot: c.index.Snapshot(), index: c.index, isLocal: isLocalAddr, lastScanned: c.lastScanned}
}

const label = 86

// unrepliedEntry returns the entry of an unreplied TCP connection.
func unrepliedEntry(client, origDst, replySrc string) conntrack.Entry {
	from, to, endpoint := netip.MustParseAddrPort(client), netip.MustParseAddrPort(origDst), netip.MustParseAddrPort(replySrc)
	e := conntrack.Entry{
		Protocol: model.TCP, Original: conntrack.Tuple{Source: from, Destination: to},
		Reply:  conntrack.Tuple{Source: endpoint, Destination: from},
		Status: conntrack.DestinationNAT, State: conntrack.TCPSynSent,
	}
	e.Labels[label/8] = 1 << (label % 8)
	return e
}

func with(e conntrack.Entry, edit func(*conntrack.Entry)) conntrack.Entry {
	edit(&e)
	return e
}

func inState(state uint8) func(*conntrack.Entry) {
	return func(e *conntrack.Entry) { e.Status, e.State = e.Status|conntrack.SeenReply, state }
}

func TestWhichConnectionsAreStale(t *testing.T) {
	const (
		clusterIP, external, nodePort = "10.96.0.10:80", "203.0.113.1:80", "172.30.0.1:30080"
		removed, serving, unknown     = "10.244.2.1:8080", "10.244.1.1:8080", "10.244.7.7:8080"
	)
	local := func(s *model.Service) { s.ExternalTrafficLocal = true }
	fromHost := func(origDst, replySrc string) conntrack.Entry { return unrepliedEntry(host, origDst, replySrc) }
	ofSCTP := func(e *conntrack.Entry) { e.Protocol = model.SCTP }
	for name, test := range map[string]struct {
		edit  func(*model.Service)
		entry conntrack.Entry
		want  Class
	}{
		"its endpoint was removed":                   {nil, fromHost(clusterIP, removed), StaleUnreplied},
		"over an external IP":                        {nil, fromHost(external, removed), StaleUnreplied},
		"over a node port":                           {nil, fromHost(nodePort, removed), StaleUnreplied},
		"in IPv6":                                    {nil, unrepliedEntry(host6, "[fd00:96::a]:80", "[fd00:244::2]:8080"), StaleUnreplied},
		"of SCTP":                                    {nil, with(fromHost(clusterIP, removed), ofSCTP), StaleUnreplied},
		"its frontend was removed":                   {nil, fromHost("10.96.0.77:80", removed), StaleUnreplied},
		"its endpoint serves":                        {nil, fromHost(clusterIP, serving), EndpointAllowed},
		"its endpoint was never known":               {nil, fromHost(clusterIP, unknown), EndpointActive},
		"it has a reply":                             {nil, with(fromHost(clusterIP, removed), inState(conntrack.TCPEstablished)), Established},
		"it is being closed":                         {nil, with(fromHost(clusterIP, removed), inState(conntrack.TCPFinWait)), Established},
		"it has a SYN as reply":                      {nil, with(fromHost(clusterIP, removed), inState(conntrack.TCPSynReceived)), Established},
		"it is closed, and its endpoint was removed": {nil, with(fromHost(clusterIP, removed), inState(conntrack.TCPTimeWait)), StaleClosed},
		"it was reset, and its endpoint was removed": {nil, with(fromHost(clusterIP, removed), inState(conntrack.TCPClose)), StaleClosed},
		"it is closed, and its endpoint serves":      {nil, with(fromHost(clusterIP, serving), inState(conntrack.TCPTimeWait)), EndpointAllowed},
		"an association is open": {nil, with(with(fromHost(clusterIP, removed), ofSCTP), inState(conntrack.SCTPEstablished)),
			Established},
		"an association is closed": {nil, with(with(fromHost(clusterIP, removed), ofSCTP), inState(conntrack.SCTPClosed)),
			StaleClosed},
		"an association is reopened": {nil, with(with(fromHost(clusterIP, removed), ofSCTP), inState(conntrack.SCTPCookieWait)),
			StaleClosed},
		"another program translated it": {nil, with(fromHost(clusterIP, removed), func(e *conntrack.Entry) { e.Labels = [16]byte{} }),
			Foreign},
		"it is not translated": {nil, with(fromHost(clusterIP, removed), func(e *conntrack.Entry) { e.Status = 0 }), Foreign},
		"it is in a zone":      {nil, with(fromHost(clusterIP, removed), func(e *conntrack.Entry) { e.Zone = 7 }), Foreign},

		"Local, from outside to an endpoint on another node": {local, fromHost(external, "10.244.2.2:8080"), EndpointActive},
		"Local, from a pod":               {local, unrepliedEntry(pod, external, "10.244.2.2:8080"), EndpointAllowed},
		"Local, its endpoint was removed": {local, fromHost(external, removed), StaleUnreplied},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTestCluster(test.edit, "here", "10.244.1.1", "there", "10.244.2.1", "there", "10.244.2.2", "there", "fd00:244::2")
			c.serve("here", "10.244.1.1", "there", "10.244.2.2", "here", "fd00:244::1")
			// An endpoint that may serve may have been removed and added again. Usually it was not removed.
			want := test.want
			if want == EndpointAllowed {
				want = EndpointActive
			}
			later := time.Now().Add(StaleEntryWindow + time.Second)
			if got, err := c.newClassifier(later).classify(&test.entry); got != want || err != nil {
				t.Errorf("%s, %v; want %s", got, err, want)
			}
			// Right after the start, removed endpoints are unknown.
			if want = test.want; want == EndpointActive {
				want = StaleUnreplied
			}
			if got, err := c.newClassifier(time.Now()).classify(&test.entry); got != want || err != nil {
				t.Errorf("after the start: %s, %v; want %s", got, err, want)
			}
		})
	}
}

func TestAnEntryStaysIfTheOriginOfItsClientIsUnknown(t *testing.T) {
	c := newTestCluster(func(s *model.Service) { s.ExternalTrafficLocal = true }, "there", "10.244.2.1")
	classifier := c.newClassifier(time.Now())
	classifier.isLocal = func(netip.Addr) (bool, error) { return false, errors.New("no response") }
	e := unrepliedEntry(host, "203.0.113.1:80", "10.244.2.1:8080")
	if class, err := classifier.classify(&e); class != ClientUnknown || err == nil {
		t.Errorf("%s, %v; want ClientUnknown and an error", class, err)
	}
}

func TestConnectionQueries(t *testing.T) {
	addr := netip.MustParseAddr
	four := []netip.Addr{addr("10.0.0.1"), addr("10.0.0.2"), addr("10.0.0.3"), addr("10.0.0.4")}
	unreplied := func(family conntrack.Families) query {
		return query{conntrack.Filter{Family: family, Status: translated, Mask: replied}, false}
	}
	closed := func(family conntrack.Families) query {
		return query{conntrack.Filter{Family: family, Status: replied, Mask: replied}, true}
	}
	for name, test := range map[string]struct {
		addrs    []netip.Addr
		isUnsure bool
		want     []query
	}{
		"nothing removed": {nil, false, nil},
		"unknown":         {four, true, []query{unreplied(conntrack.BothFamilies)}},
		"a few of IPv4": {four, false, []query{{
			conntrack.Filter{Family: conntrack.OnlyIPv4, Status: translated, Mask: translated, ReplySrcs: four}, false,
		}}},
		"many of IPv4": {append(four, addr("10.0.0.5")), false, []query{unreplied(conntrack.OnlyIPv4), closed(conntrack.OnlyIPv4)}},
		"one of IPv6":  {[]netip.Addr{addr("fd00::1")}, false, []query{unreplied(conntrack.OnlyIPv6), closed(conntrack.OnlyIPv6)}},
	} {
		same := cmp.Options{cmp.AllowUnexported(query{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })}
		if diff := cmp.Diff(test.want, connectionQueries(test.addrs, test.isUnsure, true), same); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if queries := connectionQueries(append(four, addr("10.0.0.5")), false, false); len(queries) != 1 || queries[0].scansReplied {
		t.Errorf("closed ones are not due, but the queries are %+v", queries)
	}
}
