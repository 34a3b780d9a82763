//go:build linux

package conntrackgc

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/connections"
)

// ofUDP gives a Service a UDP port and a load balancer's address.
func ofUDP(service *model.Service) {
	service.Ports = append(service.Ports, model.ServicePort{Name: "UDP", Protocol: model.UDP, Port: servicePort, NodePort: nodePortNumber})
	service.LoadBalancerIPs = []netip.Addr{netip.MustParseAddr("203.0.113.2")}
}

// flow returns a UDP entry that another program may have created. Its reply source shows which.
func flow(client, origDst, replySrc string) conntrack.Entry {
	e := unrepliedEntry(client, origDst, replySrc)
	e.Protocol, e.Labels = model.UDP, [16]byte{}
	return e
}

// withOwnLabel adds the conntrack label of our tables to an entry.
func withOwnLabel(e *conntrack.Entry) { e.Labels[label/8] = 1 << (label % 8) }

func inZone(e *conntrack.Entry) { e.Zone = 7 }

// change modifies the Service and its endpoints in one sync.
func (c *testCluster) change(edit func(*model.Service), endpoints ...string) {
	edited := *c.cluster.Service(shop)
	edited.Ports = slices.Clone(edited.Ports)
	edit(&edited)
	c.cluster.Apply(model.Change{Services: map[model.ObjectName]*model.Service{shop: &edited}})
	c.serve(endpoints...)
}

// remove deletes the Service but not its EndpointSlices.
func (c *testCluster) remove() {
	c.cluster.Apply(model.Change{Services: map[model.ObjectName]*model.Service{shop: nil}})
	c.synced()
}

// The cases vary by the change since the last scan, for a Service with an endpoint on this node and one on another.
func TestWhichFlowsAreStale(t *testing.T) {
	const (
		clusterIP, external, balancer, six = "10.96.0.10:80", "203.0.113.1:80", "203.0.113.2:80", "[fd00:96::a]:80"
		here, there, here6, there6         = "10.244.1.1:8080", "10.244.2.1:8080", "[fd00:244::1]:8080", "[fd00:244::2]:8080"
		served, unserved                   = "172.30.0.1:30080", "192.168.0.1:30080"
		routed                             = "198.51.100.7:30080" // an address that is local only by a route
		foreign                            = "203.0.113.9:53"     // no endpoint is there
	)
	all := []string{"here", "10.244.1.1", "there", "10.244.2.1", "here", "fd00:244::1", "there", "fd00:244::2"}
	remaining := []string{"here", "10.244.1.1", "here", "fd00:244::1"}
	removeRemote := func(tc *testCluster) { tc.serve(remaining...) }
	removeAll := func(tc *testCluster) { tc.serve() }
	unchanged := func(tc *testCluster) { tc.serve(all...) }
	fullSync := func(tc *testCluster) { tc.isComplete = true; tc.serve(all...) }
	addFirst := func(tc *testCluster) { tc.serve(); tc.lastScanned = tc.index.Snapshot().Number; tc.serve(all...) }
	local := func(tc *testCluster) { tc.change(func(s *model.Service) { s.ExternalTrafficLocal = true }, all...) }
	restrictSources := func(tc *testCluster) {
		tc.change(func(s *model.Service) { s.SourceRanges = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")} }, all...)
	}
	renumber := func(tc *testCluster) { tc.change(func(s *model.Service) { s.Ports[2].NodePort++ }, all...) }
	inScope := func(scope selection.Scope, change func(*testCluster)) func(*testCluster) {
		return func(tc *testCluster) {
			tc.scope = scope
			tc.synced()
			tc.lastScanned = tc.index.Snapshot().Number
			change(tc)
		}
	}
	readdress := func(tc *testCluster) { tc.scope.NodePorts = tc.scope.NodePorts[1:]; tc.synced() }
	unreachable := func(isLasting bool) func(*testCluster) {
		return func(tc *testCluster) {
			key := model.DemotionKey{Node: "there", Reason: model.Unreachable}
			tc.cluster.Apply(model.Change{Demotions: map[model.DemotionKey]*model.Demotion{key: {Reason: model.Unreachable, IsLasting: isLasting}}})
			tc.synced()
		}
	}
	onlyRemote := func(tc *testCluster) { tc.serve("there", "10.244.2.1", "there", "fd00:244::2") }
	then := func(before, change func(*testCluster)) func(*testCluster) {
		return func(tc *testCluster) { before(tc); tc.lastScanned = tc.index.Snapshot().Number; change(tc) }
	}
	first := func(change func(*testCluster)) func(*testCluster) {
		return func(tc *testCluster) { change(tc); tc.lastScanned = 0 }
	}
	fromHost := func(origDst, replySrc string) conntrack.Entry { return flow(host, origDst, replySrc) }
	established := with(fromHost(clusterIP, there), func(e *conntrack.Entry) { e.Status |= conntrack.SeenReply })
	for name, test := range map[string]struct {
		change func(*testCluster)
		entry  conntrack.Entry
		want   Class
	}{
		"its endpoint was removed":          {removeRemote, fromHost(clusterIP, there), EndpointNotAllowed},
		"its endpoint serves":               {removeRemote, fromHost(clusterIP, here), EndpointAllowed},
		"its endpoint was removed, in IPv6": {removeRemote, flow(host6, six, there6), EndpointNotAllowed},
		"its endpoint serves, in IPv6":      {removeRemote, flow(host6, six, here6), EndpointAllowed},
		"it is in a zone":                   {removeRemote, with(fromHost(clusterIP, there), inZone), EndpointNotAllowed},
		"another port of the pod replies":   {removeRemote, fromHost(clusterIP, "10.244.1.1:8081"), EndpointNotAllowed},
		"another program translated it":     {removeRemote, fromHost(clusterIP, foreign), EndpointNotAllowed},
		"another frontend's":                {removeRemote, fromHost("10.96.0.11:80", there), NotChanged},
		"another port's":                    {removeRemote, fromHost("10.96.0.10:81", there), NotChanged},
		"from pod to pod":                   {removeRemote, flow(pod, there, there), NotChanged},
		"the last endpoint was removed":     {removeAll, fromHost(clusterIP, there), EndpointNotAllowed},
		"the Service was deleted":           {(*testCluster).remove, fromHost(clusterIP, there), EndpointNotAllowed},
		"nothing changed":                   {unchanged, fromHost(clusterIP, foreign), NotChanged},
		"endpoints were added": {
			func(tc *testCluster) { tc.serve(append(all, "here", "10.244.1.2")...) }, fromHost(clusterIP, foreign), NotChanged,
		},
		"ours of a former frontend, before the first scan": {first(removeRemote), with(fromHost("10.96.0.11:80", there), withOwnLabel),
			FrontendRemoved},
		"the same, after the first scan":       {removeRemote, with(fromHost("10.96.0.11:80", there), withOwnLabel), NotChanged},
		"another proxy's of a former frontend": {first(removeRemote), fromHost("10.96.0.11:80", there), NotChanged},
		"ours of a former frontend, in a zone of another program": {first(removeRemote),
			with(with(fromHost("10.96.0.11:80", there), withOwnLabel), inZone), NotChanged},
		"a full sync":                                   {fullSync, fromHost(clusterIP, foreign), EndpointNotAllowed},
		"the same, and its endpoint serves":             {fullSync, fromHost(clusterIP, there), EndpointAllowed},
		"a policy that does not apply to the ClusterIP": {local, fromHost(clusterIP, there), NotChanged},

		"its endpoint's node does not reply":                     {unreachable(false), established, Established},
		"the same, and the flow is unreplied":                    {unreachable(false), fromHost(clusterIP, there), EndpointNotAllowed},
		"its endpoint's node has not replied for long":           {then(unreachable(false), unreachable(true)), established, EndpointNotAllowed},
		"its endpoint's node does not reply, and it was removed": {then(unreachable(false), removeRemote), established, EndpointNotAllowed},
		"no endpoint's node replies":                             {then(unreachable(false), onlyRemote), established, EndpointAllowed},

		"untranslated, and the first endpoint was added": {addFirst, fromHost(clusterIP, clusterIP), PredatesEndpoints},
		"the same, in a zone":                            {addFirst, with(fromHost(clusterIP, clusterIP), inZone), Foreign},
		"untranslated, and the last one was removed":     {removeAll, fromHost(clusterIP, clusterIP), Foreign},
		"untranslated, and the Service was deleted":      {(*testCluster).remove, fromHost(clusterIP, clusterIP), Foreign},

		"Local, from outside":                             {local, fromHost(external, there), EndpointNotAllowed},
		"Local, from outside, to the local endpoint":      {local, fromHost(external, here), EndpointAllowed},
		"Local, from a pod":                               {local, flow(pod, external, there), EndpointAllowed},
		"Local, from this node":                           {local, flow(node, external, there), EndpointAllowed},
		"Local, from an address that is local by a route": {local, flow("198.51.100.7:1", external, there), EndpointAllowed},
		"Local, without pod addresses":                    {inScope(withoutPods, local), fromHost(external, there), EndpointAllowed},
		"Local, without pod addresses, from this node":    {inScope(withoutPods, local), flow(node, external, there), EndpointAllowed},

		"the source ranges exclude its client":             {restrictSources, fromHost(balancer, here), EndpointNotAllowed},
		"the source ranges include its client":             {restrictSources, flow(pod, balancer, here), EndpointAllowed},
		"the source ranges do not apply to an external IP": {restrictSources, fromHost(external, here), EndpointAllowed},
		"source ranges were removed": {func(tc *testCluster) {
			restrictSources(tc)
			tc.lastScanned = tc.index.Snapshot().Number
			tc.change(func(s *model.Service) { s.SourceRanges = nil }, all...)
		}, fromHost(balancer, foreign), NotChanged},

		"a node port":                      {removeRemote, fromHost(served, there), EndpointNotAllowed},
		"a node port, its endpoint serves": {removeRemote, fromHost(served, here), EndpointAllowed},
		"a node port, another number":      {removeRemote, fromHost("172.30.0.1:30081", there), NotChanged},
		"a node port in IPv6": {removeRemote, flow(host6, "[fd00:30::1]:30080", there6),
			EndpointNotAllowed},
		"a node port, to another program's address": {removeRemote, fromHost(served, foreign), Foreign},
		"the same, before the first scan":           {first(removeRemote), fromHost(served, foreign), EndpointNotAllowed},
		"the same, at another address":              {first(removeRemote), fromHost(unserved, foreign), Foreign},
		"the same, after a full sync":               {fullSync, fromHost(served, foreign), Foreign},
		"our tables sent it to a former endpoint": {removeRemote, with(fromHost(served, foreign), withOwnLabel),
			EndpointNotAllowed},
		"untranslated, to a node port":                       {addFirst, fromHost(served, served), PredatesEndpoints},
		"untranslated, at another address":                   {addFirst, fromHost(unserved, unserved), Foreign},
		"another address, its endpoint serves":               {removeRemote, fromHost(unserved, here), FrontendRemoved},
		"another address, its endpoint was removed":          {removeRemote, fromHost(unserved, there), FrontendRemoved},
		"another address, its Service was deleted":           {(*testCluster).remove, fromHost(unserved, there), FrontendRemoved},
		"another address, another port of the pod":           {removeRemote, fromHost(unserved, "10.244.1.1:8081"), Foreign},
		"the node port changed":                              {renumber, fromHost(served, there), EndpointNotAllowed},
		"the node port changed, at another address":          {renumber, fromHost(unserved, there), FrontendRemoved},
		"the address no longer serves node ports":            {readdress, fromHost(served, there), FrontendRemoved},
		"the addresses of node ports changed, the ClusterIP": {readdress, fromHost(clusterIP, foreign), NotChanged},
		"on all addresses, its endpoint serves":              {inScope(onAllAddrs, removeRemote), fromHost(unserved, here), EndpointAllowed},
		"on all addresses, local by a route, its endpoint was removed": {inScope(onAllAddrs, removeRemote), fromHost(routed, there),
			EndpointNotAllowed},
		"on all addresses, an address that is not local": {inScope(onAllAddrs, removeRemote), fromHost("198.51.100.8:30080", here),
			FrontendRemoved},
		"on all addresses, loopback": {inScope(onAllAddrs, removeRemote),
			flow(node, "127.0.0.1:30080", here), FrontendRemoved},
		"on all addresses, to another machine, untranslated": {inScope(onAllAddrs, addFirst),
			flow(pod, "198.51.100.8:30080", "198.51.100.8:30080"), Foreign},
		"an endpoint replies at its own address": {removeRemote, flow(pod, "10.244.1.1:30080", "10.244.1.1:30080"),
			Foreign},
	} {
		t.Run(name, func(t *testing.T) {
			tc := newTestCluster(ofUDP, all...)
			tc.lastScanned = tc.index.Snapshot().Number
			test.change(tc)
			if got, err := tc.newClassifier(time.Now()).classify(&test.entry); got != test.want || err != nil {
				t.Errorf("%s, %v; want %s", got, err, test.want)
			}
			if wantStale := slices.Contains([]Class{EndpointNotAllowed, FrontendRemoved, PredatesEndpoints},
				test.want); test.want.IsStale() != wantStale {
				t.Errorf("%s: IsStale is %v", test.want, !wantStale)
			}
		})
	}
}

// The other frontend has an address of its own and the same port number.
func TestAFlowOfANodePortIsStaleIfAnotherFrontendTakesItsAddress(t *testing.T) {
	const here = "10.244.1.1:8080"
	tc := newTestCluster(ofUDP, "here", "10.244.1.1")
	tc.lastScanned = tc.index.Snapshot().Number
	other := model.ObjectName{Namespace: "shop", Name: "z-other"}
	service := &model.Service{
		Name: other, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.11")}, ExternalIPs: []netip.Addr{netip.MustParseAddr("172.30.0.1")},
		Ports: []model.ServicePort{{Name: "UDP", Protocol: model.UDP, Port: nodePortNumber}},
	}
	tc.cluster.Apply(model.Change{Services: map[model.ObjectName]*model.Service{other: service}})
	tc.index.OnApplied(other, tc.index.Derive(tc.planner.Decide(other, model.Families)))
	tc.synced()
	e := flow(host, "172.30.0.1:30080", here)
	if got, err := tc.newClassifier(time.Now()).classify(&e); got != EndpointNotAllowed || err != nil {
		t.Errorf("classify = %s, %v; want EndpointNotAllowed", got, err)
	}
}

// The kernel is queried neither about clients whose endpoint may serve them anyway, nor about addresses of flows that
// cannot be the Service's. If the query fails, the flow stays.
func TestTheKernelIsQueriedOnlyIfNeeded(t *testing.T) {
	local := func(s *model.Service) { ofUDP(s); s.ExternalTrafficLocal = true }
	for name, test := range map[string]struct {
		entry   conntrack.Entry
		looksUp bool
	}{
		"not a frontend":                           {flow(host, "203.0.113.7:80", "10.244.1.1:8080"), false},
		"an endpoint for all clients":              {flow(host, "203.0.113.1:80", "10.244.1.1:8080"), false},
		"an endpoint for no client":                {flow(host, "203.0.113.1:80", "10.244.7.7:8080"), false},
		"an endpoint for internal clients":         {flow(host, "203.0.113.1:80", "10.244.2.1:8080"), true},
		"a node port's number, to another address": {flow(host, "198.51.100.7:30080", "203.0.113.9:53"), false},
		"a node port's number, to the endpoint":    {flow(host, "198.51.100.7:30080", "10.244.1.1:8080"), true},
	} {
		tc := newTestCluster(local, "here", "10.244.1.1", "there", "10.244.2.1")
		tc.scope, tc.isComplete, tc.lastScanned = onAllAddrs, true, 1
		tc.synced()
		calls := 0
		classifier := tc.newClassifier(time.Now())
		classifier.isLocal = func(netip.Addr) (bool, error) { calls++; return false, unix.ENOBUFS }
		class, err := classifier.classify(&test.entry)
		if (calls > 0) != test.looksUp || (err != nil) != test.looksUp || (class == ClientUnknown) != test.looksUp {
			t.Errorf("%s: %d queries, %s, %v", name, calls, class, err)
		}
	}
}

// flowsTo returns a table with flows to an endpoint.
func flowsTo(replySrc string, clients ...string) *recordingTable {
	table := &recordingTable{entries: map[netip.AddrPort]conntrack.Entry{}}
	for _, client := range clients {
		table.entries[netip.MustParseAddrPort(client)] = flow(client, "10.96.0.10:80", replySrc)
	}
	return table
}

// TestAScanOfFlows covers the families that changed. Flows that the kernel keeps are scanned again; if a scan fails,
// all of them are.
func TestAScanOfFlows(t *testing.T) {
	const removed = "10.244.2.1:8080"
	clients := []string{"10.244.9.1:1", "10.244.9.2:1", "10.244.9.3:1"}
	for name, test := range map[string]struct {
		refuses   []error
		fails     error
		ended     int
		wantError string
	}{
		"all are deleted":               {nil, nil, 3, ""},
		"the dump fails":                {nil, conntrack.ErrInterrupted, 3, "list UDP flows in conntrack: "},
		"one that the kernel keeps":     {[]error{unix.EBUSY}, nil, 2, "delete entry UDP from "},
		"several that the kernel keeps": {[]error{unix.EBUSY, nil, unix.EBUSY}, nil, 1, "busy; and 1 more"},
		"any other error stops it":      {[]error{nil, unix.EPERM}, nil, 1, "operation not permitted"},
	} {
		t.Run(name, func(t *testing.T) {
			tc := newTestCluster(ofUDP, "here", "10.244.1.1", "there", "10.244.2.1")
			table := flowsTo(removed, clients...)
			r := NewReconciler(conntrack.NewDumpScheduler(table, nil), tc.index, isLocalAddr)
			if done, err := r.CleanOnce(t.Context()); err != nil || done.Flows[model.IPv4].Deleted != 0 {
				t.Fatalf("at first: %+v, %v", done, err)
			}
			tc.serve("here", "10.244.1.1")
			table.deleteErrs, table.err = test.refuses, test.fails
			done, err := r.CleanOnce(t.Context())
			pass, exists := done.Flows[model.IPv4]
			if pass.Deleted != test.ended || !exists || len(done.Flows) != 1 {
				t.Errorf("%+v, want %d IPv4 flows deleted", done.Flows, test.ended)
			}
			if isError := err != nil; isError != (test.wantError != "") || isError && !strings.Contains(err.Error(), test.wantError) ||
				(pass.Duration > 0) == isError {
				t.Errorf("%s, %v; want %q", pass.Duration, err, test.wantError)
			}
			table.deleteErrs, table.err = nil, nil
			if done, err = r.CleanOnce(t.Context()); err != nil || len(table.entries) != 0 || done.Flows[model.IPv4].Deleted != 3-test.ended {
				t.Errorf("afterwards: %+v, %v, and %d remain", done.Flows, err, len(table.entries))
			}
			isRescanned := test.wantError != "" && test.ended == 3
			if done, err = r.CleanOnce(t.Context()); err != nil || len(done.Flows) > 0 && !isRescanned {
				t.Errorf("scanned again without a change: %+v, %v", done.Flows, err)
			}
		})
	}
}

// The endpoint is added again while the flows of a scan are deleted.
func TestAFlowWhoseEndpointIsAddedAgainStays(t *testing.T) {
	tc := newTestCluster(ofUDP, "here", "10.244.1.1", "there", "10.244.2.1")
	table := flowsTo("10.244.2.1:8080", "10.244.9.1:1", "10.244.9.2:1")
	r := NewReconciler(conntrack.NewDumpScheduler(table, nil), tc.index, isLocalAddr)
	tc.serve("here", "10.244.1.1")
	table.afterDump = func() { tc.serve("here", "10.244.1.1", "there", "10.244.2.1") }
	if done, err := r.CleanOnce(t.Context()); err != nil || len(table.entries) != 2 {
		t.Errorf("%+v, %v, and %d flows remain, want both", done, err, len(table.entries))
	}
}

// Flows are also scanned a second after a failure, and at shutdown.
func TestFlowsAreScannedOnceForEachChange(t *testing.T) {
	ofUDPAlone := func(s *model.Service) { ofUDP(s); s.Ports = s.Ports[2:] }
	reads := scanTimes(t, &recordingTable{failing: []int{2, 3}}, ofUDPAlone, func(tc *testCluster) {
		time.Sleep(time.Hour)
		tc.serve("here", "10.244.1.1")
		time.Sleep(time.Hour)
		tc.serve()
		time.Sleep(time.Hour)
	})
	hour := time.Hour
	if want := []time.Duration{hour, 2 * hour, 2*hour + time.Second, 2*hour + 2*time.Second}; !slices.Equal(reads, want) {
		t.Errorf("the table was read after %v, want %v", reads, want)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		tc := newTestCluster(ofUDPAlone, "here", "10.244.1.1", "there", "10.244.2.1")
		table, reported := flowsTo("10.244.2.1:8080", "10.244.9.1:1"), 0
		r := NewReconciler(conntrack.NewDumpScheduler(table, nil), tc.index, isLocalAddr)
		if _, err := r.CleanOnce(ctx); err != nil {
			t.Error(err)
		}
		tc.serve("here", "10.244.1.1")
		cancel()
		r.Run(ctx, func(done CleanupResult, err error) { // the end of ctx and the change are ready at once
			if reported += done.Flows[model.IPv4].Deleted; err != nil {
				t.Error(err)
			}
		})
		if len(table.entries) != 0 || reported != 1 {
			t.Errorf("%d flows remain at the end, and %d were reported", len(table.entries), reported)
		}
	})
}

// Stale flows are deleted in both families; connections of other protocols stay.
func TestFlowsInTheKernel(t *testing.T) {
	table, conn := inKernel(t)
	tc := newTestCluster(ofUDP, "here", "10.244.1.1", "there", "10.244.2.1", "here", "fd00:244::1", "there", "fd00:244::2")
	r := NewReconciler(conntrack.NewDumpScheduler(conn, nil), tc.index, isLocalAddr)
	if _, err := r.CleanOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	const each = 300
	kept := map[model.Protocol]int{}
	for _, addrs := range map[model.Family][4]string{
		model.IPv4: {"10.244.9.9", "10.96.0.10:80", "10.244.1.1:8080", "10.244.2.1:8080"},
		model.IPv6: {"fd00:244::9", "[fd00:96::a]:80", "[fd00:244::1]:8080", "[fd00:244::2]:8080"},
	} {
		for n := range each {
			for i, replySrc := range addrs[2:] {
				for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
					c := connections.Connection{
						Protocol: protocol, OrigSrc: netip.AddrPortFrom(netip.MustParseAddr(addrs[0]), uint16(1000+2*n+i)),
						OrigDst: netip.MustParseAddrPort(addrs[1]), ReplySrc: netip.MustParseAddrPort(replySrc), Label: label, IsReplied: true,
					}
					if protocol == model.TCP {
						c.State = conntrack.TCPEstablished
					}
					if table.Insert(c); protocol == model.TCP || i == 0 {
						kept[protocol]++
					}
				}
			}
		}
	}
	tc.serve("here", "10.244.1.1", "here", "fd00:244::1")
	done, err := r.CleanOnce(t.Context())
	if err != nil || done.Flows[model.IPv4].Deleted != each || done.Flows[model.IPv6].Deleted != each {
		t.Errorf("%+v, %v; want %d flows of each family", done, err, each)
	}
	remaining := map[model.Protocol]int{}
	if _, err := conn.Dump(t.Context(), conntrack.Filter{},
		func(e *conntrack.Entry) bool { remaining[e.Protocol]++; return true }); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(remaining, kept) {
		t.Errorf("remaining: %v, want %v", remaining, kept)
	}
}
