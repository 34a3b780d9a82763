package demand

import (
	"maps"
	"slices"
	"time"
	"unique"

	"github.com/vicinity-proxy/vicinity/pkg/demandpage"
)

const (
	// goesOn is how long a node that falls silent is taken to ask as it did last.
	goesOn = 10 * time.Minute
	// mostRate bounds what one node may say of one Service: a node that lies must not make numbers that are none.
	mostRate = 1e6
	// mostServices is how many are followed. Proxies count of no more; one that lies may name others.
	mostServices = demandpage.MaxServices
)

// Node is a node of the cluster.
type Node struct {
	Name, Zone string
	// Weight is how much it is assumed to ask, beside others.
	Weight float64
}

// Follower follows what the nodes of a cluster ask of all Services. The zero value has heard nothing.
type Follower struct {
	nodes    map[string]heard
	services map[string]*followed
	rounded  time.Time // when the last round was; zero before the first one
}

// heard is what a node said last.
type heard struct {
	at    time.Time
	rates []rate
}

// rate is how often a node asks a Service. Thousands of nodes may name a thousand Services each, all of them the same: names
// are kept once.
type rate struct {
	service unique.Handle[string]
	perSec  float32
}

type followed struct {
	estimator Estimator
	report    Report
	at        time.Time // of the report
}

// Report is how a Service is asked.
type Report struct {
	Decision
	// Assumed is each zone's part if all nodes ask as their labels say.
	Assumed map[string]float64
	// OffBy is how many times its assumed part the zone asks that is off the most, and Zone which one that is.
	OffBy float64
	Zone  string
}

// Round is what was found in an interval.
type Round struct {
	// Heard is how many of Nodes told what they counted, in this interval or within ten minutes.
	Heard, Nodes int
	// IsPaused: there is a zone of which less than half of the nodes were heard, and Silent is its name, which may be empty.
	// Nothing new is known then.
	IsPaused bool
	Silent   string
	// Services are those with enough connections to say something, by namespace/name.
	Services map[string]Report
}

// Heard takes in what a node said. A page that only hands out a cursor says nothing of what is asked.
func (f *Follower) Heard(node string, at time.Time, page demandpage.Page) {
	if page.Took <= 0 {
		return
	}
	if f.nodes == nil {
		f.nodes = map[string]heard{}
	}
	said := heard{at: at, rates: make([]rate, 0, len(page.Counts))}
	for service, count := range page.Counts {
		perSec := min(float64(count)/page.Took.Seconds(), mostRate)
		said.rates = append(said.rates, rate{unique.Make(service), float32(perSec)})
	}
	f.nodes[node] = said
}

// zone is what is known of a zone's nodes.
type zone struct {
	name         string
	nodes, heard int
	weight       float64
}

// Round sums up by zone what was heard. Services that do not exist are not followed.
func (f *Follower) Round(now time.Time, nodes []Node, exists func(service string) bool) Round {
	took := now.Sub(f.rounded)
	if f.rounded.IsZero() {
		took = 0
	}
	f.rounded = now
	round := Round{Nodes: len(nodes), Services: map[string]Report{}}
	zones, sums := f.sum(now, nodes, exists)
	assumed := assumedOf(zones)
	for _, z := range zones {
		round.Heard += z.heard
		if 2*z.heard < z.nodes && !round.IsPaused {
			round.IsPaused, round.Silent = true, z.name
		}
	}
	if !round.IsPaused && took > 0 {
		f.estimate(now, took, sums, assumed, exists)
	}
	for name, service := range f.services {
		if service.report.Parts != nil && now.Sub(service.at) < goesOn {
			round.Services[name] = service.report
		}
	}
	return round
}

// assumedOf returns each zone's part if all nodes ask as their labels say.
func assumedOf(zones []zone) map[string]float64 {
	assumed, all := map[string]float64{}, 0.0
	for _, z := range zones {
		all += z.weight
	}
	for _, z := range zones {
		if all > 0 {
			assumed[z.name] = z.weight / all
		}
	}
	return assumed
}

// sum adds up the rates of each Service by zone. A node that was not heard counts as its zone's mean. Zones are sorted.
func (f *Follower) sum(
	now time.Time, nodes []Node, exists func(string) bool,
) (zones []zone, sums map[unique.Handle[string]]map[string]float64) {
	zones, numbers := zonesIn(nodes)
	byNumber := map[unique.Handle[string]][]float64{}
	strangers := map[unique.Handle[string]]bool{}
	known := make(map[string]bool, len(nodes))
	for _, node := range nodes {
		known[node.Name] = true
		number := numbers[node.Zone]
		zones[number].nodes++
		zones[number].weight += node.Weight
		said, was := f.nodes[node.Name]
		if !was || now.Sub(said.at) >= goesOn {
			continue
		}
		zones[number].heard++
		for _, r := range said.rates {
			byZone := byNumber[r.service]
			if byZone == nil {
				if strangers[r.service] || !exists(r.service.Value()) {
					strangers[r.service] = true
					continue
				}
				byZone = make([]float64, len(zones))
				byNumber[r.service] = byZone
			}
			byZone[number] += float64(r.perSec)
		}
	}
	maps.DeleteFunc(f.nodes, func(name string, _ heard) bool { return !known[name] })
	sums = make(map[unique.Handle[string]]map[string]float64, len(byNumber))
	for service, byZone := range byNumber {
		sums[service] = make(map[string]float64, len(zones))
		for number, z := range zones {
			if z.heard > 0 {
				sums[service][z.name] = byZone[number] * float64(z.nodes) / float64(z.heard)
			}
		}
	}
	return zones, sums
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

// estimate takes in what was asked in some time.
func (f *Follower) estimate(
	now time.Time, took time.Duration, sums map[unique.Handle[string]]map[string]float64, assumed map[string]float64,
	exists func(string) bool,
) {
	if f.services == nil {
		f.services = map[string]*followed{}
	}
	maps.DeleteFunc(f.services, func(name string, _ *followed) bool { return !exists(name) })
	for _, name := range namesOf(sums) {
		if f.services[name] == nil && len(f.services) < mostServices {
			f.services[name] = &followed{}
		}
	}
	for name, service := range f.services {
		perSecond := sums[unique.Make(name)]
		sample := Sample{Took: took, Zones: make(map[string]float64, len(perSecond))}
		for zone, rate := range perSecond {
			sample.Zones[zone] = rate * took.Seconds()
		}
		service.report, service.at = reportOf(service.estimator.Add(sample, assumed), assumed), now
		if service.report.Parts == nil && perSecond == nil && service.report.ConnectionsPerMinute < 1 {
			delete(f.services, name) // nobody has asked for long, and there is room for another one
		}
	}
}

func namesOf(sums map[unique.Handle[string]]map[string]float64) []string {
	names := make([]string, 0, len(sums))
	for service := range sums {
		names = append(names, service.Value())
	}
	slices.Sort(names)
	return names
}

// reportOf says of an estimate which zone is off the most.
func reportOf(decision Decision, assumed map[string]float64) Report {
	report := Report{Decision: decision, Assumed: assumed, OffBy: 1}
	for _, zone := range slices.Sorted(maps.Keys(decision.Parts)) {
		by := max(decision.Parts[zone], floor) / max(assumed[zone], floor)
		if by > report.OffBy+1e-9 { // a sum of floats is rarely 1
			report.OffBy, report.Zone = by, zone
		}
	}
	return report
}
