package rules

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// Facts are what a judgement may know besides the object itself. The zero value knows nothing, and rules that would
// need to know pass.
type Facts struct {
	// Nodes are the labels of the cluster's Nodes; nil as long as they are not known.
	Nodes *NodeLabels
	// Services are the cluster's; nil as long as they are not known.
	Services ServiceNames
	// NoDemand: nobody publishes the demand for Services in this cluster. False as long as that is not known.
	NoDemand bool
	// Kubernetes is the version that the API server behaves like; nil as long as it is not known.
	Kubernetes *version.Version
}

// ServiceNames knows which Services there are.
type ServiceNames interface {
	// Names returns the names of the Services in a Namespace; known is false if nothing is known about it.
	Names(namespace string) (names []string, known bool)
}

// MaxViolations is how many violations a list of a Judgement has at most: more than a user reads. The others are
// reported once these are mended. An API server takes an object with a hundred thousand labels, and to write an answer
// about each of them would keep it waiting for minutes.
const MaxViolations = 64

// Result is what becomes of a request. Each list is in the order of the rules, and has no more than MaxReported
// violations.
type Result struct {
	Denied []Violation
	Warned []Violation
}

// ReviewService judges a Service that is to be stored in place of another one; before is nil if there is none.
//
// Only what is new is denied: a change of an object that was wrong before need not mend it, and may mend one of two
// violations. If a violation stays while something changes on which it depends, the author is warned. A Service that is
// being deleted, or has the label vicinity.dev/admission: disabled, is not judged. When the label goes, its author is
// warned of what is wrong.
func ReviewService(before, now *Service, facts Facts, settings *Settings) Result {
	return review(kindService, before, now, facts, settings)
}

// ReviewNamespace judges a Namespace, as ReviewService does a Service.
func ReviewNamespace(before, now *Namespace, settings *Settings) Result {
	return review(kindNamespace, before.asService(), now.asService(), Facts{}, settings)
}

// ReviewServicePatch judges what a patch changes in a Service, by the rules that stand alone: they report what is wrong
// whatever the rest of the Service is.
func ReviewServicePatch(patch *Service, settings *Settings) Result {
	return reviewPatch(kindService, patch, settings)
}

// ReviewNamespacePatch judges what a patch changes in a Namespace, likewise.
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
	return evaluate(previous{}, slices.DeleteFunc(found, func(v Violation) bool { return !v.row.standsAlone }), settings)
}

// asService is the Namespace as rules see it: its metadata.
func (n *Namespace) asService() *Service {
	if n == nil {
		return nil
	}
	return &Service{Metadata: n.Metadata}
}

func review(kind string, before, now *Service, facts Facts, settings *Settings) Result {
	if isExempt(&now.Metadata) {
		return Result{}
	}
	if settings == nil {
		settings = &Settings{}
	}
	var old previous
	if before != nil {
		old = previousOf(&before.Metadata, examine(kind, subjectOf(before, before, facts, settings)))
	}
	return evaluate(old, examine(kind, subjectOf(before, now, facts, settings)), settings)
}

// isExempt reports whether an object is not judged. An object that is being deleted changes only in its finalizers, and
// nothing may hold that up.
func isExempt(metadata *Metadata) bool {
	return metadata.DeletionTimestamp != "" || metadata.Labels[policy.AdmissionLabel] == policy.AdmissionDisabled
}

// previous is what was wrong with the object before.
type previous struct {
	inputs map[identity][]string // of each violation
	// isReported: it was reported when it appeared.
	isReported bool
}

func previousOf(metadata *Metadata, violations []Violation) previous {
	p := previous{inputs: make(map[identity][]string, len(violations)), isReported: !isExempt(metadata)}
	for _, violation := range violations {
		p.inputs[violation.identity()] = append(p.inputs[violation.identity()], violation.inputs)
	}
	return p
}

func (p previous) has(v Violation) bool {
	_, has := p.inputs[v.identity()]
	return has
}

// hasReported reports whether a violation was there already, with all that it depends on unchanged, and was reported.
func (p previous) hasReported(v Violation) bool {
	return p.isReported && slices.Contains(p.inputs[v.identity()], v.inputs)
}

// evaluate sorts violations by what follows from them, and leaves out those that were reported before.
func evaluate(old previous, current []Violation, settings *Settings) Result {
	violations := slices.DeleteFunc(sortViolations(current),
		func(v Violation) bool { return settings.actionOf(v) == Off || old.hasReported(v) })
	var result Result
	for _, violation := range violations {
		if settings.actionOf(violation) == Deny && !old.has(violation) {
			result.Denied = report(result.Denied, violation)
		}
	}
	isRefused := len(result.Denied) > 0 // nothing changes then, so nothing is said of what was there before
	for _, violation := range violations {
		if settings.actionOf(violation) == Warn || old.has(violation) && !isRefused {
			result.Warned = report(result.Warned, violation)
		}
	}
	return result.deduplicate()
}

// actionOf is what follows from a violation that is new.
func (s *Settings) actionOf(v Violation) Action { return s.Action(*v.row) }

// report adds a violation to those that are reported, unless there are many already.
func report(violations []Violation, v Violation) []Violation {
	if len(violations) == MaxViolations {
		return violations
	}
	return append(violations, v.complete())
}

// sortViolations sorts violations by rule, then path, then as they were found, and leaves one of those that are the same.
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

// deduplicate leaves out what another rule says better. The user has to follow that rule first; if this one is
// still broken then, it is reported. It never turns a denial into a warning.
func (j Result) deduplicate() Result {
	denied, warned := rulesOf(j.Denied), rulesOf(j.Warned)
	j.Denied = slices.DeleteFunc(j.Denied, func(v Violation) bool { return denied[v.row.supersededBy] })
	j.Warned = slices.DeleteFunc(j.Warned, func(v Violation) bool { return denied[v.row.supersededBy] || warned[v.row.supersededBy] })
	return j
}

func rulesOf(violations []Violation) map[ID]bool {
	ids := map[ID]bool{}
	for _, violation := range violations {
		ids[violation.Rule] = true
	}
	return ids
}
