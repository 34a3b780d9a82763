package forecast

import (
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/selection/simulate"
)

// Options are the options of a forecast.
type Options struct {
	// Now is the time of the forecast: evacuations may have an end.
	Now time.Time
	// Bounds are the load bounds to compare, in percent. OnlyNow limits the forecast to the present setting.
	Bounds  []uint64
	OnlyNow bool
	// Only limits the forecast to one Service, or to those of a namespace; empty means all.
	Only explain.Query
	// Demand is the demand of the nodes; nil means that it is from ServiceDemands, the Service's clients, or labels.
	Demand *Measurement
	// Checker checks a Service's settings; it may be nil.
	Checker RuleChecker
}

// Compute returns a forecast, and the findings about invalid objects, which it ignores as a proxy would.
func Compute(cluster Cluster, options Options) (Report, []model.Finding) {
	f, report := newForecaster(cluster, options)
	f.forecast(&report, options.Only)
	return report, convert.SortProblems(f.rejected)
}

func newForecaster(cluster Cluster, options Options) (forecaster, Report) {
	nodes, state, rejected := cluster.nodeState(options.Now)
	rejected = append(rejected, cluster.rejected...)
	demotionCluster := model.NewCluster("")
	demotionCluster.Apply(model.Change{Demotions: state.Demotions})
	timed, unlimited := demotionCluster.Evacuated()
	selected := cluster.services
	if options.Only != (explain.Query{}) {
		selected = slices.DeleteFunc(slices.Clone(selected), func(s *corev1.Service) bool { return !options.Only.Covers(nameOf(s)) })
	}
	f := forecaster{
		Cluster: cluster, selected: selected, demotionCluster: demotionCluster, rejected: rejected, demand: options.Demand,
		controller: newHintController(cluster.nodes), checker: options.Checker,
	}
	isMeasured := true
	if f.demand != nil {
		f.simulator = simulate.New(nodes, f.demand.nodeShare)
	} else {
		f.simulator = simulate.New(nodes, nil)
		isMeasured = slices.ContainsFunc(selected, func(s *corev1.Service) bool { return f.demands[nameOf(s)] != nil })
	}
	f.settings = settingsOf(options.Bounds, isMeasured)
	if options.OnlyNow {
		f.settings = f.settings[:1]
	}
	report := Report{
		Nodes: len(nodes), Zones: append(f.simulator.Zones(), "other"), ZonesInAll: f.simulator.ZoneCount(),
		Services: []Service{}, NotServed: []NotServed{}, EvacuatedNodes: timed + unlimited, OnlyEvacuated: []OnlyEvacuated{},
		Namespace: options.Only.Service.Namespace,
	}
	if options.Only.Service.Name != "" {
		report.Namespace, report.Service = "", options.Only.Service.String()
	}
	report.addLabelNotes(nodes)
	if i := slices.IndexFunc(f.settings, func(s Setting) bool { return s.isMeasured }); i >= 0 {
		report.Notes = append(report.Notes, f.settings[i].demandNote(f.demand != nil))
	}
	return f, report
}

// forecast adds the forecasts of all selected Services to a report.
func (f *forecaster) forecast(report *Report, only explain.Query) {
	for _, object := range f.selected {
		service, reason := f.service(object)
		if reason != "" {
			report.NotServed = append(report.NotServed, NotServed{nameOf(object).String(), reason})
		} else {
			report.Services = append(report.Services, service)
		}
	}
	report.addHintNotes()
	if note := f.unmeasuredNote(); note != "" {
		report.Notes = append(report.Notes, note)
	}
	if f.demand != nil {
		report.Incomplete = append(f.demand.missingParts(), f.demand.missingServices(only, report.Services)...)
	}
	report.Demand = f.demandText(report.Services)
	f.setWeights(report.Services)
	report.Settings = f.totals(report.Services)
	report.OnlyEvacuated = append(report.OnlyEvacuated, f.onlyEvacuated...)
}

// forecaster holds the state of a forecast.
type forecaster struct {
	Cluster
	selected        []*corev1.Service // selected by Options.Only
	simulator       *simulate.Simulator
	demotionCluster *model.Cluster // it has only the demotions
	controller      hintController
	settings        []Setting
	demand          *Measurement // nil if nodes' demand is not measured, or is from ServiceDemands
	checker         RuleChecker
	rejected        []model.Finding
	// unmeasured are the Services that have the setting "measured" but no measured demand.
	unmeasured []string

	onlyEvacuated []OnlyEvacuated

	// For a comparison: see Compare.
	clientsOf          map[model.ObjectName][]model.ObjectName
	means, meansBefore map[servicePort]mean
}

// service returns the forecast of one Service, or why there is none.
func (f *forecaster) service(object *corev1.Service) (Service, string) {
	parsed, reason := f.parse(object)
	if reason != "" {
		return Service{}, reason
	}
	endpointSlices := f.slicesOf[nameOf(object)]
	current, rejected := f.convertSlices(endpointSlices)
	f.rejected = append(f.rejected, rejected...)
	s := Service{
		Service: nameOf(object).String(), Headless: parsed.IsHeadless,
		EndpointsByZone: map[string]int{}, Endpoints: []Endpoint{}, Causes: []Problem{},
	}
	clientNames := parsed.Clients()
	if overriding := f.clientsOf[parsed.Name]; len(overriding) > 0 {
		clientNames = overriding
	}
	clients, rejected := f.readyEndpoints(clientNames)
	f.rejected = append(f.rejected, rejected...)
	for i, setting := range f.settings {
		if note, equivalent := f.equivalentSetting(setting, parsed, object, endpointSlices); note != "" {
			projection := s.Projections[slices.IndexFunc(s.Projections, func(p Projection) bool { return p.Setting == equivalent })]
			projection.Setting, projection.Note = setting.Name, note
			s.Projections = append(s.Projections, projection)
			continue
		}
		changed := setting.apply(object)
		topology := parsed.Topology
		if setting.Name != Now {
			topology = f.topologyUnder(changed, parsed)
			topology.Measured = topology.Measured && setting.isMeasured
		}
		converted := current
		if setting.Name != Now && len(topology.Keys) == 0 {
			hinted, _ := f.controller.hint(changed, endpointSlices)
			converted, _ = f.convertSlices(hinted)
		}
		groups := f.endpointGroups(parsed, converted)
		if i == 0 {
			f.listEndpoints(&s, groups)
		}
		s.Projections = append(s.Projections, f.project(setting, topology, parsed, groups, clients))
		if i == 0 {
			s.DemandSource = s.Projections[0].source
			if planned := s.Projections[0].PlannedWith; planned != "" && planned != string(simulate.Measured) {
				s.asMeasured = f.projectMeasured(object, parsed, groups, clients)
			}
			s.Causes = append(s.Causes, f.causes(&s.Projections[0], object, parsed, groups)...)
			s.Causes = append(s.Causes, f.boundProblems(&s, parsed)...)
			f.recordEvacuated(parsed, groups, &s.Projections[0])
		}
	}
	s.Advice = f.advise(&s, object, parsed)
	return s, ""
}

// projectMeasured returns the projection of a Service whose bound is planned with default demand as if it were planned
// with measured demand; nil if there is none. It records a Service that has the setting "measured".
func (f *forecaster) projectMeasured(
	object *corev1.Service, parsed *model.Service, groups []endpointGroup, clients map[string]uint32,
) *Projection {
	if parsed.Topology.Measured {
		f.unmeasured = append(f.unmeasured, parsed.Name.String())
	}
	if len(f.settings) == 1 || f.demand == nil && f.demands[parsed.Name] == nil {
		return nil
	}
	changed := *object
	changed.Annotations = withMeasuredDemand(object)
	topology := f.topologyUnder(&changed, parsed)
	if !topology.Measured { // the setting may be rejected
		return nil
	}
	projection := f.project(Setting{Name: policy.Measured, isMeasured: true}, topology, parsed, groups, clients)
	return &projection
}

// parse reads a Service as the proxy does, and also a headless one without topology keys: its clients look up all of
// its ready endpoints, and choose at random.
func (f *forecaster) parse(object *corev1.Service) (*model.Service, string) {
	parsed, errs := convert.Service(object, f.view)
	f.rejected = append(f.rejected, rejectedFindings(convert.Services, object, errs)...)
	switch {
	case len(errs) > 0:
		return nil, "it is invalid"
	case parsed != nil:
		return parsed, ""
	case object.Spec.ClusterIP != corev1.ClusterIPNone || object.Spec.Type == corev1.ServiceTypeExternalName ||
		!policy.IsHandledBy(object.Labels, f.view.ServiceProxyName):
		return nil, convert.NotServedReason(object, f.view)
	}
	withKeys := Setting{Name: None}.apply(object)
	withKeys.Annotations[policy.TopologyKeysAnnotation] = string(policy.AnyNode)
	parsed, errs = convert.Service(withKeys, f.view)
	f.rejected = append(f.rejected, rejectedFindings(convert.Services, object, errs)...)
	if parsed == nil {
		return nil, "it is invalid"
	}
	parsed.Topology = policy.Topology{}
	return parsed, ""
}

// topologyUnder returns the topology settings of a changed Service.
func (f *forecaster) topologyUnder(changed *corev1.Service, parsed *model.Service) policy.Topology {
	if parsed.IsHeadless && changed.Annotations[policy.TopologyKeysAnnotation] == "" {
		return policy.Topology{}
	}
	topology, _ := convert.TopologyOf(changed, f.view)
	return topology
}

// equivalentSetting returns why a setting has no meaning for a Service, and which other setting it is then equal to.
func (f *forecaster) equivalentSetting(
	setting Setting, parsed *model.Service, object *corev1.Service, endpointSlices []*discoveryv1.EndpointSlice,
) (note, equivalent string) {
	switch {
	case setting.Name == Now:
		return "", ""
	case parsed.InternalTrafficLocal:
		return "internalTrafficPolicy: Local keeps connections on the node, whatever else is set", Now
	case setting.needsHints() && parsed.IsHeadless:
		return "DNS follows topology keys, but not hints", None
	case setting.needsHints() && (len(object.Spec.Selector) == 0 || !slices.ContainsFunc(endpointSlices, isWrittenByController)):
		return "no controller writes hints into the EndpointSlices of this Service", None
	case setting.isMeasured && parsed.IsHeadless:
		return "connections to a headless Service are not counted, so a load bound is planned with assumed demand",
			policy.FormatMaxLoad(setting.bound)
	case setting.bound > 0 && parsed.ExternalTrafficLocal:
		return "a load bound has no effect with externalTrafficPolicy: Local", Now
	}
	return "", ""
}

// endpointGroup is a list of endpoints that several ports or families have in common, except for the addresses.
type endpointGroup struct {
	endpoints []model.PortEndpoint
	ports     []servicePort
}

// servicePort is a port of a Service in a family; for a headless Service, all its ports.
type servicePort struct {
	service model.ObjectName
	family  model.Family
	port    model.ServicePort
}

// endpointGroups returns the endpoints of a Service's ports, grouped.
func (f *forecaster) endpointGroups(service *model.Service, endpointSlices []*model.EndpointSlice) []endpointGroup {
	joined := model.JoinSlices(service, endpointSlices)
	var groups []endpointGroup
	add := func(endpoints []model.PortEndpoint, id servicePort) {
		f.demotionCluster.MarkDemoted(endpoints)
		for i := range endpoints {
			endpoint := &endpoints[i]
			if service.IsHeadless { // as in package selection: DNS has only ready ones
				endpoint.Serving = endpoint.Serving && endpoint.Ready
			}
		}
		for i := range groups {
			if slices.EqualFunc(groups[i].endpoints, endpoints, isEquivalent) {
				groups[i].ports = append(groups[i].ports, id)
				return
			}
		}
		groups = append(groups, endpointGroup{endpoints, []servicePort{id}})
	}
	for _, family := range model.Families {
		if service.IsHeadless {
			if endpoints, _ := joined.Addresses(family); len(endpoints) > 0 {
				add(endpoints, servicePort{service: service.Name, family: family})
			}
			continue
		}
		if _, has := service.ClusterIP(family); !has {
			continue
		}
		for _, port := range service.Ports {
			endpoints, _ := joined.Endpoints(port, family)
			add(endpoints, servicePort{service.Name, family, port})
		}
	}
	if len(groups) == 0 {
		groups = []endpointGroup{{nil, []servicePort{{service: service.Name}}}}
	}
	return groups
}

// isEquivalent reports whether two endpoints are equal in everything that affects decisions.
func isEquivalent(a, b model.PortEndpoint) bool {
	return a.Node == b.Node && a.Zone == b.Zone && a.Phase() == b.Phase() &&
		slices.Equal(a.HintNodes, b.HintNodes) && slices.Equal(a.HintZones, b.HintZones)
}

// listEndpoints lists the endpoints of the first port.
func (f *forecaster) listEndpoints(s *Service, groups []endpointGroup) {
	for i, endpoint := range groups[0].endpoints {
		zone := f.simulator.ZoneOf(&endpoint)
		if endpoint.Phase() != model.PhaseNever {
			s.EndpointsByZone[zone]++
		}
		if i < MaxListed {
			s.Endpoints = append(s.Endpoints, Endpoint{explain.EndpointName(endpoint.Addr), endpoint.Node, zone, stateOf(&endpoint)})
		}
	}
}

func stateOf(endpoint *model.PortEndpoint) string {
	switch phase := endpoint.Phase(); {
	case phase == model.PhaseNever:
		return "unready"
	case endpoint.Demotion != nil:
		return endpoint.Demotion.Reason.String()
	case phase == model.PhaseTerminating:
		return "terminating"
	}
	return "ready"
}

// project returns the projection of one Service under one setting.
func (f *forecaster) project(
	setting Setting, topology policy.Topology, service *model.Service, groups []endpointGroup, clients map[string]uint32,
) Projection {
	projection := Projection{Setting: setting.Name, Loads: []float64{}}
	demand, keys := 0.0, make([]float64, len(topology.Keys))
	byNode, published := f.demand.nodeSharesOn(service.Name.String()), f.publishedFor(setting, service.Name)
	for i, group := range groups {
		distribution := f.simulator.Distribute(simulate.Query{
			Topology: topology, IsLocal: service.InternalTrafficLocal, Endpoints: group.endpoints, Clients: clients,
			NodeDemand: byNode, Measured: published,
		})
		portCount := float64(len(group.ports))
		projection.source, projection.PlannedWith = string(distribution.Source), string(distribution.PlannedWith) // the same for all groups
		demand += portCount * distribution.Demand
		projection.add(&Shares{
			Node: distribution.Node, Zone: distribution.Zone, Region: distribution.Region, OtherZones: distribution.OtherZones,
			Refused:      distribution.Refused,
			UnknownZones: distribution.Demand - distribution.Refused - distribution.Zone - distribution.OtherZones,
		}, portCount)
		projection.evacuated += portCount * distribution.Evacuated
		for _, node := range distribution.OnlyEvacuated {
			if projection.onlyEvacuated == nil {
				projection.onlyEvacuated = map[string]bool{}
			}
			projection.onlyEvacuated[node] = true
		}
		for k := range distribution.Keys {
			keys[k] += portCount * distribution.Keys[k]
		}
		if projection.zones == nil {
			projection.zones = make([]float64, len(distribution.Zones))
		}
		for z, amount := range distribution.Zones {
			projection.zones[z] += portCount * amount
		}
		projection.addLoads(&group, &distribution, f.meanOf(setting, &group, &distribution), i == 0)
		if distribution.Refused > 0 {
			projection.refusedShares = append(projection.refusedShares,
				refusedShare{i, distribution.Refused / distribution.Demand, distribution.Refusers})
		}
	}
	shareOf := func(amount float64) float64 {
		if demand == 0 {
			return 0
		}
		return max(0, amount/demand) // rounding errors may give slightly less than 0
	}
	for _, share := range projection.pointers() {
		*share = shareOf(*share)
	}
	projection.round()
	projection.evacuated, projection.Busiest.Load = explain.Rounded(shareOf(projection.evacuated)), explain.Rounded(projection.Busiest.Load)
	for k, key := range topology.Keys {
		if !service.InternalTrafficLocal {
			projection.Keys = append(projection.Keys, KeyShare{string(key), explain.Rounded(shareOf(keys[k]))})
		}
	}
	for z := range projection.zones {
		projection.zones[z] = notNaN(projection.zones[z] / demand)
	}
	return projection
}

// publishedFor returns the measured demand on a Service with which a setting's bound may be planned.
func (f *forecaster) publishedFor(setting Setting, service model.ObjectName) *model.Demand {
	if setting.isMeasured && f.demand != nil {
		return f.demand.serviceDemand(service.String())
	}
	return f.demands[service]
}

// addLoads adds the loads of the endpoints of a group. The endpoints of the first group are listed.
func (p *Projection) addLoads(group *endpointGroup, distribution *simulate.Distribution, mean float64, isFirst bool) {
	for i, load := range distribution.Loads {
		if load /= mean; load > p.Busiest.Load+1e-9 {
			endpoint := &group.endpoints[i]
			p.Busiest = Busiest{explain.EndpointName(endpoint.Addr), endpoint.Node, load}
		}
		if isFirst && load > 0 {
			p.Used++
		}
		if isFirst && i < MaxListed {
			p.Loads = append(p.Loads, explain.Rounded(notNaN(load)))
		}
	}
}

func notNaN(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}

// setWeights sets each Service's weight in the totals: its demand, if the file of --demand has the demand on Services;
// otherwise all weights are equal.
func (f *forecaster) setWeights(services []Service) {
	weights, total := make([]float64, len(services)), 0.0
	for i := range services {
		if f.demand != nil {
			weights[i] = f.demand.byService[services[i].Service].sum()
		}
		total += weights[i]
	}
	for i := range services {
		if services[i].Weight = weights[i] / total; total == 0 {
			services[i].Weight = 1 / float64(len(services))
		}
	}
}

// totals sums all Services under each setting, and rounds their weights.
func (f *forecaster) totals(services []Service) []Total {
	totals, size := make([]Total, len(f.settings)), len(f.simulator.Zones())+1
	for i, setting := range f.settings {
		total := Total{Setting: setting.Name, Matrix: make([][]float64, size)}
		for row := range total.Matrix {
			total.Matrix[row] = make([]float64, size)
		}
		for s := range services {
			projection, weight := &services[s].Projections[i], services[s].Weight
			total.add(&projection.Shares, weight)
			if projection.Busiest.Load > total.Busiest.Load+1e-9 {
				total.Busiest, total.BusiestService = projection.Busiest, services[s].Service
			}
			for z, amount := range projection.zones {
				total.Matrix[z/size][z%size] += amount * weight
			}
		}
		total.round()
		var cells []*float64
		for row := range total.Matrix {
			for column := range total.Matrix[row] {
				cells = append(cells, &total.Matrix[row][column])
			}
		}
		explain.RoundParts(cells...)
		totals[i] = total
	}
	weights := make([]*float64, len(services))
	for i := range services {
		weights[i] = &services[i].Weight
	}
	explain.RoundParts(weights...)
	return totals
}
