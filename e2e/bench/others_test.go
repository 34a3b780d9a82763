package bench_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
)

// eventsWithOthers are the events of BenchmarkOneChange, and one that adds a verdict and removes one unless other
// Services use it: the number of endpoints changes to one that not every table has a class for.
var eventsWithOthers = append(slices.Clone(events), event{
	name: "an endpoint count above 32", number: func(size, int) int { return 0 },
	change: func(s size, number, round int) model.Change {
		slice := s.slice(number, 120+round%2)
		return model.Change{Slices: map[model.ObjectName]*model.EndpointSlice{slice.Name: slice}}
	},
})

// otherServices are other users' Services of one kind, each of which adds objects to the tables.
type otherServices struct {
	name   string
	counts []int
	// edit turns a Service with a ClusterIP and one endpoint into one of them.
	edit func(service *model.Service, slice *model.EndpointSlice, number int)
}

// otherKinds are lists of source ranges, as many as in the mixes of BenchmarkOneChange and more, and everything else
// that adds chains and verdicts.
var otherKinds = []otherServices{
	{"ClusterIPs", []int{10_000}, func(*model.Service, *model.EndpointSlice, int) {}},
	{"lists of source ranges", []int{500, 2206, 10_000}, func(service *model.Service, _ *model.EndpointSlice, number int) {
		service.LoadBalancerIPs = otherAddrs(number, 1)
		service.SourceRanges = []netip.Prefix{
			netip.MustParsePrefix("10.128.0.0/9"),
			netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(number >> 8), byte(number), 0}), 24),
		}
	}},
	{"endpoint counts", []int{500}, func(_ *model.Service, slice *model.EndpointSlice, number int) {
		slice.Endpoints = otherEndpoints(number, 11+number, 0)
	}},
	{"pairs of local and all endpoints", []int{500, 2206}, func(service *model.Service, slice *model.EndpointSlice, number int) {
		service.LoadBalancerIPs, service.ExternalTrafficLocal = otherAddrs(number, 1), true
		slice.Endpoints = otherEndpoints(number, 50+number%50, 1+number/50)
	}},
	{"dedicated maps", []int{500, 2206}, func(service *model.Service, slice *model.EndpointSlice, number int) {
		service.ExternalIPs, slice.Endpoints = otherAddrs(number, 40), otherEndpoints(number, 40, 0)
	}},
	{"timeouts of session affinity", []int{500}, func(service *model.Service, _ *model.EndpointSlice, number int) {
		service.AffinityTimeout = time.Duration(1+number%6) * time.Minute
		service.Ports[0].NodePort = uint16(40_000 + number)
	}},
}

// otherAddrs returns count addresses, at most 64, of one of the others.
func otherAddrs(number, count int) []netip.Addr {
	first := netip.AddrFrom4([4]byte{11, byte(number >> 10), byte(number >> 2), byte(number << 6)})
	return addressesFrom(first.String(), count)
}

// otherEndpoints returns count endpoints of one of the others, the first of them on this node.
func otherEndpoints(number, count, local int) []model.SliceEndpoint {
	endpoints := make([]model.SliceEndpoint, count)
	for i := range endpoints {
		endpoints[i] = model.SliceEndpoint{
			Addr:     netip.AddrFrom4([4]byte{10, byte(160 + i>>8), byte(number>>8) ^ byte(i), byte(number)}),
			Endpoint: model.Endpoint{Node: "node-0", Zone: "zone-0", Ready: true, Serving: true},
		}
		if i < local {
			endpoints[i].Node = ownNode
		}
	}
	return endpoints
}

// changedSize is the cluster that changes, with or without the others. It is small, and eight of its Services have a
// list.
var changedSize = size{160, 10, true}

func (o otherServices) cluster(count int) model.Change {
	change := changedSize.cluster()
	for number := range count {
		name := model.ObjectName{Namespace: "others", Name: fmt.Sprint("other-", number)}
		service := &model.Service{
			Name: name, ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 97, byte(number >> 8), byte(number)})},
			Ports: []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: servicePort}},
		}
		slice := &model.EndpointSlice{
			Name: name, Service: name, Endpoints: otherEndpoints(number, 1, 0),
			Ports: []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: podPort}},
		}
		o.edit(service, slice, number)
		change.Services[name], change.Slices[name] = service, slice
	}
	return change
}

// othersRow has the times of one event with a number of other Services, and without them.
type othersRow struct {
	event, others     string
	count             int
	alone, withOthers []time.Duration
}

// BenchmarkWithOthers measures the cost of other Services for a change: each event happens alternately in a small
// cluster, and in the same cluster with many Services of one kind.
func BenchmarkWithOthers(b *testing.B) {
	for _, kind := range otherKinds {
		for _, count := range kind.counts {
			b.Run(fmt.Sprint(kind.name, "/", count), func(b *testing.B) {
				rows := make([]othersRow, len(eventsWithOthers))
				for i, event := range eventsWithOthers {
					rows[i] = othersRow{event: event.name, others: kind.name, count: count}
				}
				alone, withOthers := newMachine(b).proxyOf(kind.cluster(0)), newMachine(b).proxyOf(kind.cluster(count))
				sync(b, alone)
				sync(b, withOthers)
				for iteration := 0; b.Loop(); iteration++ {
					for i, event := range eventsWithOthers {
						rows[i].measure(b, event, iteration, alone, withOthers)
					}
				}
				results.beside = append(results.beside, rows...)
				for _, row := range rows {
					b.ReportMetric(ratio(median(row.withOthers), median(row.alone)), "x-alone:"+strings.ReplaceAll(row.event, " ", "-"))
				}
			})
		}
	}
}

// othersRounds is how often each event happens in an iteration, with the others and without them.
const othersRounds = 200

func (r *othersRow) measure(b *testing.B, e event, iteration int, alone, withOthers *syncer.Proxy) {
	b.Helper()
	for round := range othersRounds {
		round += iteration * othersRounds
		for _, target := range []struct {
			p    *syncer.Proxy
			took *[]time.Duration
		}{{alone, &r.alone}, {withOthers, &r.withOthers}} {
			change := e.change(changedSize, e.number(changedSize, round), round)
			started := time.Now()
			target.p.Apply(change)
			sync(b, target.p)
			*target.took = append(*target.took, time.Since(started))
		}
	}
}
