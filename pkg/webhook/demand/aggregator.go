package demand

import (
	"maps"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/vicinity-proxy/vicinity/pkg/demandapi"
)

const (
	// reportTTL is how long a node that falls silent is assumed to go on asking as before.
	reportTTL = 10 * time.Minute
	// maxRate bounds the connections a second that one node may report for one Service: a lying node must not turn sums
	// into Inf or NaN.
	maxRate = 1e6
	// maxServices is how many Services are followed. Proxies count no more; one that lies may name others.
	maxServices = demandapi.MaxServices
)

// Node is a node of the cluster.
type Node struct {
	Name, Zone string
	// Weight is its assumed demand, relative to other nodes.
	Weight float64
}

// Service is an existing Service.
type Service struct {
	// ShouldPublish: its demand should be published. Said are the zones' parts that are published; nil: nothing yet.
	ShouldPublish bool
	Published     map[string]float64
}

// Services returns a Service by namespace/name; false if it does not exist.
type Services func(name string) (Service, bool)

// Aggregator follows the demand of a cluster's nodes on all Services. The zero value has heard nothing.
type Aggregator struct {
	nodes    map[string]nodeReport
	services map[string]*serviceState
	rounded  time.Time // when the last round was; zero before the first one
}

// nodeReport is what a node said last.
type nodeReport struct {
	at    time.Time
	rates []rate
}

// rate is how often a node asks a Service. Thousands of nodes may name a thousand Services each, all of them the same: names
// are kept once.
type rate struct {
	service unique.Handle[string]
	perSec  float32
}

type serviceState struct {
	estimator Estimator
	report    Report
	at        time.Time // of the report
}

// Report is the demand on a Service.
type Report struct {
	Decision
	// Assumed is each zone's part if all nodes have the demand of their labels.
	Assumed map[string]float64
	// MaxSkew is the largest ratio of a zone's part to its assumed part, at least 1, and Zone is that zone.
	MaxSkew        float64
	MostSkewedZone string
}

// Round is what was found in an interval.
type Round struct {
	// Reporting is how many of Nodes reported what they counted, in this interval or within ten minutes.
	Reporting, Nodes int
	// NoQuorum: less than half of all nodes were heard, so that nothing new is known.
	NoQuorum bool
	// ZonesBelowQuorum are the zones of which less than half of the nodes were heard. They keep their parts.
	ZonesBelowQuorum []string
	// Services are those with enough connections to say something, by namespace/name.
	Services map[string]Report
	// Decided are this interval's decisions about the Services that are published.
	Decided map[string]Report
	// ChangePoints is for how many Services a sudden change of demand was found.
	ChangePoints int
}

// AddReport takes in what a node reported. A page that only hands out a cursor says nothing about demand.
func (f *Aggregator) AddReport(node string, at time.Time, page demandapi.Page) {
	if page.Took <= 0 {
		return
	}
	if f.nodes == nil {
		f.nodes = map[string]nodeReport{}
	}
	said := nodeReport{at: at, rates: make([]rate, 0, len(page.Counts))}
	for service, count := range page.Counts {
		perSec := min(float64(count)/page.Took.Seconds(), maxRate)
		said.rates = append(said.rates, rate{unique.Make(service), float32(perSec)})
	}
	f.nodes[node] = said
}

// cluster is all nodes, sorted by name, and their zones, sorted by name.
type cluster struct {
	nodes     []Node
	zoneOf    []int  // by the number of a node
	reporting []bool // likewise
	zones     []zone
}

// zone is what is known about a zone's nodes.
type zone struct {
	name             string
	nodes, reporting int
	weight           float64
}

// lacksQuorum reports whether less than half of its nodes are heard: too few to speak for the others.
func (z *zone) lacksQuorum() bool { return 2*z.reporting < z.nodes }

// Track has a Service followed though nobody asks it: something is published of it.
func (f *Aggregator) Track(name string) {
	if f.services == nil {
		f.services = map[string]*serviceState{}
	}
	if f.services[name] == nil {
		f.services[name] = &serviceState{}
	}
}

// Aggregate sums up what was heard by zone. Services that do not exist are not followed.
func (f *Aggregator) Aggregate(now time.Time, nodes []Node, services Services) Round {
	took := now.Sub(f.rounded)
	if f.rounded.IsZero() {
		took = 0
	}
	f.rounded = now
	round := Round{Nodes: len(nodes), Services: map[string]Report{}, Decided: map[string]Report{}}
	c := f.buildCluster(now, nodes)
	for _, z := range c.zones {
		round.Reporting += z.reporting
		if z.lacksQuorum() {
			round.ZonesBelowQuorum = append(round.ZonesBelowQuorum, z.name)
		}
	}
	round.NoQuorum = 2*round.Reporting < round.Nodes
	if sums := f.sum(c, services); !round.NoQuorum && took > 0 {
		f.updateEstimates(now, took, c, sums, services, &round)
	}
	for name, service := range f.services {
		if service.report.Parts != nil && now.Sub(service.at) < reportTTL {
			round.Services[name] = service.report
		}
	}
	return round
}

// buildCluster returns the nodes in their order, and which of them are heard. What is known of others is forgotten.
func (f *Aggregator) buildCluster(now time.Time, nodes []Node) *cluster {
	c := &cluster{nodes: slices.Clone(nodes), zoneOf: make([]int, len(nodes)), reporting: make([]bool, len(nodes))}
	slices.SortFunc(c.nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	var numbers map[string]int
	c.zones, numbers = zonesIn(c.nodes)
	exists := make(map[string]bool, len(c.nodes))
	for i, node := range c.nodes {
		exists[node.Name], c.zoneOf[i] = true, numbers[node.Zone]
		said, was := f.nodes[node.Name]
		c.reporting[i] = was && now.Sub(said.at) < reportTTL
		z := &c.zones[c.zoneOf[i]]
		z.nodes++
		z.weight += node.Weight
		if c.reporting[i] {
			z.reporting++
		}
	}
	maps.DeleteFunc(f.nodes, func(name string, _ nodeReport) bool { return !exists[name] })
	return c
}

// defaultShares returns each zone's part if all nodes have the demand of their labels.
func (c *cluster) defaultShares() map[string]float64 {
	assumed, all := map[string]float64{}, 0.0
	for _, z := range c.zones {
		all += z.weight
	}
	for _, z := range c.zones {
		if all > 0 {
			assumed[z.name] = z.weight / all
		}
	}
	return assumed
}

// sum adds up the rates of each Service, by the number of a zone. A node that was not heard counts as its zone's mean.
func (f *Aggregator) sum(c *cluster, services Services) map[unique.Handle[string]][]float64 {
	sums := map[unique.Handle[string]][]float64{} // nil: there is no such Service
	for number, node := range c.nodes {
		if !c.reporting[number] {
			continue
		}
		for _, r := range f.nodes[node.Name].rates {
			sum, isKnown := sums[r.service]
			if !isKnown {
				if _, exists := services(r.service.Value()); exists {
					sum = make([]float64, len(c.zones))
				}
				sums[r.service] = sum
			}
			if sum != nil {
				sum[c.zoneOf[number]] += float64(r.perSec)
			}
		}
	}
	maps.DeleteFunc(sums, func(_ unique.Handle[string], sum []float64) bool { return sum == nil })
	for _, sum := range sums {
		for number, z := range c.zones {
			if z.reporting > 0 {
				sum[number] *= float64(z.nodes) / float64(z.reporting)
			}
		}
	}
	return sums
}

// zonesIn returns the zones of nodes, sorted, and the number of each.
func zonesIn(nodes []Node) (zones []zone, numbers map[string]int) {
	numbers = map[string]int{}
	for _, node := range nodes {
		numbers[node.Zone] = 0
	}
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		numbers[name] = len(zones)
		zones = append(zones, zone{name: name})
	}
	return zones, numbers
}

// updateEstimates takes in what was asked in some time.
func (f *Aggregator) updateEstimates(
	now time.Time, took time.Duration, c *cluster, sums map[unique.Handle[string]][]float64, services Services, round *Round,
) {
	assumed := c.defaultShares()
	for _, name := range namesOf(sums) {
		if len(f.services) < maxServices {
			f.Track(name)
		}
	}
	for name, followed := range f.services {
		service, exists := services(name)
		if !exists {
			delete(f.services, name)
			continue
		}
		asked := sums[unique.Make(name)]
		followed.report, followed.at = followed.decide(took, c, asked, service, assumed), now
		if followed.report.ChangePoint {
			round.ChangePoints++
		}
		if service.ShouldPublish {
			round.Decided[name] = followed.report
		}
		if followed.report.Parts == nil && asked == nil && service.Published == nil && followed.report.ConnectionsPerMinute < 1 {
			delete(f.services, name) // there were no connections for a long time; this makes room for another Service
		}
	}
}

// decide takes in the demand on a Service; nil: none.
func (f *serviceState) decide(took time.Duration, c *cluster, asked []float64, service Service, assumed map[string]float64) Report {
	f.estimator.Coarse = len(c.nodes) > manyNodes
	f.estimator.SetPublished(service.Published)
	return reportOf(f.estimator.Add(f.sampleOf(took, c, asked, assumed), assumed), assumed)
}

// sampleOf returns what was asked in each zone. One that is silent keeps its part: its nodes may ask as before, and one that is
// down and alone in its zone must not hold up all others.
func (f *serviceState) sampleOf(took time.Duration, c *cluster, asked []float64, assumed map[string]float64) Sample {
	sample := Sample{Took: took, Zones: map[string]float64{}}
	reporting, kept := 0.0, 0.0
	for number := range c.zones {
		switch z := &c.zones[number]; {
		case z.lacksQuorum():
			kept += f.estimator.expectedShare(z.name, assumed)
		case asked != nil:
			sample.Zones[z.name] = asked[number] * took.Seconds()
			reporting += sample.Zones[z.name]
		}
	}
	for number := range c.zones {
		if z := &c.zones[number]; z.lacksQuorum() {
			sample.Zones[z.name] = imputeShare(f.estimator.expectedShare(z.name, assumed), kept, reporting)
		}
	}
	return sample
}

// maxImputed is the part of all that those keep at most who are not heard: the others tell how much there is in all.
const maxImputed = 0.99

// imputeShare returns how much there is of a part that is not heard, given all such parts together, and how much was heard.
func imputeShare(part, all, reporting float64) float64 {
	if all == 0 {
		return 0
	}
	kept := min(all, maxImputed)
	return part / all * kept / (1 - kept) * reporting
}

func namesOf(sums map[unique.Handle[string]][]float64) []string {
	names := make([]string, 0, len(sums))
	for service := range sums {
		names = append(names, service.Value())
	}
	slices.Sort(names)
	return names
}

// reportOf reports an estimate with the zone that is off the most.
func reportOf(decision Decision, assumed map[string]float64) Report {
	report := Report{Decision: decision, Assumed: assumed, MaxSkew: 1}
	for _, zone := range slices.Sorted(maps.Keys(decision.Parts)) {
		by := max(decision.Parts[zone], floor) / max(assumed[zone], floor)
		if by > report.MaxSkew+1e-9 { // a sum of floats is rarely 1
			report.MaxSkew, report.MostSkewedZone = by, zone
		}
	}
	return report
}
