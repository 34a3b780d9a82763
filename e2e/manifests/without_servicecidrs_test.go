package manifests_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// networking is the group and version of ServiceCIDRs.
const networking = "/apis/networking.k8s.io/v1"

// withoutServiceCIDRs proxies a real API server, without the type that was added in Kubernetes 1.33: 1.37 does not
// become ready without it. Discovery is by group, as in servers before 1.26, which clients still support.
func withoutServiceCIDRs(t *testing.T, config *rest.Config) *httptest.Server {
	t.Helper()
	transport, err := rest.TransportFor(config)
	must.Succeed(t, err)
	target, err := url.Parse(config.Host)
	must.Succeed(t, err)
	proxy := httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			if strings.HasPrefix(r.In.URL.Path, "/api") && strings.Contains(r.In.Header.Get("Accept"), "APIGroupDiscoveryList") ||
				r.In.URL.Path == networking {
				r.Out.Header.Set("Accept", "application/json")
				r.Out.Header.Del("Accept-Encoding")
			}
		},
		ModifyResponse: func(response *http.Response) error {
			if response.Request.URL.Path != networking {
				return nil
			}
			var all metav1.APIResourceList
			if err := json.NewDecoder(response.Body).Decode(&all); err != nil {
				return fmt.Errorf("read the resources of %s: %w", networking, err)
			}
			all.APIResources = slices.DeleteFunc(all.APIResources, func(r metav1.APIResource) bool {
				return strings.HasPrefix(r.Name, "servicecidrs") || r.Name == "ipaddresses"
			})
			text, err := json.Marshal(all)
			response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
			response.Header.Set("Content-Length", fmt.Sprint(len(text)))
			return err
		},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, networking+"/servicecidrs") {
			http.NotFound(w, r)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server
}

// TestTheReadmesCommandsNeedNoServiceCIDRs covers Kubernetes 1.30 to 1.32, which do not have the type.
func TestTheReadmesCommandsNeedNoServiceCIDRs(t *testing.T) {
	api := site.New(t, site.Config{})
	old := withoutServiceCIDRs(t, api.AdminConfig())
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	must.Succeed(t, os.WriteFile(kubeconfig, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: old,
contexts: [{name: old, context: {cluster: old, user: nobody}}],
users: [{name: nobody, user: {}}],
clusters: [{name: old, cluster: {server: %q}}]}`, old.URL), 0o600))
	r := newClientShell(t, kubeconfig)
	must.Succeed(t, os.WriteFile(filepath.Join(r.dir, "cluster.yaml"), []byte(shopNamespace+shopCluster), 0o600))
	r.runCommand(t, "kubectl apply -f cluster.yaml", 0)
	if _, stderr := r.runCommand(t, "kubectl get servicecidrs", 1); !strings.Contains(stderr, `doesn't have a resource type "servicecidrs"`) {
		t.Errorf("kubectl knows ServiceCIDRs: %s", stderr)
	}
	r.runReadCommands(t)
}
