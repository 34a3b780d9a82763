package forecast

import (
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/selection/fleet"
)

// Options say what is asked.
type Options struct {
	// Now is the time of the forecast: evacuations may have an end.
	Now time.Time
	// Bounds are the load bounds to compare, in percent. OnlyNow: only the present setting is forecast.
	Bounds  []uint64
	OnlyNow bool
	// Only limits the forecast to one Service, or to those of a namespace; empty: all.
	Only explain.Query
	// Demand is the demand of each node; nil: by its labels, or by the Service's clients. Asked is the demand of nodes on
	// single Services, by namespace/name, if that was measured, too. DemandFrom says where they come from.
	Demand     fleet.Demand
	Asked      map[string]Weights
	DemandFrom string
	// Judge says what is wrong with a Service's settings; it may be nil.
	Judge Judge
	// Progress is called after each Service; it may be nil.
	Progress func(done, all int)
}

// Make makes a forecast. It refuses unreadable objects, as a proxy would.
func Make(cluster Cluster, options Options) (Report, []model.Finding) {
	f, report := newForecaster(cluster, options)
	f.forecast(&report, options)
	return report, convert.SortProblems(f.refused)
}

func newForecaster(cluster Cluster, options Options) (forecaster, Report) {
	nodes, known, refused := cluster.knownNodes(options.Now)
	refused = append(refused, cluster.refused...)
	avoided := model.NewCluster("")
	avoided.Apply(model.Change{Avoid: known.Avoid})
	timed, open := avoided.Evacuated()
	beside := ""
	switch {
	case options.Demand != nil:
		beside = byFile
	case len(cluster.MeasuredServices()) > 0:
		beside = measured
	}
	f := forecaster{
		Cluster: cluster, fleet: fleet.New(nodes, options.Demand), avoided: avoided, refused: refused,
		controllers: newControllers(cluster.nodes), settings: settingsOf(options.Bounds, beside),
		asked: options.Asked, judge: options.Judge, onlyEvacuatedOn: map[string]*NodeOnlyEvacuated{},
	}
	if options.OnlyNow {
		f.settings = f.settings[:1]
	}
	report := Report{
		Nodes: len(nodes), Zones: append(f.fleet.Zones(), "other"), ZonesInAll: f.fleet.ZonesInAll(), Demand: options.DemandFrom,
		Services: []Service{}, NotServed: []NotServed{}, EvacuatedNodes: timed + open, OnlyEvacuated: []OnlyEvacuated{},
		OnlyEvacuatedOn: []NodeOnlyEvacuated{},
	}
	report.note(nodes)
	if cluster.demandNote != "" {
		report.Notes = append(report.Notes, cluster.demandNote)
	}
	if i := slices.IndexFunc(f.settings, func(s Setting) bool { return s.plansAsked }); i >= 0 {
		report.Notes = append(report.Notes, f.settings[i].noteAsked())
	}
	return f, report
}

// forecast forecasts all Services that are asked about.
func (f *forecaster) forecast(report *Report, options Options) {
	services := f.services
	if options.Only != (explain.Query{}) {
		services = slices.DeleteFunc(slices.Clone(services), func(s *corev1.Service) bool { return !options.Only.Covers(nameOf(s)) })
	}
	if options.Only.Service.Name == "" {
		report.Namespace = options.Only.Service.Namespace
	}
	for i, object := range services {
		service, why := f.service(object)
		if why != "" {
			report.NotServed = append(report.NotServed, NotServed{nameOf(object).String(), why})
		} else {
			report.Services = append(report.Services, service)
		}
		if options.Progress != nil {
			options.Progress(i+1, len(services))
		}
	}
	report.noteHints()
	if note := f.noteUnmeasured(); note != "" {
		report.Notes = append(report.Notes, note)
	}
	report.Settings = f.totals(report.Services)
	report.OnlyEvacuated = append(report.OnlyEvacuated, f.onlyEvacuated...)
	for _, node := range slices.Sorted(maps.Keys(f.onlyEvacuatedOn)) {
		report.OnlyEvacuatedOn = append(report.OnlyEvacuatedOn, *f.onlyEvacuatedOn[node])
	}
}

// forecaster is a forecast that is being made.
type forecaster struct {
	Cluster
	fleet       *fleet.Fleet
	avoided     *model.Cluster // it knows only what is held against nodes
	controllers controllers
	settings    []Setting
	asked       map[string]Weights
	judge       Judge
	refused     []model.Finding
	// unmeasured are the Services that are to be planned with measured demand, but are not.
	unmeasured []string

	onlyEvacuated   []OnlyEvacuated
	onlyEvacuatedOn map[string]*NodeOnlyEvacuated

	// For a comparison: see Compare.
	clientsOf     map[model.ObjectName][]model.ObjectName
	means, before map[portOf]mean
}

// service forecasts one Service, or says why there is nothing to forecast.
func (f *forecaster) service(object *corev1.Service) (Service, string) {
	read, why := f.read(object)
	if why != "" {
		return Service{}, why
	}
	written := f.slicesOf[nameOf(object)]
	current, refused := f.slicesIn(written)
	f.refused = append(f.refused, refused...)
	s := Service{
		Service: nameOf(object).String(), Headless: read.IsHeadless,
		EndpointsByZone: map[string]int{}, Endpoints: []Endpoint{}, Causes: []Cause{},
	}
	named := read.Clients()
	if others := f.clientsOf[read.Name]; len(others) > 0 {
		named = others
	}
	clients, refused := f.readyEndpoints(named)
	f.refused = append(f.refused, refused...)
	for i, setting := range f.settings {
		if note, like := f.meansNothing(setting, read, object, written); note != "" {
			outlook := s.Outlooks[slices.IndexFunc(s.Outlooks, func(o Outlook) bool { return o.Setting == like })]
			outlook.Setting, outlook.Note = setting.Name, note
			s.Outlooks = append(s.Outlooks, outlook)
			continue
		}
		changed := setting.apply(object)
		topology := read.Topology
		if setting.Name != Now {
			topology = f.topologyUnder(changed, read)
			topology.Measured = false // a setting beside it is planned with what was measured
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
		s.Outlooks = append(s.Outlooks, f.outlook(setting, topology, read, portions, clients))
		if i == 0 {
			s.DemandSource = s.Outlooks[0].source
			if planned := s.Outlooks[0].PlannedWith; planned != "" && planned != string(fleet.Measured) {
				s.asMeasured = f.asMeasured(topology, read, portions, clients)
			}
			s.Causes = append(s.Causes, f.causes(&s.Outlooks[0], object, read, portions)...)
			f.noteEvacuated(read, portions, &s.Outlooks[0])
		}
	}
	s.Advice = f.advise(&s, object, read)
	return s, ""
}

// asMeasured forecasts a Service whose bound is planned with assumed demand as if it were planned with measured demand;
// nil if nothing was measured. It takes note of one that is to be planned so.
func (f *forecaster) asMeasured(
	topology policy.Topology, service *model.Service, portions []portion, clients map[string]uint32,
) *Outlook {
	switch {
	case topology.Measured:
		f.unmeasured = append(f.unmeasured, service.Name.String())
		return nil
	case len(f.settings) == 1 || f.demands[service.Name] == nil:
		return nil
	}
	topology.Measured = true
	outlook := f.outlook(Setting{Name: policy.Measured}, topology, service, portions, clients)
	return &outlook
}

// read reads a Service as the proxy does, and a headless one without topology keys too: its clients find all of its
// ready endpoints, and choose at random.
func (f *forecaster) read(object *corev1.Service) (*model.Service, string) {
	read, errs := convert.Service(object, f.view)
	f.refused = append(f.refused, problems(convert.Services, object, errs)...)
	switch {
	case len(errs) > 0:
		return nil, "it is refused"
	case read != nil:
		return read, ""
	case object.Spec.ClusterIP != corev1.ClusterIPNone || object.Spec.Type == corev1.ServiceTypeExternalName ||
		!policy.IsHandledBy(object.Labels, f.view.ServiceProxyName):
		return nil, convert.WhyNotServed(object, f.view)
	}
	withKeys := Setting{Name: None}.apply(object)
	withKeys.Annotations[policy.TopologyKeysAnnotation] = string(policy.AnyNode)
	read, errs = convert.Service(withKeys, f.view)
	f.refused = append(f.refused, problems(convert.Services, object, errs)...)
	if read == nil {
		return nil, "it is refused"
	}
	read.Topology = policy.Topology{}
	return read, ""
}

// topologyUnder is what a Service would say about its topology under another setting.
func (f *forecaster) topologyUnder(changed *corev1.Service, read *model.Service) policy.Topology {
	if read.IsHeadless && changed.Annotations[policy.TopologyKeysAnnotation] == "" {
		return policy.Topology{}
	}
	topology, _ := convert.TopologyOf(changed, f.view)
	return topology
}

// meansNothing says why a setting has no meaning for a Service, and which other setting it is then equal to.
func (f *forecaster) meansNothing(
	setting Setting, read *model.Service, object *corev1.Service, written []*discoveryv1.EndpointSlice,
) (note, like string) {
	switch {
	case setting.Name == Now:
		return "", ""
	case read.InternalTrafficLocal:
		return "internalTrafficPolicy: Local keeps connections on the node, whatever else is set", Now
	case setting.needsHints() && read.IsHeadless:
		return "DNS follows topology keys, and no hints", None
	case setting.needsHints() && (len(object.Spec.Selector) == 0 || !slices.ContainsFunc(written, isWrittenByController)):
		return "no controller writes hints into the EndpointSlices of this Service", None
	case setting.bound > 0 && read.ExternalTrafficLocal:
		return "a bound has no effect beside externalTrafficPolicy: Local", Now
	}
	return "", ""
}

// portion is endpoints that several ports or families have in common, except for the addresses.
type portion struct {
	endpoints []model.PortEndpoint
	ports     []portOf
}

// portOf is a port of a Service in a family; of a headless Service, all its ports.
type portOf struct {
	service model.ObjectName
	family  model.Family
	port    model.ServicePort
}

// portions returns the endpoints of a Service's ports.
func (f *forecaster) portions(service *model.Service, endpointSlices []*model.EndpointSlice) []portion {
	joined := model.Join(service, endpointSlices)
	var portions []portion
	take := func(endpoints []model.PortEndpoint, of portOf) {
		f.avoided.MarkAvoided(endpoints)
		for i := range endpoints {
			endpoint := &endpoints[i]
			if service.IsHeadless { // as selection does: DNS tells of ready ones alone
				endpoint.Serving = endpoint.Serving && endpoint.Ready
			}
		}
		for i := range portions {
			if slices.EqualFunc(portions[i].endpoints, endpoints, isAlike) {
				portions[i].ports = append(portions[i].ports, of)
				return
			}
		}
		portions = append(portions, portion{endpoints, []portOf{of}})
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
			f.virtual.MarkAllVirtual(endpoints)
			take(endpoints, portOf{service.Name, family, port})
		}
	}
	if len(portions) == 0 {
		portions = []portion{{nil, []portOf{{service: service.Name}}}}
	}
	return portions
}

// isAlike reports whether two endpoints are equal in everything that decides.
func isAlike(a, b model.PortEndpoint) bool {
	return a.Node == b.Node && a.Zone == b.Zone && a.Phase() == b.Phase() &&
		slices.Equal(a.HintNodes, b.HintNodes) && slices.Equal(a.HintZones, b.HintZones)
}

// list lists the endpoints of the first port.
func (f *forecaster) list(s *Service, portions []portion) {
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
	case endpoint.Avoid != nil:
		return endpoint.Avoid.Why.String()
	case phase == model.PhaseTerminating:
		return "terminating"
	}
	return "ready"
}

// outlook forecasts one Service under one setting.
func (f *forecaster) outlook(
	setting Setting, topology policy.Topology, service *model.Service, portions []portion, clients map[string]uint32,
) Outlook {
	out := Outlook{Setting: setting.Name, Loads: []float64{}}
	asked, answered := 0.0, 0.0
	keys := make([]float64, len(topology.Keys))
	for i, portion := range portions {
		spread := f.fleet.Spread(fleet.Question{
			Topology: topology, IsLocal: service.InternalTrafficLocal, Endpoints: portion.endpoints, Clients: clients,
			Asked: f.asked[service.Name.String()], Measured: f.demands[service.Name], PlansAsked: setting.plansAsked,
		})
		times := float64(len(portion.ports))
		out.source, out.PlannedWith = string(spread.Source), string(spread.PlannedWith) // the same for all portions
		asked += times * spread.Asked
		answered += times * (spread.Asked - spread.Refused)
		out.evacuated += times * spread.Evacuated
		for _, node := range spread.OnlyEvacuated {
			if out.onlyEvacuated == nil {
				out.onlyEvacuated = map[string]bool{}
			}
			out.onlyEvacuated[node] = true
		}
		out.Node += times * spread.Node
		out.Zone += times * spread.Zone
		out.Region += times * spread.Region
		out.OtherZones += times * spread.OtherZones
		for k := range spread.Keys {
			keys[k] += times * spread.Keys[k]
		}
		if out.zones == nil {
			out.zones = make([]float64, len(spread.Zones))
		}
		for z, amount := range spread.Zones {
			out.zones[z] += times * amount
		}
		out.noteLoads(&portion, &spread, f.meanOf(setting, &portion, &spread), i == 0)
		if spread.Refused > 0 {
			out.refusals = append(out.refusals, refusal{i, spread.Refused / spread.Asked, spread.Refusers})
		}
	}
	part := func(amount float64) float64 {
		if asked == 0 {
			return 0
		}
		return max(0, amount/asked) // rounding errors may make a little less than 0 of 0
	}
	out.UnknownZones = part(answered - out.Zone - out.OtherZones)
	out.Refused, out.evacuated = part(asked-answered), part(out.evacuated)
	out.Node, out.Zone, out.Region, out.OtherZones = part(out.Node), part(out.Zone), part(out.Region), part(out.OtherZones)
	out.round()
	out.evacuated, out.Busiest.Load = explain.Rounded(out.evacuated), explain.Rounded(out.Busiest.Load)
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

// noteLoads takes in what the endpoints of a portion expect. The endpoints of the first portion are listed.
func (o *Outlook) noteLoads(portion *portion, spread *fleet.Spread, mean float64, isFirst bool) {
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

// totals sums up all Services, under each setting.
func (f *forecaster) totals(services []Service) []Total {
	totals, size := make([]Total, len(f.settings)), len(f.fleet.Zones())+1
	for i, setting := range f.settings {
		total := Total{Setting: setting.Name, Matrix: make([][]float64, size)}
		for row := range total.Matrix {
			total.Matrix[row] = make([]float64, size)
		}
		for s := range services {
			one := &services[s].Outlooks[i]
			total.add(&one.Shares, 1/float64(len(services)))
			if one.Busiest.Load > total.Busiest.Load+1e-9 {
				total.Busiest, total.BusiestService = one.Busiest, services[s].Service
			}
			for z, amount := range one.zones {
				total.Matrix[z/size][z%size] += amount / float64(len(services))
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
	return totals
}
