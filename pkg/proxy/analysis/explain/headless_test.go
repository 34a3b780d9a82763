package explain_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
)

// TestDNSResponseIsExplained covers a headless Service, as seen from node-a in zone a.
func TestDNSResponseIsExplained(t *testing.T) {
	const zone = "example.com/zone"
	db := func(keys ...policy.Key) *model.Service {
		return &model.Service{Name: web().Name, IsHeadless: true, Ports: web().Ports, Topology: policy.Topology{Keys: keys}}
	}
	local, remote, unready := endpoint("10.0.0.1", "node-a", true), endpoint("10.0.0.2", "node-b", true), endpoint("10.0.0.3", "node-a", false)
	terminating := endpoint("10.0.0.4", "node-a", false)
	terminating.Serving, terminating.Terminating = true, true
	for title, test := range map[string]struct {
		service   *model.Service
		endpoints []model.SliceEndpoint
		want      []string // NAME OUTCOME, the endpoints, and the excluded ones with their reasons
	}{
		"one endpoint is in the node's zone": {db(zone, "*"), []model.SliceEndpoint{local, remote, unready}, []string{
			"web.default.svc answer 10.0.0.1 -10.0.0.2 OtherTopologyValue -10.0.0.3 NotReady",
			"_http._tcp.web.default.svc answer 10.0.0.1:8080 -10.0.0.2:8080 OtherTopologyValue -10.0.0.3:8080 NotReady",
		}},
		"no endpoint is in the node's zone": {db(zone), []model.SliceEndpoint{remote}, []string{
			"web.default.svc empty -10.0.0.2 OtherTopologyValue", "_http._tcp.web.default.svc empty -10.0.0.2:8080 OtherTopologyValue",
		}},
		"no endpoint is ready": {db("*"), []model.SliceEndpoint{unready, terminating}, []string{
			"web.default.svc refuse -10.0.0.3 NotReady -10.0.0.4 NotReady",
			"_http._tcp.web.default.svc refuse -10.0.0.3:8080 NotReady -10.0.0.4:8080 NotReady",
		}},
	} {
		t.Run(title, func(t *testing.T) {
			ports := explain.Clients{}.Ports(clusterOf(webSlice(test.endpoints...), test.service), explain.Query{})
			var got []string
			for _, port := range ports {
				words := append([]string{port.Name, port.Outcome}, port.Cluster.Endpoints...)
				for _, excluded := range port.Excluded {
					words = append(words, "-"+excluded.Endpoint, excluded.Reason)
				}
				got = append(got, strings.Join(words, " "))
				if port.Message == "" || len(port.Traffic) > 0 || len(port.Frontends) > 0 {
					t.Errorf("got message %q, traffic %v, frontends %v; want only a message", port.Message, port.Traffic, port.Frontends)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("reports (-want +got):\n%s", diff)
			}
			var page strings.Builder
			const begin = "default/web IPv4 on node-a\n  DNS        web.default.svc\n"
			if err := write("text")(&page, ports); err != nil || !strings.HasPrefix(page.String(), begin) {
				t.Errorf("error %v, or the text does not begin with the name:\n%s", err, page.String())
			}
		})
	}
}
