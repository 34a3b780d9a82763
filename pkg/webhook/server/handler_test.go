package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	apiserver "k8s.io/apiserver/pkg/admission"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// withNamespace returns the state of a cluster of a current version with two zones, where Namespaces have these
// annotations.
func withNamespace(settings rules.Settings, annotations map[string]string) Dependencies {
	nodes := rules.NewNodeLabels()
	nodes.Put("a", map[string]string{"kubernetes.io/hostname": "a", "topology.kubernetes.io/zone": "zone-a"})
	nodes.Put("b", map[string]string{"kubernetes.io/hostname": "b", "topology.kubernetes.io/zone": "zone-b"})
	return Dependencies{
		Settings: func() *rules.Settings { return &settings },
		Facts: func() rules.Facts {
			return rules.Facts{Nodes: nodes, Kubernetes: version.MajorMinor(1, 36)}
		},
		Namespace: func(string) rules.NamespaceDefaults {
			return rules.NamespaceDefaults{IsLoaded: true, Annotations: annotations}
		},
	}
}

// serve handles one request without a network.
func serve(t testing.TB, dependencies Dependencies, observer Observer, log io.Writer, path string,
	r *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: withoutTime}))
	response := httptest.NewRecorder()
	Handlers(dependencies, DefaultLimits(), observer, logger)[path].ServeHTTP(response, r)
	return response
}

func withoutTime(_ []string, attribute slog.Attr) slog.Attr {
	if attribute.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return attribute
}

func post(body []byte) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/?timeout=2s", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	return r
}

func TestResponse(t *testing.T) {
	type answer struct {
		Allowed  bool
		Warnings []string
		Audit    map[string]string
		Patch    string
	}
	zoneThenAny := annotated(policy.TopologyKeysAnnotation, "topology.kubernetes.io/zone,*")
	zoneAlone := annotated(policy.TopologyKeysAnnotation, "topology.kubernetes.io/zone")
	auto := map[string]string{policy.DefaultTopologyModeAnnotation: "Auto"}
	for name, c := range map[string]struct {
		path     string
		about    apiRequest
		settings rules.Settings
		defaults map[string]string // of the Namespace
		want     answer
		observed []string
	}{
		"a valid Service": {
			path: ValidateServicesPath, about: apiRequest{operation: apiserver.Create, object: service(zoneThenAny)},
			want:     answer{Allowed: true},
			observed: []string{"reviewed /validate-services allowed"},
		},
		"a Service with a warning": {
			path: ValidateServicesPath, about: apiRequest{operation: apiserver.Create, object: service(zoneAlone)},
			want: answer{
				Allowed: true, Audit: map[string]string{"violations": "SVC027=warn"},
				Warnings: []string{reviewNew(t, service(zoneAlone)).Warned[0].Message()},
			},
			observed: []string{"decided SVC027 warn", "reviewed /validate-services allowed"},
		},
		"an invalid Service": {
			path: ValidateServicesPath, about: apiRequest{operation: apiserver.Create,
				object: service(annotated(policy.TopologyKeysAnnotation, ""))},
			want:     answer{Audit: map[string]string{"violations": "SVC001=deny"}},
			observed: []string{"decided SVC001 deny", "reviewed /validate-services denied"},
		},
		"a Service that was invalid before": {
			path: ValidateServicesPath,
			about: apiRequest{
				operation: apiserver.Update, object: service(annotated(policy.TopologyKeysAnnotation, "")),
				old: service(annotated(policy.TopologyKeysAnnotation, "")),
			},
			want:     answer{Allowed: true},
			observed: []string{"reviewed /validate-services allowed"},
		},
		"a Service that becomes invalid": {
			path: ValidateServicesPath,
			about: apiRequest{
				operation: apiserver.Update, object: service(annotated(policy.TopologyKeysAnnotation, "")), old: service(), dryRun: true,
			},
			want:     answer{Audit: map[string]string{"violations": "SVC001=deny"}},
			observed: []string{"decided SVC001 deny", "reviewed /validate-services denied"},
		},
		"a rule that is off": {
			path: ValidateServicesPath, about: apiRequest{operation: apiserver.Create,
				object: service(annotated(policy.TopologyKeysAnnotation, ""))},
			settings: rules.Settings{Actions: map[rules.ID]rules.Action{"SVC001": rules.Off}},
			want:     answer{Allowed: true},
			observed: []string{"reviewed /validate-services allowed"},
		},
		"an invalid Namespace": {
			path: ValidateNamespacesPath,
			about: apiRequest{
				operation: apiserver.Create, object: namespace(map[string]string{policy.DefaultTopologyModeAnnotation: "bogus"}),
			},
			want:     answer{Audit: map[string]string{"violations": "NS001=deny"}},
			observed: []string{"decided NS001 deny", "reviewed /validate-namespaces denied"},
		},
		"a Namespace that was invalid before": {
			path: ValidateNamespacesPath,
			about: apiRequest{
				operation: apiserver.Update, object: namespace(map[string]string{policy.DefaultTopologyModeAnnotation: "bogus", "x": "y"}),
				old: namespace(map[string]string{policy.DefaultTopologyModeAnnotation: "bogus"}),
			},
			want:     answer{Allowed: true},
			observed: []string{"reviewed /validate-namespaces allowed"},
		},
		"a default of the Namespace": {
			path: DefaultServicesPath, about: apiRequest{operation: apiserver.Create, object: service()}, defaults: auto,
			want: answer{
				Allowed: true, Audit: map[string]string{"default": "topology-mode=Auto; source: namespace"},
				Patch: `[{"op":"add","path":"/metadata/annotations/service.kubernetes.io~1topology-mode","value":"Auto"}]`,
			},
			observed: []string{"defaulted namespace topology-mode", "reviewed /default-services allowed"},
		},
		"a default of the cluster": {
			path: DefaultServicesPath, about: apiRequest{operation: apiserver.Create, object: service()},
			settings: rules.Settings{Default: &rules.Default{Setting: rules.TrafficDistribution, Value: "PreferSameZone"}},
			want: answer{
				Allowed: true, Audit: map[string]string{"default": "traffic-distribution=PreferSameZone; source: cluster"},
				Patch: `[{"op":"add","path":"/spec/trafficDistribution","value":"PreferSameZone"}]`,
			},
			observed: []string{"defaulted cluster traffic-distribution", "reviewed /default-services allowed"},
		},
		"no default": {
			path: DefaultServicesPath, about: apiRequest{operation: apiserver.Create, object: service()},
			want:     answer{Allowed: true, Audit: map[string]string{"default": "none; source: none"}},
			observed: []string{"defaulted none ", "reviewed /default-services allowed"},
		},
		"a Service with its own setting": {
			path: DefaultServicesPath, about: apiRequest{operation: apiserver.Create, object: service(zoneThenAny)}, defaults: auto,
			want: answer{Allowed: true, Audit: map[string]string{
				"default": "none; source: service; reason: the annotation vicinity.dev/topology-keys is set",
			}},
			observed: []string{"defaulted service ", "reviewed /default-services allowed"},
		},
		"an update gets no default": {
			path: DefaultServicesPath, about: apiRequest{operation: apiserver.Update, object: service(), old: service()}, defaults: auto,
			want: answer{Allowed: true, Audit: map[string]string{
				"default": "none; source: namespace; reason: only new Services get defaults",
			}},
			observed: []string{"defaulted namespace ", "reviewed /default-services allowed"},
		},
		"an update gets a default if configured": {
			path: DefaultServicesPath, about: apiRequest{operation: apiserver.Update, object: service(), old: service()}, defaults: auto,
			settings: rules.Settings{DefaultOnUpdate: true},
			want: answer{
				Allowed: true, Audit: map[string]string{"default": "topology-mode=Auto; source: namespace"},
				Patch: `[{"op":"add","path":"/metadata/annotations/service.kubernetes.io~1topology-mode","value":"Auto"}]`,
			},
			observed: []string{"defaulted namespace topology-mode", "reviewed /default-services allowed"},
		},
		"the mutating path never denies": {
			path: DefaultServicesPath, about: apiRequest{operation: apiserver.Create, object: service(annotated(policy.TopologyKeysAnnotation, ""))},
			want: answer{Allowed: true, Audit: map[string]string{
				"default": "none; source: service; reason: the annotation vicinity.dev/topology-keys is set",
			}},
			observed: []string{"defaulted service ", "reviewed /default-services allowed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var observer recordingObserver
			reviewCase := c.about.review(t, c.path)
			recorded := serve(t, withNamespace(c.settings, c.defaults), &observer, io.Discard, c.path, post(reviewCase.body))
			if recorded.Code != http.StatusOK {
				t.Fatalf("status %d, want 200: %s", recorded.Code, recorded.Body)
			}
			response := reviewCase.verified(t, recorded.Body.Bytes())
			got := answer{response.Allowed, response.Warnings, response.AuditAnnotations, string(response.Patch)}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("response (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.observed, observer.all()); diff != "" {
				t.Errorf("observed (-want +got):\n%s", diff)
			}
			if current, peak := observer.inFlightNow(); current != 0 || peak != 1 {
				t.Errorf("%d reviews in flight afterwards, at most %d before; want 0 and 1", current, peak)
			}
		})
	}
}

// reviewNew returns the result of package rules for a new Service.
func reviewNew(t *testing.T, object *corev1.Service) rules.Result {
	t.Helper()
	dependencies := withNamespace(rules.Settings{}, nil)
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var read rules.Service
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	return rules.ReviewService(nil, &read, dependencies.Facts(), dependencies.Settings())
}

func TestDenialStatus(t *testing.T) {
	invalid := service(annotated(policy.TopologyKeysAnnotation, "a b,zone,zone"), func(s *corev1.Service) {
		s.Name, s.GenerateName = "", "web-"
	})
	reviewCase := apiRequest{operation: apiserver.Create, object: invalid}.review(t, ValidateServicesPath)
	recorded := serve(t, withNamespace(rules.Settings{}, nil), noObserver{}, io.Discard, ValidateServicesPath, post(reviewCase.body))
	result := reviewCase.verified(t, recorded.Body.Bytes()).Result
	if result == nil {
		t.Fatalf("no status in %s", recorded.Body)
	}
	denied := reviewNew(t, invalid).Denied
	if len(denied) < 2 {
		t.Fatalf("%d violations, want two to list", len(denied))
	}
	if result.Code != http.StatusUnprocessableEntity || result.Reason != metav1.StatusReasonInvalid || result.Status != metav1.StatusFailure {
		t.Errorf("the status is %d %s %s", result.Code, result.Reason, result.Status)
	}
	if diff := cmp.Diff(&metav1.StatusDetails{Kind: "Service", Name: "web-", Causes: result.Details.Causes}, result.Details); diff != "" {
		t.Errorf("details (-want +got):\n%s", diff)
	}
	if prefix := `Service "web-" is invalid: [`; !strings.HasPrefix(result.Message, prefix) {
		t.Errorf("message %q, want prefix %q", result.Message, prefix)
	}
	if len(result.Details.Causes) != len(denied) {
		t.Fatalf("%d causes for %d violations", len(result.Details.Causes), len(denied))
	}
	for i, violation := range denied {
		cause := result.Details.Causes[i]
		if cause.Field != violation.Error.Field || cause.Type != metav1.CauseType(violation.Error.Type) {
			t.Errorf("cause %d is %s at %s", i, cause.Type, cause.Field)
		}
		if text := violation.Message(); text != cause.Field+": "+cause.Message || !strings.Contains(result.Message, text) {
			t.Errorf("%q is missing:\n%s\n%s", text, cause.Message, result.Message)
		}
	}
}

func TestDenialLogLine(t *testing.T) {
	invalid := service(annotated(policy.TopologyKeysAnnotation, "a b,zone,zone"))
	reviewCase := apiRequest{operation: apiserver.Create, object: invalid, dryRun: true}.review(t, ValidateServicesPath)
	var lines bytes.Buffer
	serve(t, withNamespace(rules.Settings{}, nil), noObserver{}, &lines, ValidateServicesPath, post(reviewCase.body))
	const want = `level=INFO msg=denied path=/validate-services operation=CREATE kind=Service namespace=shop name=web user=alice ` +
		`uid=705ab4f5-6393-11e8-b7cc-42010a800002 dryRun=true rules="[SVC003 SVC004]"`
	if diff := cmp.Diff(want, strings.TrimSuffix(lines.String(), "\n")); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

func TestAllowedReviewIsLoggedAtDebug(t *testing.T) {
	reviewCase := apiRequest{operation: apiserver.Create, object: service()}.review(t, ValidateServicesPath)
	var lines bytes.Buffer
	serve(t, withNamespace(rules.Settings{}, nil), noObserver{}, &lines, ValidateServicesPath, post(reviewCase.body))
	const want = `level=DEBUG msg=allowed path=/validate-services operation=CREATE kind=Service namespace=shop name=web user=alice ` +
		`uid=705ab4f5-6393-11e8-b7cc-42010a800002 dryRun=false`
	if diff := cmp.Diff(want, strings.TrimSuffix(lines.String(), "\n")); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

// edit changes the JSON of a review.
func edit(t testing.TB, body []byte, change func(review, request map[string]any)) []byte {
	t.Helper()
	var review map[string]any
	if err := json.Unmarshal(body, &review); err != nil {
		t.Fatal(err)
	}
	request, _ := review["request"].(map[string]any)
	change(review, request)
	edited, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	return edited
}

// set returns an edit that sets a field of the request; unset returns one that removes it.
func set(key string, value any) func(review, request map[string]any) {
	return func(_, request map[string]any) { request[key] = value }
}

func unset(key string) func(review, request map[string]any) {
	return func(_, request map[string]any) { delete(request, key) }
}

// invalidBodies returns bodies that no API server sends for a Service, with the expected error of each.
func invalidBodies(t testing.TB) map[string]struct {
	body []byte
	want string
} {
	good := apiRequest{operation: apiserver.Update, object: service(), old: service()}.review(t, ValidateServicesPath).body
	edited := func(change func(review, request map[string]any)) []byte { return edit(t, good, change) }
	top := func(key string, value any) []byte {
		return edited(func(review, _ map[string]any) { review[key] = value })
	}
	nested := func(deep int) []byte {
		return append(bytes.Repeat([]byte(`{"request":`), deep), bytes.Repeat([]byte(`}`), deep)...)
	}
	inObject := []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"object":` +
		strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}}`)
	return map[string]struct {
		body []byte
		want string
	}{
		"nothing":                    {nil, "the body is not JSON: unexpected end of JSON input"},
		"not JSON":                   {[]byte("apiVersion: v1"), "the body is not JSON: invalid character 'a'"},
		"half a review":              {good[:len(good)/2], "the body is not JSON: unexpected end of JSON input"},
		"two reviews":                {append(bytes.Clone(good), good...), "the body is not JSON: invalid character '{' after top-level value"},
		"null":                       {[]byte("null"), "an object without apiVersion and kind"},
		"a list":                     {[]byte("[]"), "an object without apiVersion and kind"},
		"an empty object":            {[]byte("{}"), "an object without apiVersion and kind"},
		"deep nesting":               {nested(20_000), "exceeded max depth"},
		"deep nesting in the object": {inObject, "exceeded max depth"},
		"unclosed nesting":           {bytes.Repeat([]byte(`[`), 1<<20), "exceeded max depth"},
		"not UTF-8":                  {bytes.Replace(good, []byte("shop"), []byte("sh\xffp"), 1), "the body is not UTF-8"},
		"UTF-16":                     {[]byte("\xff\xfe{\x00}\x00"), "the body is not UTF-8"},
		"v1beta1": {
			top("apiVersion", "admission.k8s.io/v1beta1"),
			`got apiVersion "admission.k8s.io/v1beta1", kind "AdmissionReview"`,
		},
		"another kind":         {top("kind", "ConversionReview"), `kind "ConversionReview"`},
		"a numeric apiVersion": {top("apiVersion", 1), `got apiVersion "", kind "AdmissionReview"`},
		"no request": {
			edited(func(review, _ map[string]any) { delete(review, "request") }),
			"the AdmissionReview has no request",
		},
		"a null request":          {top("request", nil), "the AdmissionReview has no request"},
		"a string as the request": {top("request", "please"), "the request has no uid"},
		"a field in another case": {
			edited(func(review, request map[string]any) { delete(review, "request"); review["Request"] = request }),
			"has no request",
		},
		"no uid":        {edited(unset("uid")), "the request has no uid"},
		"an empty uid":  {edited(set("uid", "")), "the request has no uid"},
		"a numeric uid": {edited(set("uid", 7)), "the request has no uid"},
		"no object":     {edited(unset("object")), "the request to UPDATE a Service has no object"},
		"a null object": {edited(set("object", nil)), "the request to UPDATE a Service has no object"},
		"an object that is a list": {
			edited(set("object", []int{1})),
			"the request is not about a Service: json: cannot unmarshal array into request.object",
		},
		"an update without oldObject": {edited(unset("oldObject")), "the request to UPDATE a Service has no oldObject"},
		"no namespace":                {edited(unset("namespace")), "the request has no namespace"},
		"a field of the wrong type": {
			edited(set("object", map[string]any{"spec": map[string]any{"type": 1}})),
			"cannot unmarshal number into request.object.spec.type of type string",
		},
		"labels of the wrong type": {
			edited(set("object", map[string]any{"metadata": map[string]any{"labels": []string{"a"}}})),
			"into request.object.metadata.labels",
		},
		"another resource": {
			edited(set("resource", map[string]any{"group": "", "version": "v1", "resource": "pods"})),
			`a review of "v1 pods" on the path for "v1 services"`,
		},
		"a resource of another group": {
			edited(set("resource", map[string]any{"group": "serving.knative.dev", "version": "v1", "resource": "services"})),
			`"serving.knative.dev/v1 services"`,
		},
		"another kind of object":     {edited(set("kind", map[string]any{"group": "", "version": "v1", "kind": "Pod"})), `a review of "v1 Pod"`},
		"a subresource":              {edited(set("subResource", "status")), `a review of the subresource "status"`},
		"DELETE":                     {edited(set("operation", "DELETE")), `a review of the operation "DELETE"`},
		"CONNECT":                    {edited(set("operation", "CONNECT")), `a review of the operation "CONNECT"`},
		"no operation":               {edited(unset("operation")), `a review of the operation ""`},
		"an operation in lower case": {edited(set("operation", "create")), `a review of the operation "create"`},
	}
}

func TestInvalidReviewIsRejected(t *testing.T) {
	for name, c := range invalidBodies(t) {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{ValidateServicesPath, DefaultServicesPath} {
				var observer recordingObserver
				recorded := serve(t, withNamespace(rules.Settings{}, nil), &observer, io.Discard, path, post(c.body))
				expectRejected(t, resultOf(t, recorded), http.StatusBadRequest, c.want)
				if lines := observer.all(); len(lines) != 2 || lines[1] != "reviewed "+path+" error" {
					t.Errorf("observed %q", lines)
				}
			}
		})
	}
}

func resultOf(t *testing.T, recorded *httptest.ResponseRecorder) *admissionResponse {
	t.Helper()
	response, err := readResponse(recorded.Result())
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// expectRejected checks a response that is not a review.
func expectRejected(t *testing.T, response *admissionResponse, code int, text string) {
	t.Helper()
	var status metav1.Status
	if err := json.Unmarshal(response.Body, &status); err != nil {
		t.Fatalf("%v in %d %q", err, response.StatusCode, response.Body)
	}
	if response.StatusCode != code || int(status.Code) != code || status.Kind != "Status" || status.Status != metav1.StatusFailure {
		t.Errorf("got %d %s, want %d", response.StatusCode, response.Body, code)
	}
	if status.Reason == "" || !strings.Contains(status.Message, text) {
		t.Errorf("reason %s, message %q, want it to contain %q", status.Reason, status.Message, text)
	}
}

func TestReviewOnWrongPathIsRejected(t *testing.T) {
	for path, object := range map[string]runtime.Object{
		ValidateServicesPath: namespace(nil), DefaultServicesPath: namespace(nil), ValidateNamespacesPath: service(),
	} {
		reviewCase := apiRequest{operation: apiserver.Create, object: object}.review(t, path)
		recorded := serve(t, withNamespace(rules.Settings{}, nil), noObserver{}, io.Discard, path, post(reviewCase.body))
		expectRejected(t, resultOf(t, recorded), http.StatusBadRequest, "on the path for")
	}
}

func TestInvalidRequestIsRejected(t *testing.T) {
	body := apiRequest{operation: apiserver.Create, object: service()}.review(t, ValidateServicesPath).body
	for name, c := range map[string]struct {
		change func(*http.Request)
		code   int
		want   string
		reason string
	}{
		"a GET": {func(r *http.Request) { r.Method = http.MethodGet }, 405, "method GET is not allowed", WrongMethod},
		"a PUT": {func(r *http.Request) { r.Method = http.MethodPut }, 405, "method PUT is not allowed", WrongMethod},
		"no content type": {
			func(r *http.Request) { r.Header.Del("Content-Type") }, 415, `Content-Type must be application/json, not ""`, WrongMedia,
		},
		"YAML": {func(r *http.Request) { r.Header.Set("Content-Type", "application/yaml") }, 415, "application/yaml", WrongMedia},
		"protobuf": {
			func(r *http.Request) { r.Header.Set("Content-Type", "application/vnd.kubernetes.protobuf") }, 415, "protobuf", WrongMedia,
		},
		"an invalid media type":     {func(r *http.Request) { r.Header.Set("Content-Type", "application/json;;") }, 415, "json;;", WrongMedia},
		"a compressed body":         {func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }, 415, "gzip", WrongMedia},
		"a Content-Length of 7 MiB": {func(r *http.Request) { r.ContentLength = 7 << 20 }, 413, "more than 6815744 bytes", TooLarge},
		"7 MiB without a Content-Length": {func(r *http.Request) {
			r.ContentLength, r.Body = -1, io.NopCloser(bytes.NewReader(make([]byte, 7<<20)))
		}, 413, "more than 6815744 bytes", TooLarge},
		"a body that ends early": { // net/http detects it by the length
			func(r *http.Request) { r.Body = io.NopCloser(failingReader{io.ErrUnexpectedEOF}) }, 400, "unexpected EOF", Unreadable,
		},
		"a reset in the body": {func(r *http.Request) { r.Body = io.NopCloser(failingReader{errors.New("reset")}) }, 400, "reset", Unreadable},
		"a body that arrives late": {
			func(r *http.Request) { r.Body = io.NopCloser(failingReader{os.ErrDeadlineExceeded}) }, 408, "timed out", Unreadable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var observer recordingObserver
			r := post(body)
			c.change(r)
			response := resultOf(t, serve(t, withNamespace(rules.Settings{}, nil), &observer, io.Discard, ValidateServicesPath, r))
			expectRejected(t, response, c.code, c.want)
			if diff := cmp.Diff([]string{"rejected " + c.reason, "reviewed /validate-services error"}, observer.all()); diff != "" {
				t.Errorf("observed (-want +got):\n%s", diff)
			}
			if allow := response.Header.Get("Allow"); (allow == http.MethodPost) != (c.code == http.StatusMethodNotAllowed) {
				t.Errorf("Allow is %q", allow)
			}
		})
	}
}

type failingReader struct{ err error }

func (b failingReader) Read([]byte) (int, error) { return 0, b.err }

func TestLargestReview(t *testing.T) {
	large := service(annotated("filler", strings.Repeat("x", 3<<20-8<<10)))
	reviewCase := apiRequest{operation: apiserver.Update, object: large, old: large}.review(t, ValidateServicesPath)
	if len(reviewCase.body) < 6<<20-32<<10 {
		t.Fatalf("the review has only %d bytes", len(reviewCase.body))
	}
	recorded := serve(t, withNamespace(rules.Settings{}, nil), noObserver{}, io.Discard, ValidateServicesPath, post(reviewCase.body))
	if recorded.Code != http.StatusOK || !reviewCase.verified(t, recorded.Body.Bytes()).Allowed {
		t.Errorf("status %d, or not allowed: %s", recorded.Code, recorded.Body)
	}
}

func TestPanicIsInternalError(t *testing.T) {
	dependencies := withNamespace(rules.Settings{}, nil)
	dependencies.Facts = func() rules.Facts { panic("broken cache") }
	reviewCase := apiRequest{operation: apiserver.Create, object: service()}.review(t, ValidateServicesPath)
	var observer recordingObserver
	var lines bytes.Buffer
	response := resultOf(t, serve(t, dependencies, &observer, &lines, ValidateServicesPath, post(reviewCase.body)))
	expectRejected(t, response, http.StatusInternalServerError, "had an internal error")
	if response.Header.Get("Retry-After") != "" {
		t.Error("the response has a Retry-After header")
	}
	if diff := cmp.Diff([]string{"failed panic", "reviewed /validate-services error"}, observer.all()); diff != "" {
		t.Errorf("observed (-want +got):\n%s", diff)
	}
	if current, _ := observer.inFlightNow(); current != 0 {
		t.Errorf("%d reviews are still in flight", current)
	}
	text := lines.String()
	if strings.Count(text, "\n") != 1 || !strings.Contains(text, "broken cache") || !strings.Contains(text, "handler_test.go") {
		t.Errorf("want one log line with the cause and the stack: %q", text)
	}
}

func TestRequestNamespaceOverridesObject(t *testing.T) {
	withoutNamespace := service(func(s *corev1.Service) { s.Namespace = "" })
	c := apiRequest{operation: apiserver.Create, object: withoutNamespace}.review(t, DefaultServicesPath)
	c.body = edit(t, c.body, set("namespace", "kube-system"))
	dependencies := withNamespace(
		rules.Settings{ExcludedNamespaces: []string{"kube-system"}}, map[string]string{policy.DefaultTopologyModeAnnotation: "Auto"})
	recorded := serve(t, dependencies, noObserver{}, io.Discard, DefaultServicesPath, post(c.body))
	response := c.verified(t, recorded.Body.Bytes())
	if response.Patch != nil || !strings.Contains(response.AuditAnnotations["default"], "excludes this Namespace") {
		t.Errorf("got %s %v", response.Patch, response.AuditAnnotations)
	}
}
