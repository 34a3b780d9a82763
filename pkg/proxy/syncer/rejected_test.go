package syncer_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
)

// tableItem is a part of the tables that belongs to Services: an element of a set or, without a key, a chain or a set.
type tableItem struct {
	family model.Family
	name   string
	key    ruleset.Tuple
}

// rejectingKernel rejects some items, and lists all of those in a batch, as package nft does.
type rejectingKernel struct {
	memoryKernel
	rejected map[tableItem]bool
	commits  int // including rejected ones
}

func (k *rejectingKernel) Commit(ctx context.Context, batch ruleset.Batch) error {
	if len(batch.Ops) == 0 {
		return nil
	}
	k.commits++
	var rejections []ruleset.Rejection
	for _, op := range batch.Ops {
		eachItem(op, func(item tableItem, element *ruleset.Element) {
			if k.rejected[item] && op.Verb == ruleset.Add {
				err := fmt.Errorf("add %+v: %w", item, syscall.EINVAL)
				rejections = append(rejections, ruleset.Rejection{Op: op, Element: element, Err: err})
			}
		})
	}
	if len(rejections) > 0 {
		return &ruleset.RejectedError{Rejections: rejections}
	}
	return k.memoryKernel.Commit(ctx, batch)
}

func eachItem(op ruleset.Op, yield func(tableItem, *ruleset.Element)) {
	switch object := op.Object.(type) {
	case ruleset.ElementsObject:
		for element := range object.Elements {
			yield(tableItem{op.Family, object.Set.Name, element.Key}, &element)
		}
	case ruleset.SetObject:
		yield(tableItem{op.Family, object.Set.Name, ruleset.Tuple{}}, nil)
	case ruleset.ChainObject:
		yield(tableItem{op.Family, object.Chain.Name, ruleset.Tuple{}}, nil)
	case ruleset.RulesObject:
		yield(tableItem{op.Family, object.Chain.Name, ruleset.Tuple{}}, nil)
	case ruleset.TableObject:
	}
}

// mixedServices returns Services that together own elements of every set, in both families.
func mixedServices(count int) model.Change {
	change := model.Change{Services: map[model.ObjectName]*model.Service{}, Slices: map[model.ObjectName]*model.EndpointSlice{}}
	for i := range count {
		name := model.ObjectName{Namespace: "default", Name: fmt.Sprintf("service-%d", i)}
		high, low := byte(i/250), byte(1+i%250)
		v6 := func(prefix string) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("%s::%x", prefix, i+1)) }
		service := &model.Service{
			Name: name, Created: time.Unix(int64(i), 0),
			ClusterIPs:           []netip.Addr{netip.AddrFrom4([4]byte{10, 96, high, low}), v6("fd00:96")},
			ExternalTrafficLocal: i%2 == 1, InternalTrafficLocal: i%11 == 10,
			Ports: []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
		}
		if i%4 == 0 {
			service.Ports = append(service.Ports, model.ServicePort{Name: "dns", Protocol: model.UDP, Port: 53})
		}
		if i%3 != 2 {
			service.Ports[0].NodePort = uint16(30000 + i)
		}
		if i%3 == 1 {
			service.ExternalIPs = []netip.Addr{netip.AddrFrom4([4]byte{192, 0, high, low}), v6("2001:db8:1")}
		}
		if i%200 == 150 {
			service.ExternalIPs = append(service.ExternalIPs, manyAddrs(fmt.Sprintf("198.19.%d.0", i/4), 150)...)
		}
		if i%5 < 2 {
			service.LoadBalancerIPs = []netip.Addr{netip.AddrFrom4([4]byte{203, 0, high, low}), v6("2001:db8:2")}
			service.SourceRanges = prefixes("198.51.100.0/24", "2001:db8:3::/64")
		}
		if i%7 < 3 {
			service.AffinityTimeout = time.Hour
		}
		change.Services[name] = service
		for _, family := range model.Families {
			endpoints := 1 + i%5
			if i%100 == 99 {
				endpoints += 5 + i/100 // a number that few Services have
			}
			if i%200 == 150 {
				endpoints = 20 // it has ports with their own maps
			}
			slice := endpointsOf(name, family, endpoints, i)
			change.Slices[slice.Name] = slice
		}
	}
	return change
}

// endpointsOf returns a slice whose first endpoint is on this node.
func endpointsOf(service model.ObjectName, family model.Family, endpoints, offset int) *model.EndpointSlice {
	slice := &model.EndpointSlice{
		Name:    model.ObjectName{Namespace: service.Namespace, Name: service.Name + "-" + strings.ToLower(family.String())},
		Service: service, Family: family,
		Ports: []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: 8080}, {Name: "dns", Protocol: model.UDP, Port: 53}},
	}
	for e := range endpoints {
		number := offset*20 + e
		addr := netip.AddrFrom4([4]byte{10, 244, byte(number / 250), byte(1 + number%250)})
		if family == model.IPv6 {
			addr = netip.MustParseAddr(fmt.Sprintf("fd00:244::%x", number+1))
		}
		node := "elsewhere"
		if e == 0 {
			node = self
		}
		endpoint := model.Endpoint{Node: node, Ready: true, Serving: true}
		slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{Addr: addr, Endpoint: endpoint})
	}
	return slice
}

// ownersOf returns which Services own each item, found by syncing one Service after the other. Each gets the
// numbers of session affinity that it has in together.
func ownersOf(t *testing.T, everything model.Change, together *memoryKernel) map[tableItem][]model.ObjectName {
	t.Helper()
	nothing, owners := &memoryKernel{}, map[tableItem][]model.ObjectName{}
	mustSync(t, newProxy(nothing)) // the static part of the tables
	static := map[tableItem]bool{}
	for _, batch := range nothing.batches {
		for _, op := range batch.Ops {
			eachItem(op, func(item tableItem, _ *ruleset.Element) { static[item] = true })
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(everything.Services), model.ObjectName.Compare) {
		kernel, seen := &memoryKernel{numbers: numbersIn(together)}, map[tableItem]bool{}
		p := newProxy(kernel)
		p.Apply(oneOf(everything, name))
		mustSync(t, p)
		for _, batch := range kernel.batches {
			for _, op := range batch.Ops {
				eachItem(op, func(item tableItem, _ *ruleset.Element) {
					if !static[item] && !seen[item] {
						seen[item] = true
						owners[item] = append(owners[item], name)
					}
				})
			}
		}
	}
	return owners
}

// oneOf returns the part of a change about one Service.
func oneOf(everything model.Change, name model.ObjectName) model.Change {
	one := model.Change{
		Services: map[model.ObjectName]*model.Service{name: everything.Services[name]}, Slices: map[model.ObjectName]*model.EndpointSlice{},
	}
	for _, slice := range everything.Slices {
		if slice.Service == name {
			one.Slices[slice.Name] = slice
		}
	}
	return one
}

// withoutServices returns a change as if some Services had never existed.
func withoutServices(everything model.Change, names []model.ObjectName) model.Change {
	everything.Services = maps.Clone(everything.Services)
	for _, name := range names {
		delete(everything.Services, name)
	}
	return everything
}

func namesOf(rejected []syncer.Rejected) []model.ObjectName {
	var names []model.ObjectName
	for _, one := range rejected {
		names = append(names, one.Service)
	}
	return names
}

// pick returns a random item of each kind: one element of each set, and one chain and set of each kind that Services
// have.
func pick(t *testing.T, random *rand.Rand, owners map[tableItem][]model.ObjectName) map[string]tableItem {
	t.Helper()
	kinds := map[string][]tableItem{}
	for item := range owners {
		kind, _, _ := strings.Cut(item.name, "/")
		if item.key == (ruleset.Tuple{}) {
			kind, _, _ = strings.Cut(kind, "-") // lb, sticky, nodeport, affinity
			kind = "object " + kind
		}
		kinds[kind] = append(kinds[kind], item)
	}
	picked := map[string]tableItem{}
	for kind, items := range kinds {
		texts := make(map[tableItem]string, len(items))
		for _, item := range items {
			texts[item] = fmt.Sprint(item)
		}
		slices.SortFunc(items, func(a, b tableItem) int { return strings.Compare(texts[a], texts[b]) })
		picked[kind] = items[random.IntN(len(items))]
	}
	for _, set := range ruleset.StaticSets {
		if _, ok := picked[set.Name]; !ok && set.Name != ruleset.NodePortIPs.Name { // which belongs to no Service
			t.Errorf("no Service has elements in %s, so it is not tested", set.Name)
		}
	}
	return picked
}

// tableContents returns everything in the tables.
func tableContents(kernel *memoryKernel) map[tableItem]ruleset.Element {
	all := map[tableItem]ruleset.Element{}
	for _, family := range model.Families {
		objects := kernel.Tables.Objects(family)
		for _, name := range slices.Concat(objects.Chains, objects.Sets) {
			all[tableItem{family: family, name: name}] = ruleset.Element{}
		}
		for name, contents := range objects.Contents {
			for _, element := range contents {
				all[tableItem{family, name, element.Key}] = element
			}
		}
		for _, set := range slices.Concat(dedicatedMaps(objects), ruleset.StaticSets) {
			for _, element := range elementsIfExists(kernel, family, set) {
				all[tableItem{family, set.Name, element.Key}] = element
			}
		}
	}
	return all
}

// TestAKernelRejectionExcludesItsOwnServiceAndNoOther: among many Services the kernel rejects one random item of each
// kind, and two items at once. All other Services are served as if the rejected one did not exist. Once the kernel
// accepts it, no trace of the rejection is left.
func TestAKernelRejectionExcludesItsOwnServiceAndNoOther(t *testing.T) {
	everything := mixedServices(160)
	complete := &memoryKernel{}
	p := newProxy(complete)
	p.Apply(everything)
	mustSync(t, p)
	owners := ownersOf(t, everything, complete)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	cases := map[string][]tableItem{}
	for kind, item := range pick(t, random, owners) {
		cases[kind] = []tableItem{item}
	}
	first, second := pick(t, random, owners), pick(t, random, owners)
	cases["two at once"] = []tableItem{first[ruleset.Endpoints.Name], second[ruleset.Restricted.Name]}
	cases["two of one kind at once"] = []tableItem{first[ruleset.Services.Name], second[ruleset.Services.Name]}
	for kind, items := range cases {
		t.Run(fmt.Sprintf("%s, seed %d", kind, seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kernel, rejected := &rejectingKernel{rejected: map[tableItem]bool{}}, map[model.ObjectName]bool{}
				kernel.numbers = numbersIn(complete)
				for _, item := range items {
					kernel.rejected[item] = true
					for _, owner := range owners[item] {
						rejected[owner] = true
					}
				}
				want := slices.SortedFunc(maps.Keys(rejected), model.ObjectName.Compare)
				p := newProxy(kernel)
				p.Apply(everything)
				report := mustSync(t, p)
				if diff := cmp.Diff(want, namesOf(report.Rejected)); diff != "" || report.RejectedTotal != len(want) {
					t.Fatalf("with %+v rejected, these Services are rejected (-want +got):\n%s", items, diff)
				}
				checkAsIf := func(cluster model.Change) {
					fresh := &memoryKernel{numbers: numbersIn(&kernel.memoryKernel)}
					p := newProxy(fresh)
					p.Apply(cluster)
					mustSync(t, p)
					if got, want := tableContents(&kernel.memoryKernel), tableContents(fresh); !maps.Equal(got, want) {
						t.Errorf("the tables have %d items, want the same as %d of a fresh start", len(got), len(want))
					}
				}
				checkAsIf(withoutServices(everything, want))
				clear(kernel.rejected)
				time.Sleep(syncer.DefaultRetryMax)
				var accepted []model.ObjectName
				for range 1 + len(want)/10 { // ten in a sync
					accepted = append(accepted, mustSync(t, p).NoLongerRejected...)
				}
				slices.SortFunc(accepted, model.ObjectName.Compare)
				if diff := cmp.Diff(want, accepted); diff != "" {
					t.Errorf("no longer rejected (-want +got):\n%s", diff)
				}
				checkAsIf(everything)
			})
		})
	}
}

// lastSlot returns the element of the last slot that leads to an endpoint, for a Service of mixedServices with that
// many endpoints.
func lastSlot(everything model.Change, name model.ObjectName, endpoints int) tableItem {
	service, slots := everything.Services[name], ruleset.Endpoints
	if service.AffinityTimeout > 0 {
		slots = ruleset.StickyEndpoints
	}
	return tableItem{model.IPv4, slots.Name, ruleset.Tuple{
		Addr: service.ClusterIPs[0], Proto: model.TCP, Port: 80, Number: ruleset.ClusterSlot + uint32(endpoints-1),
	}}
}

// TestTheLastKnownGoodVersionStaysApplied while the kernel rejects a newer one, for those frontends that the Service
// still owns.
func TestTheLastKnownGoodVersionStaysApplied(t *testing.T) {
	name := model.ObjectName{Namespace: "default", Name: "service-1"} // with external IPs, and two endpoints
	for title, test := range map[string]struct {
		endpoints int // of the rejected version: as many as another Service has, or a new number
		complete  bool
	}{
		"a change":                                        {endpoints: 3},
		"a change that needs a new chain":                 {endpoints: 50},
		"a change in a full sync":                         {endpoints: 3, complete: true},
		"a change that needs a new chain, in a full sync": {endpoints: 50, complete: true},
	} {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				everything := mixedServices(20)
				kernel := &rejectingKernel{rejected: map[tableItem]bool{lastSlot(everything, name, test.endpoints): true}}
				p := newProxy(kernel)
				p.Apply(everything)
				mustSync(t, p)

				bad := sliceChange(endpointsOf(name, model.IPv4, test.endpoints, 1))
				other := sliceChange(endpointsOf(model.ObjectName{Namespace: "default", Name: "service-2"}, model.IPv4, 1, 2))
				p.Apply(bad.Merge(other))
				if test.complete {
					p.ForceFullSync()
				}
				report := mustSync(t, p)
				if len(report.Rejected) != 1 || report.Rejected[0].Service != name || !report.Rejected[0].HasApplied {
					t.Fatalf("rejected: %+v, want %s with its last version active", report.Rejected, name)
				}
				checkLikeFreshStart(t, &kernel.memoryKernel, everything.Merge(other))

				// Another Service gets one of its frontends; it is older.
				claimant := *everything.Services[name]
				claimant.Ports = slices.Clone(claimant.Ports)
				claimant.Name.Name, claimant.Created, claimant.ClusterIPs = "claimant", time.Unix(0, 0), addrs("10.96.200.1", "fd00:96::200:1")
				for i := range claimant.Ports {
					claimant.Ports[i].NodePort = 0
				}
				taken := model.Change{Services: map[model.ObjectName]*model.Service{claimant.Name: &claimant}}
				p.Apply(taken)
				if report := mustSync(t, p); len(report.NoLongerRejected) > 0 {
					t.Errorf("no longer rejected: %v, want none", report.NoLongerRejected)
				}
				checkLikeFreshStart(t, &kernel.memoryKernel, everything.Merge(other).Merge(taken))

				// Frontends that the Service no longer has are not kept, and once the Service is deleted nothing is kept.
				deletion := model.Change{Services: map[model.ObjectName]*model.Service{name: nil}}
				p.Apply(deletion)
				if report := mustSync(t, p); !slices.Equal(report.NoLongerRejected, []model.ObjectName{name}) || report.RejectedTotal != 0 {
					t.Errorf("a rejected Service that is deleted is reported as %+v", report)
				}
				checkLikeFreshStart(t, &kernel.memoryKernel, everything.Merge(bad).Merge(other).Merge(taken).Merge(deletion))
			})
		})
	}
}

// TestARejectedServiceIsRetriedWithBackoff, alone, and whenever it changes. Nothing waits for it.
func TestARejectedServiceIsRetriedWithBackoff(t *testing.T) {
	everything := mixedServices(20)
	name := model.ObjectName{Namespace: "default", Name: "service-1"}
	bad := lastSlot(everything, name, 1)
	withRunningProxy(t, func(t *testing.T, r *run) {
		var tries, others atomic.Int64
		r.reject(func(batch ruleset.Batch) error {
			for _, op := range batch.Ops {
				var rejectErr error
				eachItem(op, func(item tableItem, element *ruleset.Element) {
					if item == bad && op.Verb == ruleset.Add {
						tries.Add(1)
						rejectErr = &ruleset.RejectedError{Rejections: []ruleset.Rejection{{Op: op, Element: element, Err: syscall.EINVAL}}}
					}
				})
				if rejectErr != nil {
					return rejectErr
				}
			}
			others.Add(1)
			return nil
		})
		r.changes <- everything
		r.advance(0)
		at, pause := time.Duration(0), 100*time.Millisecond
		for try := int64(1); try < 14; try++ {
			if n := tries.Load(); n != try {
				t.Fatalf("after %s: %d attempts, want %d", at, n, try)
			}
			r.advance(pause - time.Nanosecond)
			if tries.Load() != try {
				t.Fatalf("it was retried before its pause of %s ended", pause)
			}
			r.advance(time.Nanosecond)
			at, pause = at+pause, min(2*pause, syncer.DefaultRetryMax)
		}
		r.take()

		before := tries.Load()
		r.changes <- sliceChange(endpointsOf(name, model.IPv6, 3, 1))
		r.advance(syncer.SyncInterval)
		if n := tries.Load() - before; n != 1 {
			t.Errorf("%d attempts after it changed, want one", n)
		}
		tries.Store(0)
		others.Store(0)
		for i := range 10 {
			r.changes <- sliceChange(endpointsOf(model.ObjectName{Namespace: "default", Name: "service-2"}, model.IPv4, 1+i%2, 2))
			r.advance(syncer.SyncInterval)
		}
		if tries, others := tries.Load(), others.Load(); tries != 0 || others < 10 {
			t.Errorf("while another Service changed 10 times: %d attempts and %d other batches, want none and at least 10", tries, others)
		}
		for _, sync := range r.take() {
			if sync.RetryIn > 0 || sync.Full {
				t.Errorf("a sync failed or was a full one: %+v", sync)
			}
		}
	})
}

// TestExternalModificationsAreAttributedToNoService: another process changed a chain of ours, so that the kernel
// rejects rules of Services that it accepted before.
func TestExternalModificationsAreAttributedToNoService(t *testing.T) {
	everything := mixedServices(20)
	for title, restarted := range map[string]bool{"while the proxy runs": false, "while no proxy runs": true} {
		t.Run(title, func(t *testing.T) {
			kernel := &rejectingKernel{rejected: map[tableItem]bool{}}
			p := newProxy(kernel)
			p.Apply(everything)
			mustSync(t, p)
			if restarted {
				p = newProxy(kernel)
				p.Apply(everything)
			}
			kernel.rejected[tableItem{family: model.IPv4, name: "lb-2"}] = true
			p.ForceFullSync()
			for range 2 {
				if _, err := p.Sync(t.Context()); err == nil {
					t.Fatal("a sync succeeds despite a conflicting chain")
				}
			}
			clear(kernel.rejected) // the cause ends when the tables are recreated
			kernel.batches = nil
			if report := mustSync(t, p); report.RejectedTotal != 0 || !slices.ContainsFunc(kernel.batches, recreatesTable) {
				t.Errorf("%d Services are rejected, want none, and recreated tables", report.RejectedTotal)
			}
		})
	}
}

// TestAfterVeryManyRejectionsTheTablesAreRecreatedFirst: a set that another program created too small rejects new
// elements.
func TestAfterVeryManyRejectionsTheTablesAreRecreatedFirst(t *testing.T) {
	everything := mixedServices(300)
	kernel := &rejectingKernel{rejected: map[tableItem]bool{}}
	for name := range everything.Services {
		kernel.rejected[lastSlot(everything, name, 1)] = true
	}
	p := newProxy(kernel)
	p.Apply(everything)
	for range 3 { // twice with the existing tables, then recreated
		if _, err := p.Sync(t.Context()); err == nil {
			t.Fatal("a sync in which every Service is rejected succeeds, want the tables to be recreated first")
		}
	}
	report := mustSync(t, p)
	if report.RejectedTotal < 250 {
		t.Errorf("%d Services are rejected, want nearly all", report.RejectedTotal)
	}
	checkLikeFreshStart(t, &kernel.memoryKernel, withoutServices(everything, namesOf(report.Rejected)))
}

// strictKernel is the real kernel; it may reject more than the one in memory does.
type strictKernel struct{ *realKernel }

func (k strictKernel) Commit(ctx context.Context, batch ruleset.Batch) error {
	if err := k.conn.Commit(ctx, batch); err != nil {
		return err
	}
	return k.model.Commit(ctx, batch)
}

// TestTheRealKernelRejectsOneServiceAndNoOther has a real rejection: a name that is too long. Package source would not
// accept it.
func TestTheRealKernelRejectsOneServiceAndNoOther(t *testing.T) {
	everything := manyServices(50, 3)
	var endpoints []int
	for number := range 20 {
		endpoints = append(endpoints, number+2)
	}
	long := dnsService(strings.Repeat("long", 70), "10.96.2.2", func(service *model.Service) { // a port with its own map
		service.AffinityTimeout, service.ExternalIPs = time.Hour, manyAddrs("198.18.1.0", 200)
	})
	bad := oneService(long, dnsServiceSlice(long.Name.Name, endpoints...))
	want := []model.ObjectName{long.Name}

	for title, together := range map[string]bool{"from the start": true, "later": false} {
		t.Run(title, func(t *testing.T) {
			kernel := strictKernel{newRealKernel(t)} // with tables of an earlier start these might be the reason
			p := newProxy(kernel)
			p.Apply(everything)
			if !together {
				mustSync(t, p)
			}
			p.Apply(bad)
			report, err := p.Sync(t.Context())
			if diff := cmp.Diff(want, namesOf(report.Rejected)); err != nil || diff != "" {
				t.Fatalf("error %v, and these are rejected (-want +got):\n%s", err, diff)
			}
			for _, rejected := range report.Rejected {
				t.Log(rejected.Err)
			}
			kernel.expectSameListing(t)
			checkLikeFreshStart(t, &kernel.model, everything)
			p.Apply(resized(1))
			if report := mustSync(t, p); report.Full || report.Decided != 1 {
				t.Errorf("a change of another Service reports %+v, want it written alone", report)
			}
			p.Apply(resized(3))
			p.Apply(deleteServices(long.Name.Name))
			mustSync(t, p)
			checkLikeFreshStart(t, &kernel.model, everything)
		})
	}
}
