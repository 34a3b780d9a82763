package xds

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// envoyConfig is a format string with the ports of the administration interface and of the listener, and the path of
// the socket.
const envoyConfig = `
node: {id: envoy, cluster: test}
admin: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}
dynamic_resources:
  ads_config: {api_type: GRPC, transport_api_version: V3, grpc_services: [{envoy_grpc: {cluster_name: xds}}]}
static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: %d}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          route_config: {virtual_hosts: [{name: all, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: web}}]}]}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
  - name: web
    type: EDS
    connect_timeout: 1s
    eds_cluster_config:
      service_name: outbound|80||web.shop.svc.cluster.local
      eds_config: {resource_api_version: V3, ads: {}}
    common_lb_config: {locality_weighted_lb_config: {}}
    outlier_detection: {consecutive_gateway_failure: 1, enforcing_consecutive_gateway_failure: 100, max_ejection_percent: 100}
    typed_extension_protocol_options: &http2
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
  - name: xds
    type: STATIC
    typed_extension_protocol_options: *http2
    load_assignment: {cluster_name: xds, endpoints: [{lb_endpoints: [{endpoint: {address: {pipe: {path: %s}}}}]}]}
`

// checkBootstrap validates an Envoy bootstrap configuration in YAML with Envoy's types.
func checkBootstrap(t *testing.T, text string) error {
	t.Helper()
	built, err := programs()
	must.Succeed(t, err)
	asJSON, err := yaml.YAMLToJSONStrict([]byte(text))
	must.Succeed(t, err)
	cmd := exec.Command(built.Path(binaries.XDS, "xds"), "bootstrap")
	cmd.Stdin = bytes.NewReader(asJSON)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	return nil
}

// TestEnvoysTypesAcceptTheConfiguration validates the configuration with which `make xds-envoy` starts an Envoy, and the
// clusters in the README. It does not test how Envoy uses them.
func TestEnvoysTypesAcceptTheConfiguration(t *testing.T) {
	whole := fmt.Sprintf(envoyConfig, 9901, 10000, "/run/vicinity/xds.sock")
	readme, err := os.ReadFile("../../manifests/xds/README.md")
	must.Succeed(t, err)
	_, clusters, found := strings.Cut(string(readme), "```yaml\nclusters:\n")
	if !found {
		t.Fatal("the README has no Envoy clusters")
	}
	clusters, _, _ = strings.Cut(clusters, "```")
	for name, text := range map[string]string{"the test's": whole, "the README's": "static_resources:\n  clusters:\n  " +
		strings.TrimSpace(strings.ReplaceAll(clusters, "\n", "\n  "))} {
		if err := checkBootstrap(t, text); err != nil {
			t.Errorf("%s: %v:\n%s", name, err, text)
		}
	}
	for what, broken := range map[string]string{
		"an unknown field": strings.Replace(whole, "stat_prefix: in", "stat_prefix: in\n          no_such_field: 1", 1),
		"no path":          strings.Replace(whole, "/run/vicinity/xds.sock", `""`, 1),
	} {
		if broken == whole || checkBootstrap(t, broken) == nil {
			t.Errorf("%s is accepted: the validation is ineffective", what)
		}
	}
}
