package installation_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/rulecases"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

const (
	keysAnnotation = "vicinity.dev/topology-keys"
	modeAnnotation = "service.kubernetes.io/topology-mode"
)

// serviceOf returns an ordinary Service without a namespace.
func serviceOf(name string, annotations map[string]string) *corev1.Service {
	return objects.Service("", name, func(service *corev1.Service) { maps.Copy(service.Annotations, annotations) })
}

// response is the response to a client.
type response struct {
	object   map[string]any // the stored object
	err      error
	findings []rulecases.Want // the webhook's messages in the format of a case
}

// send makes a request as kubectl does, and reads the response.
func send(ctx context.Context, t *testing.T, request *rest.Request, object map[string]any) response {
	t.Helper()
	body, err := json.Marshal(object)
	must.Succeed(t, err)
	result := request.SetHeader("Content-Type", "application/json").Body(body).Do(ctx)
	var got response
	if got.err = result.Error(); got.err == nil {
		text, err := result.Raw()
		must.Succeed(t, err)
		must.Succeed(t, json.Unmarshal(text, &got.object))
	}
	got.findings = parseDenial(got.err)
	for _, warning := range result.Warnings() {
		if want, ok := parseWarning(warning.Text, rules.Warn); ok {
			got.findings = append(got.findings, want)
		}
	}
	return got
}

// ruleID matches the end of our messages. Other warnings of API servers are ignored.
var ruleID = regexp.MustCompile(`\[((?:SVC|NS)\d{3})\]$`)

// parseWarning parses a warning: `<path>: ... [SVC006]`.
func parseWarning(text string, action rules.Action) (want rulecases.Want, ok bool) {
	rule := ruleID.FindStringSubmatch(text)
	if rule == nil {
		return want, false
	}
	path, _, _ := strings.Cut(text, ": ")
	return rulecases.Want{Rule: rules.ID(rule[1]), Action: action, Path: path}, true
}

// parseDenial parses the causes of a denial.
func parseDenial(err error) []rulecases.Want {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.ErrStatus.Details == nil {
		return nil
	}
	var found []rulecases.Want
	for _, cause := range status.ErrStatus.Details.Causes {
		if rule := ruleID.FindStringSubmatch(cause.Message); rule != nil {
			found = append(found, rulecases.Want{Rule: rules.ID(rule[1]), Action: rules.Deny, Path: cause.Field})
		}
	}
	return found
}

// denyingRules returns which of our rules denied a request. The error must have the form in which the API server rejects
// invalid objects.
func denyingRules(err error) []string {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.ErrStatus.Code != http.StatusUnprocessableEntity || status.ErrStatus.Reason != metav1.StatusReasonInvalid {
		return nil
	}
	var rules []string
	for _, found := range parseDenial(err) {
		rules = append(rules, string(found.Rule))
	}
	return rules
}

// auditOf returns the last entry in the audit log for a request with this verb for a Service of a Namespace.
func (tb *testbed) auditOf(t *testing.T, verb, namespace string) site.Request {
	t.Helper()
	var found site.Request
	wait.Success(t, "the audit log has the "+verb+" of a Service in "+namespace, func() error {
		all, err := tb.Audited()
		if err != nil {
			return err
		}
		for _, line := range slices.Backward(all) {
			if ref := line.ObjectRef; line.Verb == verb && ref != nil && ref.Resource == "services" && ref.Namespace == namespace {
				found = line
				return nil
			}
		}
		return errors.New("no such entry yet")
	})
	return found
}

// checkForbidden fails the test if a request of the webhook was forbidden.
func (in *installation) checkForbidden() {
	in.t.Helper()
	if in.areRolesRemoved {
		return
	}
	all, err := in.Audited()
	if err != nil {
		in.t.Error(err)
	}
	seen := 0
	for _, line := range all[min(in.audited, len(all)):] {
		if line.User.Username != accountUser {
			continue
		}
		seen++
		if code := line.ResponseStatus.Code; code == http.StatusForbidden || code == http.StatusUnauthorized {
			in.t.Errorf("the webhook got status %d: %s %s", code, line.Verb, line.RequestURI)
		}
	}
	if seen == 0 {
		in.t.Error("the audit log has no request of the webhook")
	}
}

// defaultSource returns the source of a default according to the audit log.
func defaultSource(line site.Request) string {
	return line.Annotations["default.services.vicinity.dev/default"]
}

func (a response) String() string { return fmt.Sprintf("error %v, found %v", a.err, a.findings) }
