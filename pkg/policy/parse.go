package policy

// Words are what a Service says about how its endpoints are to be preferred.
type Words struct {
	// Namespace is that of the Service.
	Namespace   string
	Annotations map[string]string
	// TrafficDistribution is spec.trafficDistribution; empty without.
	TrafficDistribution string
	// ExternalTrafficLocal is externalTrafficPolicy: Local on a Service that is reachable from outside.
	ExternalTrafficLocal bool
	// DefaultMaxLoad is the cluster's bound, for Services that prefer some endpoints and say nothing of a bound; 0 for
	// none.
	DefaultMaxLoad uint64
}

// Parse reads a Service's topology policy.
//
// An annotation that cannot be obeyed in full is ignored in full: half of a policy is what no owner asked for. What
// goes with it is what means nothing without it, and nothing else:
//
//   - Keys that are wrong, or stand beside externalTrafficPolicy: Local, take everything with them. Endpoints are then
//     chosen as though there were no annotation of ours.
//   - A bound that has nothing to bound, or contradicts another setting, leaves the keys as they are.
//   - A bound that cannot be read leaves the keys, and the usual bound holds: the cluster's, or else UsualMaxLoad. Its
//     owner wanted to protect the endpoints. Without a bound they would be overloaded; without the keys connections
//     would go where none should.
//   - Clients that cannot be read leave the bound, and all nodes ask alike.
func Parse(w Words) Topology {
	topology := w.parse()
	if len(topology.Keys) == 0 {
		topology.ByHints = w.byHints()
	}
	return topology
}

// byHints is the setting of which the EndpointSlice controller makes hints.
func (w Words) byHints() string {
	switch mode := ModeOf(w.Annotations); {
	case mode.IsAuto():
		return mode.Annotation + ": " + mode.Value
	case DistributionKeys(w.TrafficDistribution) != nil:
		return "spec.trafficDistribution: " + w.TrafficDistribution
	}
	return ""
}

func (w Words) parse() (topology Topology) {
	if value, present := w.Annotations[TopologyKeysAnnotation]; present {
		keys, err := ParseKeys(value)
		switch {
		case err != nil:
			topology.ignore(TopologyKeysAnnotation, err.Error())
			return topology
		case w.ExternalTrafficLocal && ConflictsWithLocal(keys):
			topology.ignore(TopologyKeysAnnotation, "topology keys "+LocalConflict+"; "+LocalRemedy)
			return topology
		}
		topology.Keys = keys
	}
	w.readModes(&topology)
	w.readBound(&topology)
	w.readClients(&topology)
	return topology
}

func (t *Topology) ignore(annotation, reason string) {
	t.Ignored = append(t.Ignored, Ignored{annotation, reason})
}

// readModes finds those in our domain that are none of ours, and ours where another annotation decides.
func (w Words) readModes(topology *Topology) {
	for _, annotation := range [...]string{TopologyModeAnnotation, TopologyAwareHintsAnnotation} {
		if value := w.Annotations[annotation]; IsUnknownMode(value) {
			topology.ignore(annotation, UnknownMode(value))
		}
	}
	if HidesBalanced(w.Annotations) {
		topology.ignore(TopologyModeAnnotation, BalancedConflict)
	}
}

// readBound finds the bound, and the keys that it is about.
func (w Words) readBound(topology *Topology) {
	text, hasText := w.Annotations[MaxLoadAnnotation]
	mode := ModeOf(w.Annotations)
	keys := KeysToBound(topology.Keys, w.TrafficDistribution, mode)
	canBe := keys != nil && !w.ExternalTrafficLocal
	if !hasText && !mode.IsBalanced() {
		if canBe && w.DefaultMaxLoad > 0 && !mode.IsAuto() {
			topology.Keys, topology.MaxLoad = keys, w.DefaultMaxLoad
		}
		return
	}
	annotation := mode.Annotation
	if hasText {
		annotation = MaxLoadAnnotation
	}
	limit, err := w.usualMaxLoad(), error(nil)
	if hasText {
		if limit, err = ParseMaxLoad(text); err != nil {
			limit = w.usualMaxLoad()
		}
	}
	if canBe {
		topology.Keys, topology.MaxLoad = keys, limit
	}
	switch {
	case err != nil && canBe:
		topology.ignore(annotation, err.Error()+" (until then "+FormatMaxLoad(limit)+" holds)")
	case err != nil:
		topology.ignore(annotation, err.Error())
	}
	switch {
	case hasText && mode.IsAuto() && topology.Keys == nil:
		topology.ignore(annotation, BoundBesideAuto(mode))
	case keys == nil:
		topology.ignore(annotation, NothingToBound(topology.Keys))
	case w.ExternalTrafficLocal:
		topology.ignore(annotation, LocalConflict+"; "+LocalRemedy)
	}
}

// usualMaxLoad is the bound of a Service that wants one, and does not say which.
func (w Words) usualMaxLoad() uint64 {
	if w.DefaultMaxLoad > 0 {
		return w.DefaultMaxLoad
	}
	return UsualMaxLoad
}

// readClients finds the Services whose endpoints are the demand.
func (w Words) readClients(topology *Topology) {
	text, present := w.Annotations[ClientsAnnotation]
	if !present {
		return
	}
	clients, err := ParseClients(text, w.Namespace)
	switch {
	case err != nil:
		topology.ignore(ClientsAnnotation, err.Error())
	case topology.MaxLoad == 0:
		topology.ignore(ClientsAnnotation, ClientsWithoutBound)
	default:
		topology.Clients = clients
	}
}
