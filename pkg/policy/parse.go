package policy

import "slices"

// Input are the settings of a Service that determine which endpoints it prefers.
type Input struct {
	// Namespace is the namespace of the Service.
	Namespace   string
	Annotations map[string]string
	// TrafficDistribution is spec.trafficDistribution; empty if it is not set.
	TrafficDistribution string
	// ExternalTrafficLocal is set for externalTrafficPolicy: Local on a Service that is reachable from outside.
	ExternalTrafficLocal bool
	// DefaultMaxLoad is the cluster's bound for Services that prefer some endpoints and set no bound; 0 means none.
	DefaultMaxLoad uint64
	// DefaultMeasured makes Measured the demand source of Services that have a bound and set neither a source nor clients.
	DefaultMeasured bool
	// IsHeadless is set if clients find the endpoints by DNS. Their connections cannot be counted.
	IsHeadless bool
}

// Ignored is an annotation without effect. Reason is the end of a sentence about it, with the remedy.
type Ignored struct{ Annotation, Reason string }

// Code returns the stable code of the finding.
func (i Ignored) Code() string {
	return Annotations[slices.IndexFunc(Annotations[:], func(a Annotation) bool { return a.Name == i.Annotation })].Ignored
}

// Parse parses a Service's topology policy.
//
// An annotation that cannot be applied in full is ignored in full, because half of a policy was never requested.
// Settings that depend on it are ignored as well, and nothing else:
//
//   - Invalid keys, or keys combined with externalTrafficPolicy: Local, disable all annotations of our domain.
//   - A bound without anything to bound, or in conflict with another setting, leaves the keys unchanged.
//   - An invalid bound leaves the keys, and the default bound applies: the cluster's, or else DefaultLoadBound. The
//     bound was set to protect the endpoints. Without a bound they would be overloaded; without the keys connections
//     would go to endpoints that the keys exclude.
//   - Invalid clients leave the bound, and the demand is the one without the annotation: measured if that is the
//     cluster's default, or else equal for all nodes. The same applies to an invalid demand source.
func Parse(w Input) (Topology, []Ignored) {
	r := parser{Input: w}
	for i := range Annotations {
		if !Annotations[i].read(&r) {
			break
		}
	}
	if len(r.topology.Keys) == 0 {
		r.topology.ByHints = w.byHints()
	}
	return r.topology, r.ignored
}

// parser holds the result of the passes so far.
type parser struct {
	Input
	topology Topology
	ignored  []Ignored
}

func (r *parser) ignore(annotation, reason string) {
	r.ignored = append(r.ignored, Ignored{annotation, reason})
}

// byHints returns the setting from which the EndpointSlice controller computes hints.
func (w Input) byHints() string {
	switch mode := ModeOf(w.Annotations); {
	case mode.IsAuto():
		return mode.Annotation + ": " + mode.Value
	case DistributionKeys(w.TrafficDistribution) != nil:
		return "spec.trafficDistribution: " + w.TrafficDistribution
	}
	return ""
}

// readKeys finds the topology keys. If the annotation is ignored, nothing else is read.
func (r *parser) readKeys() bool {
	value, present := r.Annotations[TopologyKeysAnnotation]
	if !present {
		return true
	}
	keys, err := ParseKeys(value)
	switch {
	case err != nil:
		r.ignore(TopologyKeysAnnotation, err.Error())
		return false
	case r.ExternalTrafficLocal && ConflictsWithLocal(keys):
		r.ignore(TopologyKeysAnnotation, "topology keys "+LocalConflict+"; "+LocalRemedy)
		return false
	}
	r.topology.Keys = keys
	return true
}

// readMode and readHints find an unknown mode in our domain, and ModeBalanced if the other annotation overrides it.
func (r *parser) readMode() bool { return r.readUnknownMode(TopologyModeAnnotation) }

func (r *parser) readHints() bool {
	r.readUnknownMode(TopologyAwareHintsAnnotation)
	if OverridesBalanced(r.Annotations) {
		r.ignore(TopologyModeAnnotation, BalancedConflict)
	}
	return true
}

func (r *parser) readUnknownMode(annotation string) bool {
	if value := r.Annotations[annotation]; IsUnknownMode(value) {
		r.ignore(annotation, UnknownMode(value))
	}
	return true
}

// readBound finds the bound and the keys to which it applies.
func (r *parser) readBound() bool {
	text, hasText := r.Annotations[MaxLoadAnnotation]
	mode := ModeOf(r.Annotations)
	keys := KeysToBound(r.topology.Keys, r.TrafficDistribution, mode)
	canBe := keys != nil && !r.ExternalTrafficLocal
	if !hasText && !mode.IsBalanced() {
		if canBe && r.DefaultMaxLoad > 0 && !mode.IsAuto() {
			r.topology.Keys, r.topology.MaxLoad = keys, r.DefaultMaxLoad
		}
		return true
	}
	annotation := mode.Annotation
	if hasText {
		annotation = MaxLoadAnnotation
	}
	limit, err := r.defaultMaxLoad(), error(nil)
	if hasText {
		if limit, err = ParseMaxLoad(text); err != nil {
			limit = r.defaultMaxLoad()
		}
	}
	if canBe {
		r.topology.Keys, r.topology.MaxLoad = keys, limit
	}
	switch {
	case err != nil && canBe:
		r.ignore(annotation, err.Error()+" (until then "+FormatMaxLoad(limit)+" applies)")
	case err != nil:
		r.ignore(annotation, err.Error())
	}
	switch {
	case hasText && mode.IsAuto() && r.topology.Keys == nil:
		r.ignore(annotation, ReasonBoundWithAuto(mode))
	case keys == nil:
		r.ignore(annotation, ReasonNothingToBound(r.topology.Keys))
	case r.ExternalTrafficLocal:
		r.ignore(annotation, LocalConflict+"; "+LocalRemedy)
	}
	return true
}

// defaultMaxLoad returns the bound of a Service that requests one without a valid number.
func (w Input) defaultMaxLoad() uint64 {
	if w.DefaultMaxLoad > 0 {
		return w.DefaultMaxLoad
	}
	return DefaultLoadBound
}

// readClients finds the Services whose endpoints are the demand.
func (r *parser) readClients() bool {
	text, present := r.Annotations[ClientsAnnotation]
	if !present {
		return true
	}
	clients, err := ParseClients(text, r.Namespace)
	switch {
	case err != nil:
		r.ignore(ClientsAnnotation, err.Error())
	case r.topology.MaxLoad == 0:
		r.ignore(ClientsAnnotation, ClientsNeedBound)
	default:
		r.topology.Clients = clients
	}
	return true
}

// readDemandSource finds whether the demand is measured. The cluster's default does not apply to a Service with
// clients.
func (r *parser) readDemandSource() bool {
	isBounded := r.topology.MaxLoad > 0
	r.topology.Measured = isBounded && r.DefaultMeasured && !r.IsHeadless && len(r.topology.Clients) == 0
	text, present := r.Annotations[DemandSourceAnnotation]
	if !present {
		return true
	}
	err := CheckDemandSource(text)
	switch {
	case err != nil:
		r.ignore(DemandSourceAnnotation, err.Error())
	case !isBounded:
		r.ignore(DemandSourceAnnotation, ClientsNeedBound)
	case r.IsHeadless:
		r.ignore(DemandSourceAnnotation, MeasuredHeadless)
	default:
		r.topology.Measured = true
	}
	return true
}
