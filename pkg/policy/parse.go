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

// IgnoredAnnotation is an annotation without effect. Reason is the end of a sentence about it, with the remedy.
type IgnoredAnnotation struct{ Annotation, Reason string }

// Code returns the stable code of the finding.
func (i IgnoredAnnotation) Code() string {
	return Annotations[slices.IndexFunc(Annotations[:], func(a Annotation) bool { return a.Name == i.Annotation })].IgnoredCode
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
func Parse(input Input) (Topology, []IgnoredAnnotation) {
	p := parser{Input: input}
	for i := range Annotations {
		if !Annotations[i].read(&p) {
			break
		}
	}
	if len(p.topology.Keys) == 0 {
		p.topology.HintsSetting = input.hintsSetting()
	}
	return p.topology, p.ignored
}

// parser holds the result of the passes so far.
type parser struct {
	Input
	topology Topology
	ignored  []IgnoredAnnotation
}

func (p *parser) ignore(annotation, reason string) {
	p.ignored = append(p.ignored, IgnoredAnnotation{annotation, reason})
}

// hintsSetting returns the setting from which the EndpointSlice controller computes hints.
func (in Input) hintsSetting() string {
	switch mode := ModeOf(in.Annotations); {
	case mode.IsAuto():
		return mode.Annotation + ": " + mode.Value
	case DistributionKeys(in.TrafficDistribution) != nil:
		return "spec.trafficDistribution: " + in.TrafficDistribution
	}
	return ""
}

// readKeys sets the topology keys. If the annotation is ignored, nothing else is read.
func (p *parser) readKeys() bool {
	value, present := p.Annotations[TopologyKeysAnnotation]
	if !present {
		return true
	}
	keys, err := ParseKeys(value)
	switch {
	case err != nil:
		p.ignore(TopologyKeysAnnotation, err.Error())
		return false
	case p.ExternalTrafficLocal && ConflictsWithLocal(keys):
		p.ignore(TopologyKeysAnnotation, "topology keys "+LocalConflict+"; "+LocalRemedy)
		return false
	}
	p.topology.Keys = keys
	return true
}

// readMode and readHints report an unknown mode in our domain. readHints also reports ModeBalanced if the other
// annotation overrides it.
func (p *parser) readMode() bool { return p.ignoreUnknownMode(TopologyModeAnnotation) }

func (p *parser) readHints() bool {
	p.ignoreUnknownMode(TopologyAwareHintsAnnotation)
	if OverridesBalanced(p.Annotations) {
		p.ignore(TopologyModeAnnotation, BalancedConflict)
	}
	return true
}

func (p *parser) ignoreUnknownMode(annotation string) bool {
	if value := p.Annotations[annotation]; IsUnknownMode(value) {
		p.ignore(annotation, UnknownMode(value))
	}
	return true
}

// readBound sets the bound and the keys to which it applies.
func (p *parser) readBound() bool {
	text, hasText := p.Annotations[MaxLoadAnnotation]
	mode := ModeOf(p.Annotations)
	keys := KeysToBound(p.topology.Keys, p.TrafficDistribution, mode)
	canBound := keys != nil && !p.ExternalTrafficLocal
	if !hasText && !mode.IsBalanced() {
		if canBound && p.DefaultMaxLoad > 0 && !mode.IsAuto() {
			p.topology.Keys, p.topology.MaxLoad = keys, p.DefaultMaxLoad
		}
		return true
	}
	annotation := mode.Annotation
	if hasText {
		annotation = MaxLoadAnnotation
	}
	limit, err := p.defaultMaxLoad(), error(nil)
	if hasText {
		if limit, err = ParseMaxLoad(text); err != nil {
			limit = p.defaultMaxLoad()
		}
	}
	if canBound {
		p.topology.Keys, p.topology.MaxLoad = keys, limit
	}
	switch {
	case err != nil && canBound:
		p.ignore(annotation, err.Error()+" (until then "+FormatMaxLoad(limit)+" applies)")
	case err != nil:
		p.ignore(annotation, err.Error())
	}
	switch {
	case hasText && mode.IsAuto() && p.topology.Keys == nil:
		p.ignore(annotation, ReasonBoundWithAuto(mode))
	case keys == nil:
		p.ignore(annotation, ReasonNothingToBound(p.topology.Keys))
	case p.ExternalTrafficLocal:
		p.ignore(annotation, LocalConflict+"; "+LocalRemedy)
	}
	return true
}

// defaultMaxLoad returns the bound of a Service that requests one without a valid number.
func (in Input) defaultMaxLoad() uint64 {
	if in.DefaultMaxLoad > 0 {
		return in.DefaultMaxLoad
	}
	return DefaultLoadBound
}

// readClients sets the Services whose endpoints are the demand.
func (p *parser) readClients() bool {
	text, present := p.Annotations[ClientsAnnotation]
	if !present {
		return true
	}
	clients, err := ParseClients(text, p.Namespace)
	switch {
	case err != nil:
		p.ignore(ClientsAnnotation, err.Error())
	case p.topology.MaxLoad == 0:
		p.ignore(ClientsAnnotation, NeedsBound)
	default:
		p.topology.Clients = clients
	}
	return true
}

// readDemandSource sets whether the demand is measured. The cluster's default does not apply to a Service with
// clients.
func (p *parser) readDemandSource() bool {
	isBounded := p.topology.MaxLoad > 0
	p.topology.Measured = isBounded && p.DefaultMeasured && !p.IsHeadless && len(p.topology.Clients) == 0
	text, present := p.Annotations[DemandSourceAnnotation]
	if !present {
		return true
	}
	err := CheckDemandSource(text)
	switch {
	case err != nil:
		p.ignore(DemandSourceAnnotation, err.Error())
	case !isBounded:
		p.ignore(DemandSourceAnnotation, NeedsBound)
	case p.IsHeadless:
		p.ignore(DemandSourceAnnotation, MeasuredHeadless)
	default:
		p.topology.Measured = true
	}
	return true
}
