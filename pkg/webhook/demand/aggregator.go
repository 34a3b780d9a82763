package demand

import (
	"maps"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/vicinity-proxy/vicinity/pkg/demandapi"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand/cluster"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand/overload"
)

const (
	// reportTTL is how long a node counts as reporting after its last response.
	reportTTL = 10 * time.Minute
	// maxRate bounds the new connections per second, and maxOpen the open ones, that one node may report for one Service,
	// so that a malicious node cannot turn sums into Inf or NaN.
	maxRate, maxOpen = 1e6, 1e7
	// maxServices is how many Services are tracked. Proxies count no more; a malicious one may report others.
	maxServices = demandapi.MaxServices
)

// Service is an existing Service.
type Service struct {
	// ShouldPublish is set if its demand should be published. Published are the published shares by zone; nil means none.
	// PublishedOpen are those of open connections; nil means that they are the same. PublishedNodes is the published
	// number of effective nodes.
	ShouldPublish            bool
	Published, PublishedOpen map[string]float64
	PublishedNodes           int32
}

// Services returns a Service by namespace/name, or false if it does not exist.
type Services func(name string) (Service, bool)

// Aggregator adds up the demand of a cluster's nodes on all Services. The zero value has no reports.
type Aggregator struct {
	nodes     map[string]nodeReport
	services  map[string]*serviceState
	lastRound time.Time // the time of the last round; zero before the first one
	isSilent  bool      // no node has responded since then
}

// nodeReport is the last report of a node. It counts until the next one, or until the node has no proxy.
type nodeReport struct {
	receivedAt time.Time
	counts     []count
}

// count is the demand of a node on a Service: new connections per second, and open ones. Thousands of nodes may report
// the same thousand Services, so names are interned.
type count struct {
	service      unique.Handle[string]
	perSec, open float32
}

// open returns the node's open connections by Service.
func (r nodeReport) open() map[string]uint64 {
	open := map[string]uint64{}
	for _, n := range r.counts {
		if n.open > 0 {
			open[n.service.Value()] = uint64(n.open)
		}
	}
	return open
}

type serviceState struct {
	estimator Estimator
	report    Report
}

// Report is the demand on a Service.
type Report struct {
	Decision
	// Assumed is each zone's share if all nodes have the demand of their labels.
	Assumed map[string]float64
	// MaxSkew is the largest ratio of a zone's share to its assumed share, at least 1, and MostSkewedZone is that zone.
	MaxSkew        float64
	MostSkewedZone string
	// Overload is set if an endpoint may be overloaded because of the skew.
	Overload overload.Result
}

// Round is the result of one interval.
type Round struct {
	// Reporting is how many of Nodes responded in this interval or within the ten minutes before.
	Reporting, Nodes int
	// Unreported are the nodes with a ready proxy that never responded, sorted. AssumedZones are their zones, sorted: each
	// has at least its assumed share of the demand.
	Unreported, AssumedZones []string
	// Services are those with enough connections for an estimate, by namespace/name.
	Services map[string]Report
	// Decided are this interval's decisions about Services whose demand should be published.
	Decided map[string]Report
	// ChangePoints is the number of Services in which a change-point was detected.
	ChangePoints int
}

// AddReport records a node's report. A page that only issues a cursor has no counts: then the last ones remain, as do
// those of open connections if the page does not have them.
func (f *Aggregator) AddReport(node string, at time.Time, page demandapi.Page) {
	if f.nodes == nil {
		f.nodes = map[string]nodeReport{}
	}
	f.isSilent = false
	report := nodeReport{receivedAt: at, counts: f.nodes[node].counts}
	if page.Duration > 0 {
		open := page.Open
		if open == nil {
			open = f.nodes[node].open()
		}
		services := maps.Clone(open)
		maps.Copy(services, page.Counts)
		report.counts = make([]count, 0, len(services))
		for service := range services {
			report.counts = append(report.counts, count{
				service: unique.Make(service), perSec: float32(min(float64(page.Counts[service])/page.Duration.Seconds(), maxRate)),
				open: float32(min(float64(open[service]), maxOpen)),
			})
		}
	}
	f.nodes[node] = report
}

// Track starts tracking a Service that has a published ServiceDemand but no connections.
func (f *Aggregator) Track(name string) {
	if f.services == nil {
		f.services = map[string]*serviceState{}
	}
	if f.services[name] == nil {
		f.services[name] = &serviceState{}
	}
}

// Aggregate adds up the reports by zone, and updates the estimates. Services that do not exist are not tracked. If no
// node responded since the last round, the estimates stay as they are.
func (f *Aggregator) Aggregate(now time.Time, nodes []cluster.Node, services Services) Round {
	took := now.Sub(f.lastRound)
	if f.lastRound.IsZero() {
		took = 0
	}
	round := Round{Nodes: len(nodes), Services: map[string]Report{}, Decided: map[string]Report{}}
	z := f.groupByZone(now, nodes, &round)
	if took > 0 && !f.isSilent {
		f.updateEstimates(took, z, services, &round)
	}
	f.lastRound, f.isSilent = now, true
	for name, service := range f.services {
		if _, exists := services(name); exists && service.report.Shares != nil {
			round.Services[name] = service.report
		}
	}
	return round
}

// zonedNodes contains all nodes and all zones, each sorted by name.
type zonedNodes struct {
	nodes  []cluster.Node
	zoneOf []int // by node index
	zones  []string
	shares map[string]float64 // each zone's share if all nodes have the demand of their labels
	floors []float64          // by zone index: its share if a node in it is unreported, else 0
}

// groupByZone sorts the nodes, and finds out which of them report. It deletes reports of all other nodes.
func (f *Aggregator) groupByZone(now time.Time, nodes []cluster.Node, round *Round) *zonedNodes {
	z := &zonedNodes{nodes: slices.Clone(nodes), zoneOf: make([]int, len(nodes)), shares: map[string]float64{}}
	slices.SortFunc(z.nodes, func(a, b cluster.Node) int { return strings.Compare(a.Name, b.Name) })
	exists, isAssumed := make(map[string]bool, len(z.nodes)), map[string]bool{}
	for _, node := range z.nodes {
		exists[node.Name] = true
		z.shares[node.Zone] += node.Weight
		report, hasReported := f.nodes[node.Name]
		switch {
		case hasReported && now.Sub(report.receivedAt) < reportTTL:
			round.Reporting++
		case !hasReported && node.HasReadyProxy:
			round.Unreported, isAssumed[node.Zone] = append(round.Unreported, node.Name), true
		}
	}
	maps.DeleteFunc(f.nodes, func(name string, _ nodeReport) bool { return !exists[name] })
	z.zones, round.AssumedZones = slices.Sorted(maps.Keys(z.shares)), slices.Sorted(maps.Keys(isAssumed))
	for i, node := range z.nodes {
		z.zoneOf[i], _ = slices.BinarySearch(z.zones, node.Zone)
	}
	sum := max(total(z.shares), 1) // weights are whole numbers
	z.floors = make([]float64, len(z.zones))
	for i, zone := range z.zones {
		if z.shares[zone] /= sum; isAssumed[zone] {
			z.floors[i] = z.shares[zone]
		}
	}
	return z
}

// sums are the sums over the nodes' demand on a Service: new connections per second and open ones, by zone index, and
// Sample.Pairs.
type sums struct {
	perSec, open []float64
	pairs        float64
}

// sum adds up the demand on each existing Service.
func (f *Aggregator) sum(took time.Duration, z *zonedNodes, services Services) map[string]*sums {
	byName := map[string]*sums{}
	byService := map[unique.Handle[string]]*sums{} // nil means that the Service does not exist
	for i, node := range z.nodes {
		for _, n := range f.nodes[node.Name].counts {
			s, isKnown := byService[n.service]
			if !isKnown {
				if _, exists := services(n.service.Value()); exists {
					s = &sums{perSec: make([]float64, len(z.zones)), open: make([]float64, len(z.zones))}
					byName[n.service.Value()] = s
				}
				byService[n.service] = s
			}
			if s != nil {
				s.perSec[z.zoneOf[i]] += float64(n.perSec)
				s.open[z.zoneOf[i]] += float64(n.open)
				opened := float64(n.perSec) * took.Seconds()
				s.pairs += max(0, opened*(opened-1))
			}
		}
	}
	return byName
}

// updateEstimates adds the connections of an interval to the estimates.
func (f *Aggregator) updateEstimates(took time.Duration, z *zonedNodes, services Services, round *Round) {
	all := f.sum(took, z, services)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if len(f.services) < maxServices {
			f.Track(name)
		}
	}
	for name, svc := range f.services {
		service, exists := services(name)
		if !exists {
			delete(f.services, name)
			continue
		}
		svc.report = svc.decide(z, z.sample(took, all[name]), service)
		if svc.report.ChangePoint {
			round.ChangePoints++
		}
		if service.ShouldPublish {
			round.Decided[name] = svc.report
		}
		if svc.report.Shares == nil && all[name] == nil && service.Published == nil && svc.report.ConnectionsPerMinute < 1 {
			delete(f.services, name) // no connections for a long time; this makes room for another Service
		}
	}
}

// decide adds a sample to the estimate of a Service.
func (s *serviceState) decide(z *zonedNodes, sample Sample, service Service) Report {
	s.estimator.SetPublished(service.Published, service.PublishedOpen, service.PublishedNodes)
	return reportOf(s.estimator.Add(sample, z.shares), z.shares)
}

// sample returns the sample of a Service with the given sums; nil if there were no connections.
func (z *zonedNodes) sample(took time.Duration, s *sums) Sample {
	if s == nil {
		return Sample{Took: took}
	}
	sample := Sample{Took: took, Zones: z.byZone(s.perSec), Open: z.byZone(s.open), Pairs: s.pairs, Nodes: len(z.nodes)}
	for zone := range sample.Zones {
		sample.Zones[zone] *= took.Seconds()
	}
	return sample
}

// byZone returns the demand of each zone. A zone in which a proxy never reported has at least its assumed share: with
// less, its endpoints might get more than with assumed demand. The rest is divided in proportion to what zones have
// beyond that. The total stays what was counted, so that the estimate is no more certain than the counts.
func (z *zonedNodes) byZone(counted []float64) map[string]float64 {
	sum, floors, excess := 0.0, 0.0, 0.0
	for i := range z.zones {
		sum, floors = sum+counted[i], floors+z.floors[i]
	}
	for i := range z.zones {
		excess += max(0, counted[i]-z.floors[i]*sum)
	}
	scale := 0.0
	if excess > 0 {
		scale = (1 - min(floors, 1)) * sum / excess
	}
	demand := make(map[string]float64, len(z.zones))
	for i, zone := range z.zones {
		demand[zone] = z.floors[i]*sum + max(0, counted[i]-z.floors[i]*sum)*scale
	}
	return demand
}

// reportOf returns the report of a decision, with the zone that has the largest skew.
func reportOf(decision Decision, assumed map[string]float64) Report {
	report := Report{Decision: decision, Assumed: assumed, MaxSkew: 1}
	for _, zone := range slices.Sorted(maps.Keys(decision.Shares)) {
		skew := max(decision.Shares[zone], minShareDelta) / max(assumed[zone], minShareDelta)
		if skew > report.MaxSkew+1e-9 { // float sums are rarely exactly 1
			report.MaxSkew, report.MostSkewedZone = skew, zone
		}
	}
	return report
}
