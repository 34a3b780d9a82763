package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/forecast"
)

// handWrittenSlice returns a Service with an EndpointSlice that was written by hand.
func handWrittenSlice(name, port, slice string) string {
	label := ""
	if name == "headless" {
		label = `, service.kubernetes.io/headless: ""`
	}
	return `
- {apiVersion: v1, kind: Service, metadata: {name: ` + name + `, namespace: t}, spec: {clusterIP: 10.96.0.1, ports: [` + port + `]}}
- {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: ` + name + `-1, namespace: t,
    labels: {kubernetes.io/service-name: ` + name + label + `}}, ` + slice + "}\n"
}

// TestASliceWithoutPodsIsReported: 'explain' reports why an EndpointSlice in a file is not used, and --why reports it
// for its endpoint.
func TestASliceWithoutPodsIsReported(t *testing.T) {
	for name, test := range map[string]struct {
		port, slice, target, reason, sentence string
	}{
		"port-names": {"{name: http, port: 80}",
			"addressType: IPv4, ports: [{port: 8080}], endpoints: [{addresses: [10.0.1.2]}, {addresses: [10.0.1.3]}]",
			"10.0.1.3", "SliceOfOtherPorts",
			"EndpointSlice t/port-names-1 has 2 endpoints, but no port named http/TCP; it has 8080/TCP without a name."},
		"protocols": {"{port: 53, protocol: UDP}", "addressType: IPv4, ports: [{port: 53}], endpoints: [{addresses: [10.0.1.2]}]",
			"10.0.1.2", "SliceOfOtherPorts",
			"EndpointSlice t/protocols-1 has 1 endpoint, but no UDP port without a name; it has 53/TCP without a name."},
		"no-ports": {"{port: 80}", "addressType: IPv4, endpoints: [{addresses: [10.0.1.2], nodeName: n1}]",
			"n1", "SliceWithoutPorts", "EndpointSlice t/no-ports-1 has 1 endpoint, but no ports, which does not mean every port."},
		"names": {"{port: 80}", "addressType: FQDN, ports: [{port: 80}], endpoints: [{addresses: [db.example.com]}]",
			"db.example.com", "SliceOfNames", "EndpointSlice t/names-1 has 1 endpoint, but by name (addressType FQDN), and a proxy sends " +
				"connections only to addresses."},
		"family": {"{port: 80}",
			`addressType: IPv6, ports: [{port: 80}], endpoints: [{addresses: ["fd00::2"], targetRef: {kind: Pod, name: db-0}}]`,
			"db-0", "SliceOfOtherFamily", "EndpointSlice t/family-1 has 1 IPv6 endpoint, but the Service has no IPv6 address, only IPv4."},
		"headless": {"{port: 80}", "addressType: IPv4, ports: [{port: 80}], endpoints: [{addresses: [10.0.1.2]}]",
			"10.0.1.2", "SliceOfHeadless", "EndpointSlice t/headless-1 has 1 endpoint, but the label service.kubernetes.io/headless, " +
				"so no proxy reads it."},
		"addresses": {"{port: 80}", "addressType: IPv4, ports: [{port: 80}], endpoints: [{addresses: [10.0.1.2, 10.0.1.3]}]",
			"10.0.1.3:80", "LaterAddresses", "EndpointSlice t/addresses-1 has an endpoint with more than one address, and only the first one " +
				"is used; another endpoint needs an entry of its own."},
	} {
		t.Run(name, func(t *testing.T) {
			folder := writeManifests(t, "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Node, metadata: {name: n1}}"+
				handWrittenSlice(name, test.port, test.slice))
			explainArgs := []string{"explain", "--manifests", folder, "--node", "n1", "t/" + name}
			ports := explainPorts(t, explainArgs[1:]...)
			if len(ports) != 1 || len(ports[0].UnusedSlices) != 1 || ports[0].UnusedSlices[0].Reason != test.reason ||
				ports[0].UnusedSlices[0].Message != test.sentence {
				t.Fatalf("reports: %+v, want %s: %s", ports, test.reason, test.sentence)
			}
			if text := proxyCommand(t, explainArgs...); !strings.Contains(text.stdout, "\n  slices     ✗ "+test.sentence+" ["+test.reason+"]\n") {
				t.Errorf("the text lacks the reason:\n%s", text.stdout)
			}
			whyArgs := append(explainArgs, "--why", test.target)
			var explanations []forecast.EndpointExplanation
			got := proxyCommand(t, append(whyArgs, "-o", "json")...)
			if err := json.Unmarshal([]byte(got.stdout), &explanations); err != nil || len(explanations) != 1 {
				t.Fatalf("exit status %d, %d explanations (%v): %s", got.status, len(explanations), err, got.stderr)
			}
			if explanation := explanations[0]; explanation.Reason != test.reason || explanation.Message != test.sentence || explanation.Share != 0 {
				t.Errorf("explanation %+v has another reason, message or share", explanation)
			}
			if text := proxyCommand(t, whyArgs...).stdout; !strings.HasSuffix(text, "It gets none. "+test.sentence+" ["+test.reason+"]\n") {
				t.Errorf("the text does not end with the reason: %s", text)
			}
		})
	}
}
