package manifests

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/promise"
)

// FuzzDecode decodes arbitrary input. It must end, and accepted objects must meet the guarantees of package model.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{
		serviceYAML("web", "10.96.0.1") + "---\n" + sliceYAML("web-1", "web", "10.244.0.5"),
		`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}]}`,
		"--- # comment\n%YAML 1.1\n---\na: &a [*a]\n...\n{a: b} c", "a:\r\n  - \u2028b: 1\n    b: 2", "\xef\xbb\xbfkind: 5",
		"? a\n: b\n? [a]\n: c",
		serviceCIDRYAML("kubernetes", "10.96.0.0/12") + "---\napiVersion: v1\nkind: Node\nmetadata: {name: n1}\n" +
			"spec: {podCIDRs: [10.1.0.0/24]}\nstatus: {addresses: [{type: InternalIP, address: 10.0.0.1}]}\n",
		"apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {type: LoadBalancer, clusterIP: 10.96.0.1, externalIPs: [127.0.0.1],\n" +
			"  loadBalancerSourceRanges: [10.0.0.0/8, 10.1.0.0/16], ports: [{port: 1}]}\nstatus: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}\n",
		"apiVersion: v1\nkind: ServiceList\nitems:\n- &s\n  metadata: {name: a}\n" +
			"  spec: {clusterIP: fd00::1, ports: [{port: 1, port: 2}]}\n- <<: *s\n",
	} {
		f.Add([]byte(text), true)
		f.Add([]byte(text), false)
	}
	f.Fuzz(func(t *testing.T, text []byte, isJSON bool) {
		name := "a.yaml"
		if isJSON {
			name = "a.json"
		}
		got := decode(name, text, convert.View{})
		if !got.isComplete && len(got.problems) == 0 {
			t.Error("a part was not read and no problem is reported")
		}
		for _, object := range got.objects {
			for _, problem := range object.problems {
				if strings.ContainsAny(problem.String(), "\n\r\x1b") {
					t.Errorf("problem %q is not one line", problem)
				}
			}
			if isBad := object.value != nil && !object.isValid(); isBad {
				t.Errorf("%s %s has a value and problems %v", object.key.Kind.Name, object.key.Name, object.problems)
			}
			switch value := object.value.(type) {
			case *model.Service:
				promise.CheckService(t, value)
			case *model.EndpointSlice:
				promise.CheckSlice(t, value)
			case *model.Node:
				promise.CheckNode(t, value)
			case []netip.Prefix:
				promise.CheckServiceCIDR(t, value)
			}
		}
	})
}
