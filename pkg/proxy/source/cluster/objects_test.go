package cluster

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// TestObjectsWithoutOptionalKinds: a cluster may have no ServiceCIDRs and no ServiceDemands, and a user who may list
// Services may lack the permission to list them. A missing kind that proxies need is an error.
func TestObjectsWithoutOptionalKinds(t *testing.T) {
	for _, test := range []struct {
		resource string
		status   int
		objects  int
		fails    string
	}{
		{"", 0, 5, ""},
		{"servicecidrs", http.StatusNotFound, 4, ""},
		{"servicecidrs", http.StatusForbidden, 4, ""},
		{"servicedemands", http.StatusNotFound, 4, ""},
		{"servicedemands", http.StatusForbidden, 4, ""},
		{"services", http.StatusForbidden, 0, "listing services"},
	} {
		t.Run(fmt.Sprint(test.resource, test.status), func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				resource := path.Base(r.URL.Path)
				if resource == test.resource {
					w.WriteHeader(test.status)
					reason := map[int]string{http.StatusNotFound: "NotFound", http.StatusForbidden: "Forbidden"}[test.status]
					fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, test.status)
					return
				}
				fmt.Fprint(w, listOfOne(resource, r.URL.Query().Get("labelSelector")))
			}))
			defer server.Close()
			objects, err := Objects(t.Context(), &rest.Config{Host: server.URL}, nil)
			if (err == nil) != (test.fails == "") || err != nil && !strings.Contains(err.Error(), test.fails) {
				t.Fatalf("error %v, want %q", err, test.fails)
			}
			if test.fails == "" && objects.Len() != test.objects {
				t.Errorf("%d objects, want %d: %+v", objects.Len(), test.objects, objects)
			}
		})
	}
}

// listOfOne returns a list with one object of a resource; of headless Services' slices it is empty.
func listOfOne(resource, selector string) string {
	kinds := map[string]string{
		"nodes": `"kind":"NodeList","apiVersion":"v1"`, "services": `"kind":"ServiceList","apiVersion":"v1"`,
		"endpointslices": `"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1"`,
		"servicecidrs":   `"kind":"ServiceCIDRList","apiVersion":"networking.k8s.io/v1"`,
		"servicedemands": `"kind":"ServiceDemandList","apiVersion":"vicinity.dev/v1alpha1"`,
	}
	item := `{"metadata":{"name":"one"}}`
	if resource == "endpointslices" && !strings.HasPrefix(selector, "!") {
		item = ""
	}
	return fmt.Sprintf(`{%s,"metadata":{},"items":[%s]}`, kinds[resource], item)
}

// TestEachKindIsDecoded whichever others its group has.
func TestEachKindIsDecoded(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		kind := map[string]string{"topologyslices": "TopologySliceList", "servicedemands": "ServiceDemandList"}[path.Base(r.URL.Path)]
		fmt.Fprintf(w, `{"apiVersion":"vicinity.dev/v1alpha1","kind":%q,"metadata":{},"items":[{"metadata":{"name":"one"}}]}`, kind)
	}))
	defer server.Close()
	all, err := newListWatches(&rest.Config{Host: server.URL}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []*convert.Kind{convert.TopologySlices, convert.ServiceDemands} {
		var names []string
		err := eachItem(t.Context(), all.byKind[kind], func(sent runtime.Object) error {
			names = append(names, sent.(convert.Object).GetName())
			return nil
		})
		if err != nil || len(names) != 1 {
			t.Errorf("listing %s: %q, %v", kind.Resource, names, err)
		}
	}
}
