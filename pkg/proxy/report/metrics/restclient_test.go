package metrics

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// This test makes real requests with client-go. Its hooks are global, so no other test here may register them.
func TestRequestsOfClientGoAreCounted(t *testing.T) {
	r := NewRecorder()
	r.CountAPIRequests()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if strings.HasSuffix(request.URL.Path, "/gone") {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	client, err := rest.UnversionedRESTClientFor(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{
		GroupVersion: &schema.GroupVersion{Version: "v1"}, NegotiatedSerializer: scheme.Codecs,
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/here", "/here", "/gone"} {
		_ = client.Get().AbsPath(path).Do(t.Context()).Error() // only the request counts
	}
	host := strings.TrimPrefix(server.URL, "http://")
	server.Close()
	_ = client.Get().AbsPath("/here").MaxRetries(0).Do(t.Context()).Error()

	for code, want := range map[string]float64{"200": 2, "404": 1, "<error>": 1} {
		if got := testutil.ToFloat64(apiRequests.collector(r).WithLabelValues(code, "GET", host)); got != want {
			t.Errorf("%v requests with %s, want %v", got, code, want)
		}
	}
	if got := testutil.CollectAndCount(apiRequestDuration.collector(r)); got != 1 {
		t.Errorf("%d series of durations, want one for GET", got)
	}
}
