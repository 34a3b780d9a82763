package server

import (
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// reviewDecision is what was decided about a request.
type reviewDecision struct {
	subject
	name      string // of the object, or the prefix of a name yet to be generated
	result    rules.Result
	defaulted *rules.DefaultDecision // of the path that gives defaults only
	patch     []byte                 // a JSON Patch; nil for none
}

func (v *reviewDecision) allowed() bool { return len(v.result.Denied) == 0 }

// review is the verdict as the API server reads it.
func (v *reviewDecision) review() *admissionv1.AdmissionReview {
	response := &admissionv1.AdmissionResponse{
		UID:              types.UID(v.UID),
		Allowed:          v.allowed(),
		AuditAnnotations: v.audit(),
	}
	for _, violation := range v.result.Warned {
		response.Warnings = append(response.Warnings, violation.Message())
	}
	if !v.allowed() {
		response.Result = v.status()
	}
	if len(v.patch) > 0 {
		patchType := admissionv1.PatchTypeJSONPatch
		response.Patch, response.PatchType = v.patch, &patchType
	}
	return &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: reviewVersion, Kind: reviewKind},
		Response: response,
	}
}

// status is what kubectl shows of a denial: the same as of an object that the API server itself finds invalid.
func (v *reviewDecision) status() *metav1.Status {
	errs := make(field.ErrorList, 0, len(v.result.Denied))
	for _, violation := range v.result.Denied {
		err := *violation.Error
		err.Detail = strings.TrimSpace(fmt.Sprintf("%s [%s]", err.Detail, violation.Rule))
		errs = append(errs, &err)
	}
	status := apierrors.NewInvalid(schema.GroupKind{Group: v.Kind.Group, Kind: v.Kind.Kind}, v.name, errs).Status()
	return &status
}

// audit is what the API server's audit log keeps. The keys are names without a prefix, for the API server puts the
// webhook's before them; it drops a key that is then not a valid label key.
func (v *reviewDecision) audit() map[string]string {
	said := map[string]string{}
	if violations := v.violations(); violations != "" {
		said["violations"] = violations
	}
	if v.defaulted != nil {
		said["default"] = describe(*v.defaulted)
	}
	return said
}

// violations lists the rules that are broken and what follows from each, once each: "SVC001=deny,SVC027=warn".
func (v *reviewDecision) violations() string {
	var words []string
	seen := map[string]bool{}
	add := func(violations []rules.Violation, action rules.Action) {
		for _, violation := range violations {
			word := fmt.Sprintf("%s=%s", violation.Rule, action)
			if !seen[word] {
				seen[word] = true
				words = append(words, word)
			}
		}
	}
	add(v.result.Denied, rules.Deny)
	add(v.result.Warned, rules.Warn)
	return strings.Join(words, ",")
}

// describe says what a Service is given and who decided: "topology-mode=Auto; source: namespace".
func describe(decision rules.DefaultDecision) string {
	given := "none"
	if decision.Add != nil {
		given = fmt.Sprintf("%s=%s", decision.Add.Setting, decision.Add.Value)
	}
	said := fmt.Sprintf("%s; source: %s", given, decision.Origin)
	if decision.Reason != "" {
		said += "; reason: " + decision.Reason
	}
	return said
}

// rules are the ids of what is denied, for the log.
func (v *reviewDecision) rules() []string {
	var ids []string
	for _, violation := range v.result.Denied {
		ids = append(ids, string(violation.Rule))
	}
	return ids
}
