package server

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	apiserver "k8s.io/apiserver/pkg/admission"
	apirequest "k8s.io/apiserver/pkg/admission/plugin/webhook/request"
	kjson "sigs.k8s.io/json"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// FuzzAdmissionReview sends bytes to every path. The response must always be JSON without internal errors, the API
// server must accept each 200, and each denial must contain a rule.
//
// Its seeds are small, because the fuzzer mutates and runs them repeatedly. Large and deeply nested reviews are in
// ordinary tests of this package.
func FuzzAdmissionReview(f *testing.F) {
	for _, body := range invalidBodies(f) {
		if len(body.body) <= 16*kibibyte {
			f.Add(body.body)
		}
	}
	for _, request := range validRequests() {
		f.Add(request.review(f, ValidateServicesPath).body)
	}
	observer := &failureCounter{}
	dependencies := withNamespace(rules.Settings{Strict: true}, map[string]string{policy.DefaultTopologyModeAnnotation: "Auto"})
	handlers := Handlers(dependencies, DefaultLimits(), observer, slog.New(slog.NewTextHandler(io.Discard, nil)))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, path := range Paths() {
			recorded := httptest.NewRecorder()
			handlers[path].ServeHTTP(recorded, post(body))
			checkResponse(t, path, body, recorded)
		}
		if observer.failures > 0 {
			t.Fatal("internal error")
		}
	})
}

// failureCounter is an Observer that counts failures.
type failureCounter struct {
	noObserver
	failures int
}

func (c *failureCounter) Failed(string) { c.failures++ }

func checkResponse(t *testing.T, path string, body []byte, recorded *httptest.ResponseRecorder) {
	t.Helper()
	responseBody := recorded.Body.Bytes()
	if !json.Valid(responseBody) {
		t.Fatalf("%s: %d with %q, which is not JSON", path, recorded.Code, responseBody)
	}
	if recorded.Code != http.StatusOK {
		if recorded.Code < 400 || recorded.Code >= 500 {
			t.Fatalf("%s: %d %s", path, recorded.Code, responseBody)
		}
		return
	}
	// A request with a response need not be a whole AdmissionReview: unused fields may be invalid.
	var sent review[struct{}]
	_ = kjson.UnmarshalCaseSensitivePreserveInts(body, &sent)
	if sent.Request == nil {
		t.Fatalf("%s: response to a body without a request", path)
	}
	var parsed admissionv1.AdmissionReview
	if err := json.Unmarshal(responseBody, &parsed); err != nil {
		t.Fatal(err)
	}
	response, err := apirequest.VerifyAdmissionResponse(types.UID(sent.Request.UID), path == DefaultServicesPath, &parsed)
	if err != nil {
		t.Fatalf("%s: the API server rejects the response: %v", path, err)
	}
	if !response.Allowed {
		checkDenialHasRules(t, response)
	}
}

// checkDenialHasRules fails the test if a denial contains no rule, or one that does not exist.
func checkDenialHasRules(t *testing.T, response *apirequest.AdmissionResponse) {
	t.Helper()
	if response.Result == nil || response.Result.Details == nil || len(response.Result.Details.Causes) == 0 {
		t.Fatal("a denial without a cause")
	}
	for _, cause := range response.Result.Details.Causes {
		namesRule := slices.ContainsFunc(rules.Rules(), func(rule rules.Rule) bool {
			return strings.HasSuffix(cause.Message, " ["+string(rule.ID)+"]")
		})
		if !namesRule {
			t.Fatalf("a denial without a rule: %q", cause.Message)
		}
	}
}

// validRequests returns requests for which an API server may send reviews.
func validRequests() []apiRequest {
	keys := func(value string) *corev1.Service { return service(annotated(policy.TopologyKeysAnnotation, value)) }
	bare := service(func(s *corev1.Service) { s.Annotations, s.Labels, s.ManagedFields = nil, nil, nil })
	return []apiRequest{
		{operation: apiserver.Create, object: service()},
		{operation: apiserver.Create, object: bare},
		{operation: apiserver.Create, object: keys("a b,*,zone,zone")},
		{operation: apiserver.Update, object: keys("zone"), old: service(), dryRun: true},
		{operation: apiserver.Create, object: service(annotated(policy.TopologyModeAnnotation, "AUTO"))},
		{operation: apiserver.Create, object: namespace(map[string]string{policy.DefaultTopologyModeAnnotation: "bogus"})},
		{operation: apiserver.Update, object: namespace(nil), old: namespace(map[string]string{policy.DefaultTopologyKeysAnnotation: "zone"})},
		{operation: apiserver.Delete, old: service()},
		{operation: apiserver.Connect, object: service()},
		{operation: apiserver.Create, object: &corev1.Pod{}},
	}
}
