package installation_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// rightReview is one as API servers write them, with a mistake in it.
const rightReview = `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u-1",
	"kind": {"group": "", "version": "v1", "kind": "Service"}, "resource": {"group": "", "version": "v1", "resource": "services"},
	"name": "web", "namespace": "shop", "operation": "CREATE", "userInfo": {"username": "jane"},
	"object": {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop",
		"annotations": {"vicinity.dev/topology-keys": "a b"}}, "spec": {"type": "ClusterIP"}}, "oldObject": null, "dryRun": true}}`

// TestNoRequestBodyMakesTheProgramDenyOrEnd speaks to a replica as a client that is not an API server may.
func TestNoRequestBodyMakesTheProgramDenyOrEnd(t *testing.T) {
	in := install(t, manifests, 1)
	r := in.running()[0]
	client := in.reviewer()
	post := func(body io.Reader) (int, string) {
		t.Helper()
		response, err := client.Post("https://"+r.address(webhookPort)+"/validate-services", "application/json", body)
		must.Succeed(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		must.Succeed(t, err)
		return response.StatusCode, string(text)
	}
	deep := strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000)
	annotated := func(value string) string { return strings.Replace(rightReview, "a b", value, 1) }
	for name, test := range map[string]struct {
		body string
		want int
	}{
		"nothing":                {"", http.StatusBadRequest},
		"no JSON":                {"<html>", http.StatusBadRequest},
		"null":                   {"null", http.StatusBadRequest},
		"a list":                 {"[" + rightReview + "]", http.StatusBadRequest},
		"no request":             {`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}`, http.StatusBadRequest},
		"another version":        {strings.Replace(rightReview, "k8s.io/v1", "k8s.io/v1beta1", 1), http.StatusBadRequest},
		"another kind":           {strings.ReplaceAll(rightReview, `"Service"`, `"Pod"`), http.StatusBadRequest},
		"another operation":      {strings.Replace(rightReview, "CREATE", "CONNECT", 1), http.StatusBadRequest},
		"an object of text":      {strings.Replace(rightReview, `{"type": "ClusterIP"}`, `"x"`, 1), http.StatusBadRequest},
		"half of it":             {rightReview[:len(rightReview)/2], http.StatusBadRequest},
		"two of them":            {rightReview + rightReview, http.StatusBadRequest},
		"100,000 brackets":       {strings.Repeat("[", 100_000), http.StatusBadRequest},
		"deep nesting":           {strings.Replace(rightReview, `"jane"`, deep, 1), http.StatusBadRequest},
		"no UTF-8":               {annotated("a\xff\xfeb"), http.StatusBadRequest},
		"8 MiB":                  {annotated(strings.Repeat("x", 8<<20)), http.StatusRequestEntityTooLarge},
		"8 MiB that are no JSON": {strings.Repeat("[", 8<<20), http.StatusRequestEntityTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			code, answer := post(strings.NewReader(test.body))
			if code != test.want || !strings.Contains(answer, `"kind":"Status"`) || !strings.Contains(answer, `"message":"`) {
				t.Errorf("the answer is %d, want %d with a reason: %.300s", code, test.want, answer)
			}
		})
	}
	for name, body := range map[string]string{
		"as it should be": rightReview,
		"5 MiB":           annotated("a b" + strings.Repeat("x", 5<<20)),
		"control codes":   annotated(`a\u0000\u202eb`),
	} {
		t.Run("a mistake, "+name, func(t *testing.T) {
			code, answer := post(strings.NewReader(body))
			var review admissionv1.AdmissionReview
			if err := json.Unmarshal([]byte(answer), &review); err != nil || review.Response == nil {
				t.Fatalf("the answer is %d: %.300s", code, answer)
			}
			if review.Response.UID != "u-1" || review.Response.Allowed || !strings.Contains(review.Response.Result.Message, "[SVC00") {
				t.Errorf("the answer is %d: %.500s", code, answer)
			}
		})
	}
	if r.HasEnded() {
		t.Errorf("it ended: %s", r.State())
	}
	if count, err := r.metric("vicinity_webhook_internal_errors_total", `reason="panic"`); err != nil || count != 0 {
		t.Errorf("%v panics (%v)", count, err)
	}
}

func TestTheServerSpeaksWhatAPIServersSpeakAndNothingElse(t *testing.T) {
	in := install(t, manifests, 1)
	r := in.running()[0]
	client := in.reviewer()
	for name, test := range map[string]struct {
		method, path, media string
		want                int
	}{
		"GET":            {http.MethodGet, "/validate-services", "application/json", http.StatusMethodNotAllowed},
		"another path":   {http.MethodPost, "/metrics", "application/json", http.StatusNotFound},
		"another format": {http.MethodPost, "/validate-services", "application/x-protobuf", http.StatusUnsupportedMediaType},
	} {
		t.Run(name, func(t *testing.T) {
			url := "https://" + r.address(webhookPort) + test.path
			request, err := http.NewRequestWithContext(t.Context(), test.method, url, strings.NewReader(rightReview))
			must.Succeed(t, err)
			request.Header.Set("Content-Type", test.media)
			response, err := client.Do(request)
			must.Succeed(t, err)
			must.Succeed(t, response.Body.Close())
			if response.StatusCode != test.want {
				t.Errorf("the answer is %s, want %d", response.Status, test.want)
			}
		})
	}
	t.Run("TLS 1.2", func(t *testing.T) {
		if _, err := in.shake(r, in.bundles()[0], &tls.Config{MaxVersion: tls.VersionTLS12}); err == nil {
			t.Error("it is spoken")
		}
	})
	t.Run("HTTP/2", func(t *testing.T) {
		config := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2", "http/1.1"}}
		if state, err := in.shake(r, in.bundles()[0], config); err != nil || state.NegotiatedProtocol != "http/1.1" {
			t.Errorf("what is spoken is %q (%v)", state.NegotiatedProtocol, err)
		}
	})
}

// reviewer is a client that trusts the replicas as an API server does.
func (in *installation) reviewer() *http.Client {
	in.t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(in.bundles()[0]) {
		in.t.Fatal("the caBundle has no certificate")
	}
	return &http.Client{Timeout: wait.Patience, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{
			RootCAs: roots, MinVersion: tls.VersionTLS13, ServerName: fmt.Sprintf("%s.%s.svc", installedName, installedNamespace),
		},
		DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
			return in.node.Dial(network, address, wait.Patience)
		},
	}}
}
