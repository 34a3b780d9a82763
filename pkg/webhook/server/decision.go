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

// reviewDecision is the decision about a request.
type reviewDecision struct {
	subject
	name      string // of the object, or its generateName
	result    rules.Result
	defaulted *rules.DefaultDecision // only for defaulting
	patch     []byte                 // a JSON Patch; nil for none
}

func (v *reviewDecision) allowed() bool { return len(v.result.Denied) == 0 }

// review returns the AdmissionReview with the response.
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

// status returns what kubectl shows of a denial, in the format of the API server's own validation errors.
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

// audit returns the audit annotations. Their keys have no prefix, because the API server prepends the webhook's name;
// it drops a key if the result is not a valid label key.
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

// violations lists each violated rule with its action once: "SVC001=deny,SVC027=warn".
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

// describe returns the added default and its source: "topology-mode=Auto; source: namespace".
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

// rules returns the IDs of the rules that deny the request, for the log.
func (v *reviewDecision) rules() []string {
	var ids []string
	for _, violation := range v.result.Denied {
		ids = append(ids, string(violation.Rule))
	}
	return ids
}
