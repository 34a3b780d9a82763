package rules

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// Cluster is what a judgement may know besides the object itself. The zero value knows nothing, and rules that would need to know pass.
type Cluster struct {
	// Nodes are the labels of the cluster's Nodes; nil as long as they are not known.
	Nodes *NodeLabels
	// Kubernetes is the version as which the API server behaves; nil as long as it is not known.
	Kubernetes *version.Version
}

// MaxTold is how many violations a list of a Judgement has at most: more than anybody reads. Who mends these is told of the others next.
// An API server takes an object with a hundred thousand labels, and to write an answer about each of them would keep it waiting for
// minutes.
const MaxTold = 64

// Judgement is what becomes of a request. Each list is in the order of the rules, and has no more than MaxTold violations.
type Judgement struct {
	Denied []Violation
	Warned []Violation
}

// ReviewService judges a Service that is to be stored in place of another one; before is nil if there is none.
//
// Only what is new is denied: whoever edits an object that was wrong before need not mend it, and whoever mends one of two mistakes may
// leave the other. Of a mistake that stays while something changes on which it depends, its author is warned. A Service that is being
// deleted, or has the label vicinity.dev/admission: disabled, is not judged; of what is wrong when the label goes its author is warned.
func ReviewService(before, now *Service, cluster Cluster, settings *Settings) Judgement {
	if isExempt(&now.Metadata) {
		return Judgement{}
	}
	if settings == nil {
		settings = &Settings{}
	}
	var old past
	if before != nil {
		old = pastOf(&before.Metadata, append(examineService(before, cluster, settings), inLongList(before)...))
	}
	current := append(examineService(now, cluster, settings), findProxyName(before, now)...)
	return judge(old, current, settings)
}

// ReviewNamespace judges a Namespace, as ReviewService does a Service.
func ReviewNamespace(before, now *Namespace, settings *Settings) Judgement {
	if isExempt(&now.Metadata) {
		return Judgement{}
	}
	if settings == nil {
		settings = &Settings{}
	}
	var old past
	if before != nil {
		old = pastOf(&before.Metadata, append(examineNamespace(before), inLongDefault(before)...))
	}
	return judge(old, examineNamespace(now), settings)
}

// isExempt reports whether an object is not judged. What is being deleted changes only in its finalizers, and must not be kept from it.
func isExempt(metadata *Metadata) bool {
	return metadata.DeletionTimestamp != "" || metadata.Labels[policy.AdmissionLabel] == policy.AdmissionDisabled
}

// past is what was wrong with the object before.
type past struct {
	inputs map[mistake][]string // of each
	// isTold: somebody was told of it when it came.
	isTold bool
}

func pastOf(metadata *Metadata, findings []finding) past {
	p := past{inputs: make(map[mistake][]string, len(findings)), isTold: !isExempt(metadata)}
	for _, finding := range findings {
		p.inputs[finding.mistake()] = append(p.inputs[finding.mistake()], finding.inputs)
	}
	return p
}

func (p past) has(f finding) bool {
	_, has := p.inputs[f.mistake()]
	return has
}

// hasToldOf reports whether a mistake was there with all on which it depends.
func (p past) hasToldOf(f finding) bool {
	return p.isTold && slices.Contains(p.inputs[f.mistake()], f.inputs)
}

// judge sorts what was found by what follows from it, without what was there before.
func judge(old past, current []finding, settings *Settings) Judgement {
	findings := slices.DeleteFunc(inOrder(current), func(f finding) bool { return settings.actionOf(f) == Off || old.hasToldOf(f) })
	var judgement Judgement
	for _, finding := range findings {
		if settings.actionOf(finding) == Deny && !old.has(finding) {
			judgement.Denied = told(judgement.Denied, finding)
		}
	}
	isRefused := len(judgement.Denied) > 0 // and then nothing becomes of what was there before
	for _, finding := range findings {
		if settings.actionOf(finding) == Warn || old.has(finding) && !isRefused {
			judgement.Warned = told(judgement.Warned, finding)
		}
	}
	return judgement.withoutRepetition()
}

// actionOf is what follows from a finding that is new.
func (s *Settings) actionOf(f finding) Action {
	rule, _ := RuleOf(f.rule)
	return s.Action(rule)
}

// told adds a violation to those that its author is told of, unless there are many already.
func told(violations []Violation, f finding) []Violation {
	if len(violations) == MaxTold {
		return violations
	}
	return append(violations, f.violation())
}

// inOrder sorts findings by rule, then path, then as they were found, and leaves one of those that are the same.
func inOrder(findings []finding) []finding {
	slices.SortStableFunc(findings, func(a, b finding) int {
		return cmp.Or(cmp.Compare(order(a.rule), order(b.rule)), cmp.Compare(a.err.Field, b.err.Field))
	})
	seen := make(map[mistake]bool, len(findings))
	return slices.DeleteFunc(findings, func(f finding) bool {
		isSeen := seen[f.mistake()]
		seen[f.mistake()] = true
		return isSeen
	})
}

// withoutRepetition leaves out what SVC007 says better: one of keys and mode has to go first, and then trafficDistribution is reported
// if it is still in the way. It never turns a denial into a warning.
func (j Judgement) withoutRepetition() Judgement {
	isDenied, isWarned := breaksBoth(j.Denied), breaksBoth(j.Warned)
	if isDenied {
		j.Denied = slices.DeleteFunc(j.Denied, isAboutDistribution)
	}
	if isDenied || isWarned {
		j.Warned = slices.DeleteFunc(j.Warned, isAboutDistribution)
	}
	return j
}

func breaksBoth(violations []Violation) bool {
	return slices.ContainsFunc(violations, func(v Violation) bool { return v.Rule == keysBesideMode })
}

func isAboutDistribution(v Violation) bool {
	return v.Rule == distributionBesideMode || v.Rule == distributionBesideKeys
}
