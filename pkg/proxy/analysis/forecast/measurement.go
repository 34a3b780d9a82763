package forecast

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

// Measurement is the measured demand of a cluster's nodes: on all Services together, and on single ones.
type Measurement struct {
	// source names where the measurement comes from, such as a file.
	source    string
	locations locations
	// byNode is each node's share of all demand. byService is the demand on each Service, by its namespace/name and
	// then by node or zone.
	byNode    map[string]float64
	byService map[string]Weights
	// unknown are names of neither a node nor a zone of the cluster; unknownShare is their share of all demand.
	unknown      []string
	unknownShare float64
}

// NewMeasurement returns a measurement in a cluster. It fails if no sample is about a node of the cluster, or if a name
// is that of both a node and a zone.
func NewMeasurement(source string, samples []Sample, cluster Cluster) (*Measurement, error) {
	all, err := weightsOf(samples)
	if err != nil {
		return nil, err
	}
	return newMeasurement(source, all, weightsByService(samples), cluster)
}

func newMeasurement(source string, all Weights, byService map[string]Weights, cluster Cluster) (*Measurement, error) {
	m := &Measurement{source: source, locations: newLocations(cluster), byService: map[string]Weights{}}
	if ambiguous := m.locations.ambiguous(all); len(ambiguous) > 0 {
		return nil, fmt.Errorf("a Node and a zone have this name: %s", explain.ListOrCount(ambiguous))
	}
	sum := all.sum()
	if math.IsInf(sum, 0) {
		return nil, errors.New("the weights are too large to be added")
	}
	known := Weights{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if _, isNode := m.locations.zoneOf[name]; isNode || len(m.locations.nodesWithoutWeight(name, all)) > 0 {
			known[name] = all[name]
			continue
		}
		m.unknown = append(m.unknown, name)
		m.unknownShare += all[name] / sum
	}
	switch {
	case known.sum() > 0:
	case len(m.unknown) > 0:
		return nil, fmt.Errorf("no Node has this name or is in this zone: %s", explain.ListOrCount(m.unknown))
	default:
		return nil, errors.New("all weights are 0")
	}
	m.byNode = m.locations.divide(known)
	for service, weights := range byService {
		m.byService[service] = Weights{}
		for name, weight := range weights {
			if _, isKnown := known[name]; isKnown {
				m.byService[service][name] = weight
			}
		}
	}
	return m, nil
}

// sum sums in a fixed order, because sums of fractions depend on it.
func (w Weights) sum() (sum float64) {
	for _, name := range slices.Sorted(maps.Keys(w)) {
		sum += w[name]
	}
	return sum
}

// nodeShare returns a node's part of all demand.
func (m *Measurement) nodeShare(node *model.Node) float64 { return m.byNode[node.Name] }

// nodeSharesOn returns each node's part of the demand on a Service; nil if none was measured.
func (m *Measurement) nodeSharesOn(service string) map[string]float64 {
	if m == nil || m.byService[service].sum() == 0 {
		return nil
	}
	return m.locations.divide(m.byService[service])
}

// serviceDemand returns the demand on a Service as a ServiceDemand would have it: by zone. Proxies could plan with
// that. A Service without measured demand has the demand on all together.
func (m *Measurement) serviceDemand(service string) *model.Demand {
	byNode := m.nodeSharesOn(service)
	if byNode == nil {
		byNode = m.byNode
	}
	zones, published := map[string]float64{}, &model.Demand{Zones: map[string]uint32{}}
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		zones[m.locations.zoneOf[node]] += byNode[node]
	}
	for zone, share := range zones {
		if share > 0 {
			published.Zones[zone] = uint32(max(1, math.Round(share*ppm)))
		}
	}
	return published
}

// ppm is the unit of a ServiceDemand: parts per million.
const ppm = 1e6

// missingParts describes the nodes of the cluster without a measurement, and the part of the measurement that is
// omitted.
func (m *Measurement) missingParts() (sentences []string) {
	var missing []string
	for _, node := range m.locations.linux {
		if _, measured := m.byNode[node]; !measured {
			missing = append(missing, node)
		}
	}
	if len(missing) > 0 {
		sentences = append(sentences, fmt.Sprintf("%s lacks %d of %d Nodes (%s): the forecast does not include their connections. For a Node "+
			"without connections, the value is 0.", m.source, len(missing), len(m.locations.linux), explain.ListOrCount(missing)))
	}
	if len(m.unknown) > 0 {
		sentences = append(sentences, fmt.Sprintf("%s of the demand in %s is omitted, because there is no Node and no zone of this name: %s.",
			percent(explain.Rounded(m.unknownShare)), m.source, explain.ListOrCount(m.unknown)))
	}
	return sentences
}

// missingServices describes the part of the measured demand on Services that is omitted, because there is no forecast
// of them. It is about Services that a query covers.
func (m *Measurement) missingServices(query explain.Query, services []Service) (sentences []string) {
	omitted, all, names := 0.0, 0.0, []string(nil)
	isForecast := map[string]bool{}
	for i := range services {
		isForecast[services[i].Service] = true
	}
	for _, service := range slices.Sorted(maps.Keys(m.byService)) {
		namespace, name, _ := strings.Cut(service, "/")
		demand := m.byService[service].sum()
		if demand == 0 || !query.Covers(model.ObjectName{Namespace: namespace, Name: name}) {
			continue
		}
		if all += demand; !isForecast[service] {
			omitted += demand
			names = append(names, service)
		}
	}
	if len(names) == 0 {
		return nil
	}
	subject := "Services in"
	if query != (explain.Query{}) {
		subject = "these Services in"
	}
	return []string{fmt.Sprintf("%s of the demand on %s %s is omitted, because they do not exist or are not served: %s.",
		percent(explain.Rounded(omitted/all)), subject, m.source, explain.ListOrCount(names))}
}

// locations are the nodes of a cluster, by name and by zone.
type locations struct {
	zoneOf map[string]string
	// linux are the nodes on which this proxy can run, and byZone are those of each zone. Clients on other nodes do not
	// count.
	linux  []string
	byZone map[string][]string
}

func newLocations(cluster Cluster) locations {
	l := locations{zoneOf: map[string]string{}, byZone: map[string][]string{}}
	for _, node := range cluster.nodes {
		zone := node.Labels[string(policy.Zone)]
		l.zoneOf[node.Name] = zone
		if policy.IsLinux(node.Labels) {
			l.linux, l.byZone[zone] = append(l.linux, node.Name), append(l.byZone[zone], node.Name)
		}
	}
	delete(l.byZone, "") // "" is no zone
	slices.Sort(l.linux)
	return l
}

// nodesWithoutWeight returns the nodes of a zone that some weights do not name.
func (l *locations) nodesWithoutWeight(zone string, weights Weights) (nodes []string) {
	for _, node := range l.byZone[zone] {
		if _, named := weights[node]; !named {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// ambiguous returns the names of both a node and a zone.
func (l *locations) ambiguous(weights Weights) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(weights)) {
		if _, isNode := l.zoneOf[name]; isNode && len(l.nodesWithoutWeight(name, weights)) > 0 {
			names = append(names, name)
		}
	}
	return names
}

// divide returns each node's share of the sum of all weights: that of its own weight, or, for a node without one, that
// of an equal part of its zone's weight. Nodes with neither are absent. The cost is proportional to the names and the
// nodes of zones among them.
func (l *locations) divide(weights Weights) map[string]float64 {
	all, byNode := weights.sum(), map[string]float64{}
	for name, weight := range weights {
		if _, isNode := l.zoneOf[name]; isNode {
			byNode[name] = weight / all
			continue
		}
		withoutWeight := l.nodesWithoutWeight(name, weights)
		for _, node := range withoutWeight {
			byNode[node] = weight / all / float64(len(withoutWeight))
		}
	}
	return byNode
}

// demandText describes the demand of the forecast.
func (f *forecaster) demandText(services []Service) string {
	const assumed = "ach Node counts as one client, unless its labels or the Service say otherwise."
	var measured []string
	var oldest time.Time
	for i := range services {
		namespace, name, _ := strings.Cut(services[i].Service, "/")
		if demand := f.demands[model.ObjectName{Namespace: namespace, Name: name}]; demand != nil {
			measured = append(measured, services[i].Service)
			if oldest.IsZero() || demand.ObservedAt.Before(oldest) {
				oldest = demand.ObservedAt
			}
		}
	}
	switch {
	case f.demand != nil:
		text := f.demand.text(services)
		if len(measured) > 0 {
			text += fmt.Sprintf(" ServiceDemands do not affect it; bounds with %s: %s are planned with them, as the proxies do.",
				policy.DemandSourceAnnotation, policy.Measured)
		}
		return text
	case len(measured) > 0:
		return fmt.Sprintf("Demand is from ServiceDemands for %d of %s (%s), measured since %s; for others e%s", len(measured),
			sanitize.Count(len(services), "Service"), explain.ListOrCount(measured), oldest.UTC().Format("2006-01-02 15:04 UTC"), assumed)
	}
	return "E" + assumed
}

func (m *Measurement) text(services []Service) string {
	var measured []string
	for i := range services {
		if m.byService[services[i].Service].sum() > 0 {
			measured = append(measured, services[i].Service)
		}
	}
	switch others := len(services) - len(measured); {
	case len(m.byService) == 0:
		return fmt.Sprintf("Demand is from %s.", m.source)
	case len(measured) == 0:
		return fmt.Sprintf("%s has no demand on any of these Services: its demand on all Services together is used.", m.source)
	case others == 0:
		return fmt.Sprintf("Demand is from %s, for each Service. In sums, Services are weighted by that demand.", m.source)
	default:
		return fmt.Sprintf("Demand is from %s: for %s that on each, and for %s that on all Services together. In sums, Services are weighted "+
			"by their own demand there; those others have none.", m.source, explain.ListOrCount(measured), sanitize.Count(others, "other"))
	}
}
