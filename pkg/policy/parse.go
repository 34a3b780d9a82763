package policy

import "slices"

// Input are what a Service says about which endpoints to prefer.
type Input struct {
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
	// DefaultMeasured: in this cluster, the demand source of Services with a bound that name neither one nor clients is
	// Measured.
	DefaultMeasured bool
	// IsHeadless: clients find the endpoints by DNS, and nobody counts their connections.
	IsHeadless bool
}

// Ignored is an annotation that is present and has no effect: why, and what to do, as the rest of a sentence about it.
type Ignored struct{ Annotation, Reason string }

// Code is the stable code for that.
func (i Ignored) Code() string {
	return Annotations[slices.IndexFunc(Annotations[:], func(a Annotation) bool { return a.Name == i.Annotation })].Ignored
}

// Parse reads a Service's topology policy.
//
// An annotation that cannot be obeyed in full is ignored in full: no owner asked for half of a policy. What means
// nothing without it is ignored along with it, and nothing else:
//
//   - Keys that are wrong, or stand beside externalTrafficPolicy: Local, take everything with them. Endpoints are then
//     chosen as though there were no annotation of ours.
//   - A bound that has nothing to bound, or contradicts another setting, leaves the keys as they are.
//   - A bound that cannot be read leaves the keys, and the usual bound holds: the cluster's, or else UsualMaxLoad. Its
//     owner wanted to protect the endpoints. Without a bound they would be overloaded; without the keys connections
//     would go where none should.
//   - Clients that cannot be read leave the bound, and demand is what it is without the annotation: measured if that is the
//     cluster's default, or else all nodes ask alike. So does a demand source that cannot be read.
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

// parser is the result of the parser's passes so far.
type parser struct {
	Input
	topology Topology
	ignored  []Ignored
}

func (r *parser) ignore(annotation, reason string) {
	r.ignored = append(r.ignored, Ignored{annotation, reason})
}

// byHints is the setting that the EndpointSlice controller turns into hints.
func (w Input) byHints() string {
	switch mode := ModeOf(w.Annotations); {
	case mode.IsAuto():
		return mode.Annotation + ": " + mode.Value
	case DistributionKeys(w.TrafficDistribution) != nil:
		return "spec.trafficDistribution: " + w.TrafficDistribution
	}
	return ""
}

// readKeys finds the topology keys. Without them, though they are asked for, nothing else is read.
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

// readMode and readHints find an unknown mode in our domain, and a mode of ours that the other annotation overrides. A
// mode of ours asks for a bound.
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

// readBound finds the bound, and the keys that it is about.
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
		r.ignore(annotation, err.Error()+" (until then "+FormatMaxLoad(limit)+" holds)")
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

// defaultMaxLoad is the bound of a Service that wants one, and does not say which.
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

// readDemandSource finds whether the demand is measured. The cluster's default is not for a Service that names clients.
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
