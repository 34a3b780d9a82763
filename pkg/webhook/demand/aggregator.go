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
	// reportTTL is how long the last report of a node counts if no newer one arrives.
	reportTTL = 10 * time.Minute
	// maxRate bounds the connections per second that one node may report for one Service, so that a malicious node cannot
	// turn sums into Inf or NaN.
	maxRate = 1e6
	// maxServices is how many Services are tracked. Proxies count no more; a malicious one may report others.
	maxServices = demandapi.MaxServices
)

// Node is a node of the cluster.
type Node struct {
	Name, Zone string
	// Weight is the node's assumed demand, relative to other nodes.
	Weight float64
}

// Service is an existing Service.
type Service struct {
	// ShouldPublish is set if its demand should be published. Published are the published shares by zone; nil means none.
	ShouldPublish bool
	Published     map[string]float64
}

// Services returns a Service by namespace/name, or false if it does not exist.
type Services func(name string) (Service, bool)

// Aggregator adds up the demand of a cluster's nodes on all Services. The zero value has no reports.
type Aggregator struct {
	nodes     map[string]nodeReport
	services  map[string]*serviceState
	lastRound time.Time // the time of the last round; zero before the first one
}

// nodeReport is the last report of a node.
type nodeReport struct {
	receivedAt time.Time
	rates      []rate
}

// rate is a node's connection rate to a Service. Thousands of nodes may report the same thousand Services, so names are
// interned.
type rate struct {
	service unique.Handle[string]
	perSec  float32
}

type serviceState struct {
	estimator  Estimator
	report     Report
	reportedAt time.Time // of the report
}

// Report is the demand on a Service.
type Report struct {
	Decision
	// Assumed is each zone's share if all nodes have the demand of their labels.
	Assumed map[string]float64
	// MaxSkew is the largest ratio of a zone's share to its assumed share, at least 1, and MostSkewedZone is that zone.
	MaxSkew        float64
	MostSkewedZone string
}

// Round is the result of one interval.
type Round struct {
	// Reporting is how many of Nodes reported in this interval or within the ten minutes before.
	Reporting, Nodes int
	// NoQuorum is set if fewer than half of all nodes reported; estimates are then not updated.
	NoQuorum bool
	// ZonesBelowQuorum are the zones in which fewer than half of the nodes reported. They keep their last shares.
	ZonesBelowQuorum []string
	// Services are those with enough connections for an estimate, by namespace/name.
	Services map[string]Report
	// Decided are this interval's decisions about Services whose demand should be published.
	Decided map[string]Report
	// ChangePoints is the number of Services in which a change-point was detected.
	ChangePoints int
}

// AddReport records a node's report. A page that only issues a cursor contains no counts and is ignored.
func (f *Aggregator) AddReport(node string, at time.Time, page demandapi.Page) {
	if page.Duration <= 0 {
		return
	}
	if f.nodes == nil {
		f.nodes = map[string]nodeReport{}
	}
	report := nodeReport{receivedAt: at, rates: make([]rate, 0, len(page.Counts))}
	for service, count := range page.Counts {
		perSec := min(float64(count)/page.Duration.Seconds(), maxRate)
		report.rates = append(report.rates, rate{unique.Make(service), float32(perSec)})
	}
	f.nodes[node] = report
}

// cluster contains all nodes and all zones, each sorted by name.
type cluster struct {
	nodes     []Node
	zoneOf    []int  // by node index
	reporting []bool // by node index
	zones     []zone
}

// zone counts a zone's nodes.
type zone struct {
	name             string
	nodes, reporting int
	weight           float64
}

// lacksQuorum reports whether fewer than half of the zone's nodes reported: too few to extrapolate to the others.
func (z *zone) lacksQuorum() bool { return 2*z.reporting < z.nodes }

// Track starts tracking a Service that has a published ServiceDemand but no connections.
func (f *Aggregator) Track(name string) {
	if f.services == nil {
		f.services = map[string]*serviceState{}
	}
	if f.services[name] == nil {
		f.services[name] = &serviceState{}
	}
}

// Aggregate adds up the reports by zone, and updates the estimates. Services that do not exist are not tracked.
func (f *Aggregator) Aggregate(now time.Time, nodes []Node, services Services) Round {
	took := now.Sub(f.lastRound)
	if f.lastRound.IsZero() {
		took = 0
	}
	f.lastRound = now
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
		if service.report.Shares != nil && now.Sub(service.reportedAt) < reportTTL {
			round.Services[name] = service.report
		}
	}
	return round
}

// buildCluster sorts the nodes, and finds out which of them report. It deletes reports of nodes that no longer exist.
func (f *Aggregator) buildCluster(now time.Time, nodes []Node) *cluster {
	c := &cluster{nodes: slices.Clone(nodes), zoneOf: make([]int, len(nodes)), reporting: make([]bool, len(nodes))}
	slices.SortFunc(c.nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	var indexes map[string]int
	c.zones, indexes = zonesIn(c.nodes)
	exists := make(map[string]bool, len(c.nodes))
	for i, node := range c.nodes {
		exists[node.Name], c.zoneOf[i] = true, indexes[node.Zone]
		report, hasReport := f.nodes[node.Name]
		c.reporting[i] = hasReport && now.Sub(report.receivedAt) < reportTTL
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

// defaultShares returns each zone's share if all nodes have the demand of their labels.
func (c *cluster) defaultShares() map[string]float64 {
	assumed, sum := map[string]float64{}, 0.0
	for _, z := range c.zones {
		sum += z.weight
	}
	for _, z := range c.zones {
		if sum > 0 {
			assumed[z.name] = z.weight / sum
		}
	}
	return assumed
}

// sum adds up the rates of each Service by zone index. A node without a report counts as the mean of its zone.
func (f *Aggregator) sum(c *cluster, services Services) map[unique.Handle[string]][]float64 {
	sums := map[unique.Handle[string]][]float64{} // nil means that the Service does not exist
	for i, node := range c.nodes {
		if !c.reporting[i] {
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
				sum[c.zoneOf[i]] += float64(r.perSec)
			}
		}
	}
	maps.DeleteFunc(sums, func(_ unique.Handle[string], sum []float64) bool { return sum == nil })
	for _, sum := range sums {
		for i, z := range c.zones {
			if z.reporting > 0 {
				sum[i] *= float64(z.nodes) / float64(z.reporting)
			}
		}
	}
	return sums
}

// zonesIn returns the zones of the nodes, sorted by name, and the index of each.
func zonesIn(nodes []Node) (zones []zone, indexes map[string]int) {
	indexes = map[string]int{}
	for _, node := range nodes {
		indexes[node.Zone] = 0
	}
	for _, name := range slices.Sorted(maps.Keys(indexes)) {
		indexes[name] = len(zones)
		zones = append(zones, zone{name: name})
	}
	return zones, indexes
}

// updateEstimates adds the connections of an interval to the estimates.
func (f *Aggregator) updateEstimates(
	now time.Time, took time.Duration, c *cluster, sums map[unique.Handle[string]][]float64, services Services, round *Round,
) {
	assumed := c.defaultShares()
	for _, name := range namesOf(sums) {
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
		zoneRates := sums[unique.Make(name)]
		svc.report, svc.reportedAt = svc.decide(took, c, zoneRates, service, assumed), now
		if svc.report.ChangePoint {
			round.ChangePoints++
		}
		if service.ShouldPublish {
			round.Decided[name] = svc.report
		}
		if svc.report.Shares == nil && zoneRates == nil && service.Published == nil && svc.report.ConnectionsPerMinute < 1 {
			delete(f.services, name) // no connections for a long time; this makes room for another Service
		}
	}
}

// decide adds the connections to a Service in one interval to its estimate. A nil zoneRates means that there were none.
func (s *serviceState) decide(took time.Duration, c *cluster, zoneRates []float64, service Service, assumed map[string]float64) Report {
	s.estimator.SetPublished(service.Published, nil, 0)
	return reportOf(s.estimator.Add(s.sampleOf(took, c, zoneRates, assumed), assumed), assumed)
}

// sampleOf returns the connections of each zone. A zone below quorum keeps its share: its nodes may still connect as
// before, and a failed node that is alone in its zone must not block all other zones.
func (s *serviceState) sampleOf(took time.Duration, c *cluster, zoneRates []float64, assumed map[string]float64) Sample {
	sample := Sample{Took: took, Zones: map[string]float64{}}
	reported, missingShare := 0.0, 0.0
	for i := range c.zones {
		switch z := &c.zones[i]; {
		case z.lacksQuorum():
			missingShare += s.estimator.expectedShare(z.name, assumed)
		case zoneRates != nil:
			sample.Zones[z.name] = zoneRates[i] * took.Seconds()
			reported += sample.Zones[z.name]
		}
	}
	for i := range c.zones {
		if z := &c.zones[i]; z.lacksQuorum() {
			sample.Zones[z.name] = imputeShare(s.estimator.expectedShare(z.name, assumed), missingShare, reported)
		}
	}
	return sample
}

// maxImputed bounds the total share of zones below quorum: the total is extrapolated from the other zones.
const maxImputed = 0.99

// imputeShare estimates the connections of a zone below quorum, from its share, the total share of all such zones, and
// the connections of the zones that reported.
func imputeShare(share, totalShare, reported float64) float64 {
	if totalShare == 0 {
		return 0
	}
	missing := min(totalShare, maxImputed)
	return share / totalShare * missing / (1 - missing) * reported
}

func namesOf(sums map[unique.Handle[string]][]float64) []string {
	names := make([]string, 0, len(sums))
	for service := range sums {
		names = append(names, service.Value())
	}
	slices.Sort(names)
	return names
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
