// Package scrape_test reads a proxy's metrics as Prometheus does, with the rights in manifests/monitoring/proxy.
package scrape_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/e2e/fabric/fabrictest"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

const (
	nodeName = "node-1"
	port     = "10449"
)

// scraper is a client in the network namespace of another machine.
type scraper struct {
	client *http.Client
	server string
}

func newScraper(from *fabric.Namespace, node string) scraper {
	client := site.Client(from)
	client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // as the PodMonitor does
	return scraper{client: client, server: "https://" + net.JoinHostPort(node, port)}
}

func (s scraper) get(t *testing.T, path, token string) (status int, body string, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.server+path, nil)
	must.Succeed(t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// tokenOf returns a token of a ServiceAccount. The token in the component's Secret would be written by a controller,
// which does not run here.
func tokenOf(t *testing.T, api *site.Site, account string, arguments ...string) string {
	t.Helper()
	return strings.TrimSpace(api.Kubectl(t, append([]string{"-n", "kube-system", "create", "token", account}, arguments...)...))
}

// TestOnlyAuthorizedClientsReadTheMetrics uses a real proxy, the component's objects, and tokens of a real API
// server. It also covers an outage of the API server.
func TestOnlyAuthorizedClientsReadTheMetrics(t *testing.T) {
	network := fabrictest.New(t)
	machine, err := network.AddNode(nodeName)
	must.Succeed(t, err)
	outside, err := network.AddHost("control-plane", machine)
	must.Succeed(t, err)
	elsewhere, err := network.AddHost("elsewhere", machine)
	must.Succeed(t, err)
	api := site.New(t, site.Config{Namespace: outside.Namespace})
	manifests := filepath.Join("..", "..", "manifests")
	for _, file := range []string{"access.yaml", "monitoring/proxy/metrics-access.yaml"} {
		api.Kubectl(t, "apply", "-f", filepath.Join(manifests, file))
	}
	api.Kubectl(t, "-n", "kube-system", "create", "serviceaccount", "stranger")
	api.Create(t, objects.Node(nodeName, nil, machine.IPv4, machine.IPv6))
	kubeconfig := site.Kubeconfig(t, api.Account(t, "kube-system", "vicinity-proxy"))
	proxy := site.Start(t, machine.Namespace, exec.Command(site.Program(t, "proxy"), "run", "--kubeconfig", kubeconfig, "--node", nodeName,
		"--own-tables", "never", "--cluster-cidr", fabric.PodsIPv4.String(), "--secure-metrics-bind-address", componentAddress(t, manifests)))
	proxy.Log.WaitFor(t, "the first sync is in the kernel")

	reader, withoutRole := tokenOf(t, api, "vicinity-metrics-reader"), tokenOf(t, api, "stranger")
	otherAudience := tokenOf(t, api, "vicinity-metrics-reader", "--audience", "elsewhere")
	for _, address := range []string{machine.IPv4.String(), machine.IPv6.String()} {
		s := newScraper(outside.Namespace, address)
		wait.Until(t, "the metrics are served at "+address, func() bool {
			_, _, err := s.get(t, "/metrics", "")
			return err == nil
		})
		for name, c := range map[string]struct {
			path, token string
			want        int
		}{
			"the account of the component": {"/metrics", reader, 200},
			"an account without the role":  {"/metrics", withoutRole, 403},
			"a token for another audience": {"/metrics", otherAudience, 401},
			"an invalid token":             {"/metrics", "abc", 401},
			"no token":                     {"/metrics", "", 401},
			"a page that is only local":    {"/configz", reader, 404},
		} {
			status, body, err := s.get(t, c.path, c.token)
			must.Succeed(t, err)
			if status != c.want || (c.want == 200) != strings.Contains(body, "vicinity_build_info{") {
				t.Errorf("%s, %s: status %d, body %.60q, want status %d", address, name, status, body, c.want)
			}
		}
	}

	tryTokens(t, newScraper(elsewhere.Namespace, machine.IPv4.String()))
	if status, _, err := newScraper(outside.Namespace, machine.IPv4.String()).get(t, "/metrics",
		tokenOf(t, api, "vicinity-metrics-reader")); err != nil || status != 200 {
		t.Errorf("a new token, while another client tries unknown tokens: status %d, error %v, want 200", status, err)
	}

	must.Succeed(t, api.Close())
	s := newScraper(outside.Namespace, machine.IPv4.String())
	if status, _, err := s.get(t, "/metrics", reader); err != nil || status != 200 {
		t.Errorf("while the API server is down: status %d, error %v, want 200", status, err)
	}
	if status, _, err := s.get(t, "/metrics", "another"); err != nil || status != 503 {
		t.Errorf("a token that was never reviewed, while the API server is down: status %d, error %v, want 503", status, err)
	}
}

// tryTokens tries unknown tokens until the proxy limits their rate.
func tryTokens(t *testing.T, s scraper) {
	t.Helper()
	for i := range 1000 {
		switch status, _, err := s.get(t, "/metrics", fmt.Sprint("guess-", i)); {
		case err == nil && status == http.StatusTooManyRequests:
			return
		case err != nil || status != http.StatusUnauthorized:
			t.Fatalf("an unknown token: status %d, error %v, want 401", status, err)
		}
	}
	t.Error("1,000 unknown tokens were not rate-limited")
}

// componentAddress returns the address that the component sets for the proxies.
func componentAddress(t *testing.T, manifests string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(manifests, "monitoring", "proxy", "kustomization.yaml"))
	must.Succeed(t, err)
	_, rest, found := strings.Cut(string(text), "--secure-metrics-bind-address=")
	address, _, _ := strings.Cut(rest, "\n")
	if !found || !strings.HasSuffix(address, ":"+port) {
		t.Fatalf("the component serves the metrics at %q, want port %s", address, port)
	}
	return address
}
