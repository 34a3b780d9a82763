package rules

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// Facts are the known state of the cluster. The zero value is unknown state, with which no rule that needs it is
// violated.
type Facts struct {
	// Nodes are the labels of the cluster's Nodes; nil if unknown.
	Nodes *NodeLabels
	// Services are the cluster's Services; nil if unknown.
	Services ServiceNames
	// NoDemand is set if demand is known to be unpublished in this cluster.
	NoDemand bool
	// Kubernetes is the version that the API server emulates; nil if unknown.
	Kubernetes *version.Version
}

// ServiceNames lists existing Services.
type ServiceNames interface {
	// Names returns the names of the Services in a Namespace; known is false if they are not known.
	Names(namespace string) (names []string, known bool)
}

// MaxViolations is the maximum length of a list in a Result: more than a user reads. The others are reported once these
// are fixed. An API server accepts an object with a hundred thousand labels, and a response about each of them would
// delay it for minutes.
const MaxViolations = 64

// Result is the result of a review. Each list is in the order of the rules, and has at most MaxViolations violations.
type Result struct {
	Denied []Violation
	Warned []Violation
}

// ReviewService checks a Service that replaces old; old is nil for a new one.
//
// Only new violations are denied: an update of an object that was invalid before need not fix it, and may fix one of
// two violations. If a violation stays while an input of it changes, the author gets a warning. A Service that is being
// deleted, or has the label vicinity.dev/admission: disabled, is not checked. When the label is removed, the author
// gets warnings about the existing violations.
func ReviewService(old, service *Service, facts Facts, settings *Settings) Result {
	return review(kindService, old, service, facts, settings)
}

// ReviewNamespace checks a Namespace in the same way as ReviewService checks a Service.
func ReviewNamespace(old, namespace *Namespace, settings *Settings) Result {
	return review(kindNamespace, old.asService(), namespace.asService(), Facts{}, settings)
}

// ReviewServicePatch checks what a patch changes in a Service, by the rules that stand alone: those whose violations do
// not depend on the rest of the Service.
func ReviewServicePatch(patch *Service, settings *Settings) Result {
	return reviewPatch(kindService, patch, settings)
}

// ReviewNamespacePatch checks what a patch changes in a Namespace, in the same way as ReviewServicePatch.
func ReviewNamespacePatch(patch *Namespace, settings *Settings) Result {
	return reviewPatch(kindNamespace, patch.asService(), settings)
}

func reviewPatch(kind string, patch *Service, settings *Settings) Result {
	if isExempt(&patch.Metadata) {
		return Result{}
	}
	if settings == nil {
		settings = &Settings{}
	}
	found := examine(kind, subjectOf(nil, patch, Facts{}, settings))
	return evaluate(previous{}, slices.DeleteFunc(found, func(v Violation) bool { return !v.definition.standsAlone }), settings)
}

// asService returns the Namespace in the form that rules use: its metadata.
func (n *Namespace) asService() *Service {
	if n == nil {
		return nil
	}
	return &Service{Metadata: n.Metadata}
}

func review(kind string, oldObject, object *Service, facts Facts, settings *Settings) Result {
	if isExempt(&object.Metadata) {
		return Result{}
	}
	if settings == nil {
		settings = &Settings{}
	}
	var old previous
	if oldObject != nil {
		old = previousOf(&oldObject.Metadata, examine(kind, subjectOf(oldObject, oldObject, facts, settings)))
	}
	return evaluate(old, examine(kind, subjectOf(oldObject, object, facts, settings)), settings)
}

// isExempt reports whether an object is not checked. An object that is being deleted changes only in its finalizers,
// which nothing may block.
func isExempt(metadata *Metadata) bool {
	return metadata.DeletionTimestamp != "" || metadata.Labels[policy.AdmissionLabel] == policy.AdmissionDisabled
}

// previous are the violations of the old object.
type previous struct {
	inputs map[identity][]string // of each violation
	// isReported is set if they were reported when they appeared.
	isReported bool
}

func previousOf(metadata *Metadata, violations []Violation) previous {
	p := previous{inputs: make(map[identity][]string, len(violations)), isReported: !isExempt(metadata)}
	for _, violation := range violations {
		p.inputs[violation.identity()] = append(p.inputs[violation.identity()], violation.inputs)
	}
	return p
}

func (p previous) contains(v Violation) bool {
	_, has := p.inputs[v.identity()]
	return has
}

// hasReported reports whether a violation existed before with the same inputs, and was reported.
func (p previous) hasReported(v Violation) bool {
	return p.isReported && slices.Contains(p.inputs[v.identity()], v.inputs)
}

// evaluate sorts violations by their action, and omits those that were reported before.
func evaluate(prev previous, current []Violation, settings *Settings) Result {
	violations := slices.DeleteFunc(sortViolations(current),
		func(v Violation) bool { return settings.actionOf(v) == Off || prev.hasReported(v) })
	var result Result
	for _, violation := range violations {
		if settings.actionOf(violation) == Deny && !prev.contains(violation) {
			result.Denied = appendLimited(result.Denied, violation)
		}
	}
	isDenied := len(result.Denied) > 0 // then nothing changes, so earlier violations are not reported
	for _, violation := range violations {
		if settings.actionOf(violation) == Warn || prev.contains(violation) && !isDenied {
			result.Warned = appendLimited(result.Warned, violation)
		}
	}
	return result.deduplicate()
}

// actionOf returns the action for a new violation.
func (s *Settings) actionOf(v Violation) Action { return s.Action(*v.definition) }

// appendLimited adds a violation to the reported ones, up to MaxViolations.
func appendLimited(violations []Violation, v Violation) []Violation {
	if len(violations) == MaxViolations {
		return violations
	}
	return append(violations, v.complete())
}

// sortViolations sorts violations by rule, then path, then in the order of discovery, and removes duplicates.
func sortViolations(violations []Violation) []Violation {
	slices.SortStableFunc(violations, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Error.Field, b.Error.Field))
	})
	seen := make(map[identity]bool, len(violations))
	return slices.DeleteFunc(violations, func(v Violation) bool {
		isSeen := seen[v.identity()]
		seen[v.identity()] = true
		return isSeen
	})
}

// deduplicate removes violations that another rule reports better. The user has to fix that one first; if this rule is
// still violated then, it is reported. It never turns a denial into a warning.
func (r Result) deduplicate() Result {
	denied, warned := rulesOf(r.Denied), rulesOf(r.Warned)
	r.Denied = slices.DeleteFunc(r.Denied, func(v Violation) bool { return denied[v.definition.supersededBy] })
	r.Warned = slices.DeleteFunc(r.Warned, func(v Violation) bool {
		return denied[v.definition.supersededBy] ||
			warned[v.definition.supersededBy]
	})
	return r
}

func rulesOf(violations []Violation) map[ID]bool {
	ids := map[ID]bool{}
	for _, violation := range violations {
		ids[violation.Rule] = true
	}
	return ids
}
