package apiserver

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// TestObjectsWithoutOptionalKinds: a cluster may have no ServiceDemands, and a user who may list Services may lack the
// permission to list them. A missing kind that proxies need is an error.
func TestObjectsWithoutOptionalKinds(t *testing.T) {
	for _, test := range []struct {
		resource string
		status   int
		objects  int
		fails    string
	}{
		{"", 0, 4, ""},
		{"servicedemands", http.StatusNotFound, 3, ""},
		{"servicedemands", http.StatusForbidden, 3, ""},
		{"services", http.StatusForbidden, 0, "list services"},
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
				if resource == "vicinity-demand" {
					fmt.Fprint(w, `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"vicinity-demand"}}`)
					return
				}
				fmt.Fprint(w, listOfOne(resource))
			}))
			defer server.Close()
			objects, err := Objects(t.Context(), &rest.Config{Host: server.URL}, "publishers")
			if (err == nil) != (test.fails == "") || err != nil && !strings.Contains(err.Error(), test.fails) {
				t.Fatalf("error %v, want %q", err, test.fails)
			}
			count := len(objects.Nodes) + len(objects.Services) + len(objects.Slices) + len(objects.Demands)
			if test.fails == "" && count != test.objects {
				t.Errorf("%d objects, want %d: %+v", count, test.objects, objects)
			}
		})
	}
}

// The Lease is not read if there are no ServiceDemands. If it may not be read, they count as current.
func TestObjectsReadDemandLease(t *testing.T) {
	old := time.Now().Add(-2 * v1alpha1.DemandFreshFor).UTC().Format("2006-01-02T15:04:05.000000Z07:00")
	lease := `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","spec":{"renewTime":"` + old + `"}}`
	status := func(reason string, code int) string {
		return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)
	}
	for name, c := range map[string]struct {
		code, demands int
		body          string
		state         model.DemandState
		looks         int
		fails         string
	}{
		"the Lease is old":     {http.StatusOK, 0, lease, model.DemandStale, 1, ""},
		"never renewed":        {http.StatusOK, 0, `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1"}`, model.DemandUnavailable, 1, ""},
		"there is no Lease":    {http.StatusNotFound, 0, status("NotFound", 404), model.DemandUnavailable, 1, ""},
		"reading is forbidden": {http.StatusForbidden, 0, status("Forbidden", 403), model.DemandActive, 1, ""},
		"reading fails":        {http.StatusBadRequest, 0, status("BadRequest", 400), 0, 1, "read Lease publishers/vicinity-demand"},
		"there are no objects": {http.StatusOK, http.StatusNotFound, "{}", 0, 0, ""},
		"listing is forbidden": {http.StatusOK, http.StatusForbidden, "{}", 0, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var reads atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch resource := path.Base(r.URL.Path); {
				case r.URL.Path == "/apis/coordination.k8s.io/v1/namespaces/publishers/leases/vicinity-demand":
					reads.Add(1)
					w.WriteHeader(c.code)
					fmt.Fprint(w, c.body)
				case resource == "servicedemands" && c.demands != 0:
					w.WriteHeader(c.demands)
					reason := map[int]string{http.StatusNotFound: "NotFound", http.StatusForbidden: "Forbidden"}[c.demands]
					fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, c.demands)
				default:
					fmt.Fprint(w, listOfOne(resource))
				}
			}))
			defer server.Close()
			objects, err := Objects(t.Context(), &rest.Config{Host: server.URL}, "publishers")
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("error %v, want %q", err, c.fails)
				}
				return
			}
			if err != nil || int(reads.Load()) != c.looks || objects.DemandsForbidden != (c.demands == http.StatusForbidden) {
				t.Fatalf("%v after %d reads of the Lease; forbidden: %t", err, reads.Load(), objects.DemandsForbidden)
			}
			if objects.DemandState != c.state {
				t.Errorf("the state is %v, want %v", objects.DemandState, c.state)
			}
		})
	}
}

// listOfOne returns a list with one object of a resource.
func listOfOne(resource string) string {
	kinds := map[string]string{
		"nodes": `"kind":"NodeList","apiVersion":"v1"`, "services": `"kind":"ServiceList","apiVersion":"v1"`,
		"endpointslices": `"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1"`,
		"servicedemands": `"kind":"ServiceDemandList","apiVersion":"vicinity.dev/v1alpha1"`,
	}
	return fmt.Sprintf(`{%s,"metadata":{},"items":[{"metadata":{"name":"one"}}]}`, kinds[resource])
}

// Each kind must be decoded regardless of the other kinds of its group.
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
		err := forEachPage(t.Context(), all.byKind[kind], func(sent runtime.Object) error {
			names = append(names, sent.(convert.Object).GetName())
			return nil
		})
		if err != nil || len(names) != 1 {
			t.Errorf("list %s: %q, %v", kind.Resource, names, err)
		}
	}
}
