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

// Compute returns a forecast. It rejects unreadable objects, as a proxy would.
func Compute(cluster Cluster, options Options) (Report, []model.Finding) {
	f, report := newForecaster(cluster, options)
	f.forecast(&report, options.Only)
	return report, convert.SortProblems(f.rejected)
}

func newForecaster(cluster Cluster, options Options) (forecaster, Report) {
	nodes, known, rejected := cluster.nodeState(options.Now)
	rejected = append(rejected, cluster.rejected...)
	avoided := model.NewCluster("")
	avoided.Apply(model.Change{Demotions: known.Demotions})
	timed, open := avoided.Evacuated()
	selected := cluster.services
	if options.Only != (explain.Query{}) {
		selected = slices.DeleteFunc(slices.Clone(selected), func(s *corev1.Service) bool { return !options.Only.Covers(nameOf(s)) })
	}
	f := forecaster{
		Cluster: cluster, selected: selected, avoided: avoided, rejected: rejected, demand: options.Demand,
		controllers: newControllers(cluster.nodes), checker: options.Checker,
	}
	isMeasured := true
	if f.demand != nil {
		f.fleet = simulate.New(nodes, f.demand.of)
	} else {
		f.fleet = simulate.New(nodes, nil)
		isMeasured = slices.ContainsFunc(selected, func(s *corev1.Service) bool { return f.demands[nameOf(s)] != nil })
	}
	f.settings = settingsOf(options.Bounds, isMeasured)
	if options.OnlyNow {
		f.settings = f.settings[:1]
	}
	report := Report{
		Nodes: len(nodes), Zones: append(f.fleet.Zones(), "other"), ZonesInAll: f.fleet.ZonesInAll(),
		Services: []Service{}, NotServed: []NotServed{}, EvacuatedNodes: timed + open, OnlyEvacuated: []OnlyEvacuated{},
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
		service, why := f.service(object)
		if why != "" {
			report.NotServed = append(report.NotServed, NotServed{nameOf(object).String(), why})
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
	f.weigh(report.Services)
	report.Settings = f.totals(report.Services)
	report.OnlyEvacuated = append(report.OnlyEvacuated, f.onlyEvacuated...)
}

// forecaster holds the state of a forecast.
type forecaster struct {
	Cluster
	selected    []*corev1.Service // selected by Options.Only
	fleet       *simulate.Simulator
	avoided     *model.Cluster // it has only the demotions
	controllers controllers
	settings    []Setting
	demand      *Measurement // nil if nodes' demand is not measured, or is from ServiceDemands
	checker     RuleChecker
	rejected    []model.Finding
	// unmeasured are the Services that have the setting "measured" but no measured demand.
	unmeasured []string

	onlyEvacuated []OnlyEvacuated

	// For a comparison: see Compare.
	clientsOf     map[model.ObjectName][]model.ObjectName
	means, before map[portOf]mean
}

// service returns the forecast of one Service, or why there is none.
func (f *forecaster) service(object *corev1.Service) (Service, string) {
	read, why := f.read(object)
	if why != "" {
		return Service{}, why
	}
	written := f.slicesOf[nameOf(object)]
	current, rejected := f.slicesIn(written)
	f.rejected = append(f.rejected, rejected...)
	s := Service{
		Service: nameOf(object).String(), Headless: read.IsHeadless,
		EndpointsByZone: map[string]int{}, Endpoints: []Endpoint{}, Causes: []Problem{},
	}
	named := read.Clients()
	if others := f.clientsOf[read.Name]; len(others) > 0 {
		named = others
	}
	clients, rejected := f.readyEndpoints(named)
	f.rejected = append(f.rejected, rejected...)
	for i, setting := range f.settings {
		if note, like := f.equivalentSetting(setting, read, object, written); note != "" {
			projection := s.Outlooks[slices.IndexFunc(s.Outlooks, func(o Projection) bool { return o.Setting == like })]
			projection.Setting, projection.Note = setting.Name, note
			s.Outlooks = append(s.Outlooks, projection)
			continue
		}
		changed := setting.apply(object)
		topology := read.Topology
		if setting.Name != Now {
			topology = f.topologyUnder(changed, read)
			topology.Measured = topology.Measured && setting.isMeasured
		}
		seen := current
		if setting.Name != Now && len(topology.Keys) == 0 {
			hinted, _ := f.controllers.hint(changed, written)
			seen, _ = f.slicesIn(hinted)
		}
		portions := f.portions(read, seen)
		if i == 0 {
			f.list(&s, portions)
		}
		s.Outlooks = append(s.Outlooks, f.project(setting, topology, read, portions, clients))
		if i == 0 {
			s.DemandSource = s.Outlooks[0].source
			if planned := s.Outlooks[0].PlannedWith; planned != "" && planned != string(simulate.Measured) {
				s.asMeasured = f.projectMeasured(object, read, portions, clients)
			}
			s.Causes = append(s.Causes, f.causes(&s.Outlooks[0], object, read, portions)...)
			s.Causes = append(s.Causes, f.boundMissed(&s, read)...)
			f.recordEvacuated(read, portions, &s.Outlooks[0])
		}
	}
	s.Advice = f.advise(&s, object, read)
	return s, ""
}

// projectMeasured returns the projection of a Service whose bound is planned with default demand as if it were planned
// with measured demand; nil if there is none. It records a Service that has the setting "measured".
func (f *forecaster) projectMeasured(
	object *corev1.Service, read *model.Service, portions []endpointGroup, clients map[string]uint32,
) *Projection {
	if read.Topology.Measured {
		f.unmeasured = append(f.unmeasured, read.Name.String())
	}
	if len(f.settings) == 1 || f.demand == nil && f.demands[read.Name] == nil {
		return nil
	}
	changed := *object
	changed.Annotations = addMeasured(object)
	topology := f.topologyUnder(&changed, read)
	if !topology.Measured { // the setting may be rejected
		return nil
	}
	projection := f.project(Setting{Name: policy.Measured, isMeasured: true}, topology, read, portions, clients)
	return &projection
}

// read reads a Service as the proxy does, and also a headless one without topology keys: its clients look up all of its
// ready endpoints, and choose at random.
func (f *forecaster) read(object *corev1.Service) (*model.Service, string) {
	read, errs := convert.Service(object, f.view)
	f.rejected = append(f.rejected, problems(convert.Services, object, errs)...)
	switch {
	case len(errs) > 0:
		return nil, "it is invalid"
	case read != nil:
		return read, ""
	case object.Spec.ClusterIP != corev1.ClusterIPNone || object.Spec.Type == corev1.ServiceTypeExternalName ||
		!policy.IsHandledBy(object.Labels, f.view.ServiceProxyName):
		return nil, convert.NotServedReason(object, f.view)
	}
	withKeys := Setting{Name: None}.apply(object)
	withKeys.Annotations[policy.TopologyKeysAnnotation] = string(policy.AnyNode)
	read, errs = convert.Service(withKeys, f.view)
	f.rejected = append(f.rejected, problems(convert.Services, object, errs)...)
	if read == nil {
		return nil, "it is invalid"
	}
	read.Topology = policy.Topology{}
	return read, ""
}

// topologyUnder returns the topology settings of a changed Service.
func (f *forecaster) topologyUnder(changed *corev1.Service, read *model.Service) policy.Topology {
	if read.IsHeadless && changed.Annotations[policy.TopologyKeysAnnotation] == "" {
		return policy.Topology{}
	}
	topology, _ := convert.TopologyOf(changed, f.view)
	return topology
}

// equivalentSetting returns why a setting has no meaning for a Service, and which other setting it is then equal to.
func (f *forecaster) equivalentSetting(
	setting Setting, read *model.Service, object *corev1.Service, written []*discoveryv1.EndpointSlice,
) (note, like string) {
	switch {
	case setting.Name == Now:
		return "", ""
	case read.InternalTrafficLocal:
		return "internalTrafficPolicy: Local keeps connections on the node, whatever else is set", Now
	case setting.needsHints() && read.IsHeadless:
		return "DNS follows topology keys, but not hints", None
	case setting.needsHints() && (len(object.Spec.Selector) == 0 || !slices.ContainsFunc(written, isWrittenByController)):
		return "no controller writes hints into the EndpointSlices of this Service", None
	case setting.isMeasured && read.IsHeadless:
		return "connections to a headless Service are not counted, so a bound is planned with assumed demand", policy.FormatMaxLoad(setting.bound)
	case setting.bound > 0 && read.ExternalTrafficLocal:
		return "a bound has no effect with externalTrafficPolicy: Local", Now
	}
	return "", ""
}

// endpointGroup is a list of endpoints that several ports or families have in common, except for the addresses.
type endpointGroup struct {
	endpoints []model.PortEndpoint
	ports     []portOf
}

// portOf is a port of a Service in a family; for a headless Service, all its ports.
type portOf struct {
	service model.ObjectName
	family  model.Family
	port    model.ServicePort
}

// portions returns the endpoints of a Service's ports, grouped.
func (f *forecaster) portions(service *model.Service, endpointSlices []*model.EndpointSlice) []endpointGroup {
	joined := model.JoinSlices(service, endpointSlices)
	var portions []endpointGroup
	take := func(endpoints []model.PortEndpoint, of portOf) {
		f.avoided.MarkDemoted(endpoints)
		for i := range endpoints {
			endpoint := &endpoints[i]
			if service.IsHeadless { // as in package selection: DNS has only ready ones
				endpoint.Serving = endpoint.Serving && endpoint.Ready
			}
		}
		for i := range portions {
			if slices.EqualFunc(portions[i].endpoints, endpoints, isEquivalent) {
				portions[i].ports = append(portions[i].ports, of)
				return
			}
		}
		portions = append(portions, endpointGroup{endpoints, []portOf{of}})
	}
	for _, family := range model.Families {
		if service.IsHeadless {
			if endpoints, _ := joined.Addresses(family); len(endpoints) > 0 {
				take(endpoints, portOf{service: service.Name, family: family})
			}
			continue
		}
		if _, has := service.ClusterIP(family); !has {
			continue
		}
		for _, port := range service.Ports {
			endpoints, _ := joined.Endpoints(port, family)
			take(endpoints, portOf{service.Name, family, port})
		}
	}
	if len(portions) == 0 {
		portions = []endpointGroup{{nil, []portOf{{service: service.Name}}}}
	}
	return portions
}

// isEquivalent reports whether two endpoints are equal in everything that affects decisions.
func isEquivalent(a, b model.PortEndpoint) bool {
	return a.Node == b.Node && a.Zone == b.Zone && a.Phase() == b.Phase() &&
		slices.Equal(a.HintNodes, b.HintNodes) && slices.Equal(a.HintZones, b.HintZones)
}

// list lists the endpoints of the first port.
func (f *forecaster) list(s *Service, portions []endpointGroup) {
	for i, endpoint := range portions[0].endpoints {
		zone := f.fleet.ZoneOf(&endpoint)
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
	setting Setting, topology policy.Topology, service *model.Service, portions []endpointGroup, clients map[string]uint32,
) Projection {
	out := Projection{Setting: setting.Name, Loads: []float64{}}
	asked, keys := 0.0, make([]float64, len(topology.Keys))
	byNode, published := f.demand.on(service.Name.String()), f.publishedFor(setting, service.Name)
	for i, portion := range portions {
		spread := f.fleet.Distribute(simulate.Query{
			Topology: topology, IsLocal: service.InternalTrafficLocal, Endpoints: portion.endpoints, Clients: clients,
			NodeDemand: byNode, Measured: published,
		})
		times := float64(len(portion.ports))
		out.source, out.PlannedWith = string(spread.Source), string(spread.PlannedWith) // the same for all portions
		asked += times * spread.Demand
		out.add(&Shares{
			Node: spread.Node, Zone: spread.Zone, Region: spread.Region, OtherZones: spread.OtherZones, Refused: spread.Refused,
			UnknownZones: spread.Demand - spread.Refused - spread.Zone - spread.OtherZones,
		}, times)
		out.evacuated += times * spread.Evacuated
		for _, node := range spread.OnlyEvacuated {
			if out.onlyEvacuated == nil {
				out.onlyEvacuated = map[string]bool{}
			}
			out.onlyEvacuated[node] = true
		}
		for k := range spread.Keys {
			keys[k] += times * spread.Keys[k]
		}
		if out.zones == nil {
			out.zones = make([]float64, len(spread.Zones))
		}
		for z, amount := range spread.Zones {
			out.zones[z] += times * amount
		}
		out.addLoads(&portion, &spread, f.meanOf(setting, &portion, &spread), i == 0)
		if spread.Refused > 0 {
			out.refusedShares = append(out.refusedShares, refusedShare{i, spread.Refused / spread.Demand, spread.Refusers})
		}
	}
	part := func(amount float64) float64 {
		if asked == 0 {
			return 0
		}
		return max(0, amount/asked) // rounding errors may give slightly less than 0
	}
	for _, share := range out.parts() {
		*share = part(*share)
	}
	out.round()
	out.evacuated, out.Busiest.Load = explain.Rounded(part(out.evacuated)), explain.Rounded(out.Busiest.Load)
	for k, key := range topology.Keys {
		if !service.InternalTrafficLocal {
			out.Keys = append(out.Keys, KeyShare{string(key), explain.Rounded(part(keys[k]))})
		}
	}
	for z := range out.zones {
		out.zones[z] = notNaN(out.zones[z] / asked)
	}
	return out
}

// publishedFor returns the measured demand on a Service with which a setting's bound may be planned.
func (f *forecaster) publishedFor(setting Setting, service model.ObjectName) *model.Demand {
	if setting.isMeasured && f.demand != nil {
		return f.demand.asPublished(service.String())
	}
	return f.demands[service]
}

// addLoads adds the loads of the endpoints of a portion. The endpoints of the first portion are listed.
func (o *Projection) addLoads(portion *endpointGroup, spread *simulate.Distribution, mean float64, isFirst bool) {
	for i, load := range spread.Loads {
		if load /= mean; load > o.Busiest.Load+1e-9 {
			endpoint := &portion.endpoints[i]
			o.Busiest = Busiest{explain.EndpointName(endpoint.Addr), endpoint.Node, load}
		}
		if isFirst && load > 0 {
			o.Used++
		}
		if isFirst && i < MaxListed {
			o.Loads = append(o.Loads, explain.Rounded(notNaN(load)))
		}
	}
}

func notNaN(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}

// weigh sets each Service's part of the sums over all of them: by its demand, if the demand on Services was measured in
// the same unit, as in some files; otherwise all have the same.
func (f *forecaster) weigh(services []Service) {
	weights, all := make([]float64, len(services)), 0.0
	for i := range services {
		if f.demand != nil {
			weights[i] = f.demand.byService[services[i].Service].sum()
		}
		all += weights[i]
	}
	for i := range services {
		if services[i].Weight = weights[i] / all; all == 0 {
			services[i].Weight = 1 / float64(len(services))
		}
	}
}

// totals sums all Services under each setting, and rounds their weights.
func (f *forecaster) totals(services []Service) []Total {
	totals, size := make([]Total, len(f.settings)), len(f.fleet.Zones())+1
	for i, setting := range f.settings {
		total := Total{Setting: setting.Name, Matrix: make([][]float64, size)}
		for row := range total.Matrix {
			total.Matrix[row] = make([]float64, size)
		}
		for s := range services {
			one, weight := &services[s].Outlooks[i], services[s].Weight
			total.add(&one.Shares, weight)
			if one.Busiest.Load > total.Busiest.Load+1e-9 {
				total.Busiest, total.BusiestService = one.Busiest, services[s].Service
			}
			for z, amount := range one.zones {
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
