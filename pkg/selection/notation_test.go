package selection

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// endpointNotation is how the tables write an endpoint, so that a case fits on a line:
//
//	1              endpoint 10.0.0.1:80, ready, on no known node
//	1!             not ready, not serving
//	1s             serving, but neither ready nor terminating
//	1t             serving and terminating, not ready
//	1x             terminating and no longer serving
//	1r             ready and terminating, as with publishNotReadyAddresses
//	1p             ready and not serving, as with publishNotReadyAddresses
//	1*             on this node, node-1
//	1@node-2       on another node
//	1@node-2/b     with zone b in the slice
//	1(a,b)         hinted for zones; an underscore is the empty zone
//	1[node-2]      hinted for nodes
var endpointNotation = regexp.MustCompile(`^(\d+)([!stxrp])?(?:(\*)|@([\w.-]+))?(?:/([\w-]+))?(?:\(([\w,-]+)\))?(?:\[([\w,-]+)\])?$`)

func parseEndpoints(t testing.TB, text string) []model.PortEndpoint {
	t.Helper()
	var endpoints []model.PortEndpoint
	for word := range strings.FieldsSeq(text) {
		fields := endpointNotation.FindStringSubmatch(word)
		if fields == nil {
			t.Fatalf("endpoint %q does not match endpointNotation", word)
		}
		endpoint := model.PortEndpoint{Addr: addrOf(fields[1])}
		state := fields[2]
		endpoint.Ready = state == "" || state == "r" || state == "p"
		endpoint.Serving = state != "!" && state != "x" && state != "p"
		endpoint.Terminating = state == "t" || state == "x" || state == "r"
		endpoint.Node, endpoint.Zone = fields[4], fields[5]
		if fields[3] == "*" {
			endpoint.Node = "node-1"
		}
		endpoint.HintZones, endpoint.HintNodes = parseHints(fields[6]), parseHints(fields[7])
		endpoints = append(endpoints, endpoint)
	}
	return endpoints
}

func addrOf(number string) netip.AddrPort {
	return netip.MustParseAddrPort("10.0.0." + number + ":80")
}

func parseHints(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.ReplaceAll(text, "_", ""), ",")
}

// numbers formats endpoints in the notation of the tables: "1 4".
func numbers(endpoints []model.PortEndpoint) string {
	var words []string
	for _, endpoint := range endpoints {
		words = append(words, fmt.Sprint(endpoint.Addr.Addr().As4()[3]))
	}
	return strings.Join(words, " ")
}

// parseKeys accepts short names for the labels that the tables use most.
func parseKeys(text string) []policy.Key {
	fullNames := map[string]policy.Key{
		"hostname": policy.Hostname, "zone": policy.Zone, "region": "topology.kubernetes.io/region", "rack": "example.com/rack",
	}
	var keys []policy.Key
	for word := range strings.FieldsSeq(text) {
		key, ok := fullNames[word]
		if !ok {
			key = policy.Key(word)
		}
		keys = append(keys, key)
	}
	return keys
}

// parseLabels parses "zone=a rack=1". An empty text means no labels.
func parseLabels(text string) map[string]string {
	labels := map[string]string{}
	for word := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(word, "=")
		labels[string(parseKeys(key)[0])] = value
	}
	return labels
}

// viewFrom returns node-1's view of the given nodes, by name with their labels. Other nodes are unknown.
func viewFrom(nodes map[string]string) NodeView {
	labelsByNode := map[string]map[string]string{}
	for name, labels := range nodes {
		labelsByNode[name] = parseLabels(labels)
	}
	return NodeView{
		Node: model.Node{Name: "node-1", Labels: labelsByNode["node-1"]},
		Labels: func(node string) (map[string]string, bool) {
			labels, ok := labelsByNode[node]
			return labels, ok
		},
	}
}
