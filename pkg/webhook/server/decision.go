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
	requestInfo
	name      string // of the object, or its generateName
	result    rules.Result
	defaulted *rules.DefaultDecision // only for defaulting
	patch     []byte                 // a JSON Patch; nil for none
}

func (d *reviewDecision) allowed() bool { return len(d.result.Denied) == 0 }

// review returns the AdmissionReview with the response.
func (d *reviewDecision) review() *admissionv1.AdmissionReview {
	response := &admissionv1.AdmissionResponse{
		UID:              types.UID(d.UID),
		Allowed:          d.allowed(),
		AuditAnnotations: d.audit(),
	}
	for _, violation := range d.result.Warned {
		response.Warnings = append(response.Warnings, violation.Message())
	}
	if !d.allowed() {
		response.Result = d.status()
	}
	if len(d.patch) > 0 {
		patchType := admissionv1.PatchTypeJSONPatch
		response.Patch, response.PatchType = d.patch, &patchType
	}
	return &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: reviewVersion, Kind: reviewKind},
		Response: response,
	}
}

// status returns what kubectl shows of a denial, in the format of the API server's own validation errors.
func (d *reviewDecision) status() *metav1.Status {
	errs := make(field.ErrorList, 0, len(d.result.Denied))
	for _, violation := range d.result.Denied {
		err := *violation.Error
		err.Detail = strings.TrimSpace(fmt.Sprintf("%s [%s]", err.Detail, violation.Rule))
		errs = append(errs, &err)
	}
	status := apierrors.NewInvalid(schema.GroupKind{Group: d.Kind.Group, Kind: d.Kind.Kind}, d.name, errs).Status()
	return &status
}

// audit returns the audit annotations. Their keys have no prefix, because the API server prepends the webhook's name;
// it drops a key if the result is not a valid label key.
func (d *reviewDecision) audit() map[string]string {
	annotations := map[string]string{}
	if violations := d.auditViolations(); violations != "" {
		annotations["violations"] = violations
	}
	if d.defaulted != nil {
		annotations["default"] = describeDefault(*d.defaulted)
	}
	return annotations
}

// auditViolations lists each violated rule with its action once: "SVC001=deny,SVC027=warn".
func (d *reviewDecision) auditViolations() string {
	var entries []string
	seen := map[string]bool{}
	add := func(violations []rules.Violation, action rules.Action) {
		for _, violation := range violations {
			entry := fmt.Sprintf("%s=%s", violation.Rule, action)
			if !seen[entry] {
				seen[entry] = true
				entries = append(entries, entry)
			}
		}
	}
	add(d.result.Denied, rules.Deny)
	add(d.result.Warned, rules.Warn)
	return strings.Join(entries, ",")
}

// describeDefault returns the added default and its source: "topology-mode=Auto; source: namespace".
func describeDefault(decision rules.DefaultDecision) string {
	added := "none"
	if decision.Add != nil {
		added = fmt.Sprintf("%s=%s", decision.Add.Setting, decision.Add.Value)
	}
	text := fmt.Sprintf("%s; source: %s", added, decision.Source)
	if decision.Reason != "" {
		text += "; reason: " + decision.Reason
	}
	return text
}

// denyingRules returns the IDs of the rules that deny the request, for the log.
func (d *reviewDecision) denyingRules() []string {
	var ids []string
	for _, violation := range d.result.Denied {
		ids = append(ids, string(violation.Rule))
	}
	return ids
}
