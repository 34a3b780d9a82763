package manifests

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// serviceYAML returns a minimal valid Service.
func serviceYAML(name, clusterIP string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata:\n  name: %s\n"+
		"spec:\n  clusterIP: %s\n  ports:\n  - port: 80\n", name, clusterIP)
}

// sliceYAML returns a minimal valid EndpointSlice.
func sliceYAML(name, service, addr string) string {
	return fmt.Sprintf("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: %s\n  labels:\n"+
		"    kubernetes.io/service-name: %s\naddressType: IPv4\nendpoints:\n- addresses: [%s]\nports:\n- port: 8080\n", name, service, addr)
}

// serviceCIDRYAML returns a minimal ServiceCIDR with one range.
func serviceCIDRYAML(name, cidr string) string {
	return fmt.Sprintf("apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata:\n  name: %s\nspec:\n  cidrs: [%q]\n", name, cidr)
}

// listed returns the valid objects of a manifest, and its problems.
func listed(m contents) (objects, problems []string) {
	for _, p := range m.problems {
		problems = append(problems, p.String())
	}
	for _, c := range m.objects {
		if c.isValid() {
			objects = append(objects, c.key.Problem("", "", "").Object())
		}
		for _, p := range c.problems {
			problems = append(problems, p.String())
		}
	}
	return objects, problems
}

func TestDecodeKubectlOutput(t *testing.T) {
	text, err := os.ReadFile("testdata/kubectl-get.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got := decode("all.yaml", text, convert.View{})
	web := model.ObjectName{Namespace: "shop", Name: "web"}
	slice := model.ObjectName{Namespace: "shop", Name: "web-x7k2p"}
	gate := model.ObjectName{Namespace: "shop", Name: "gate"}
	serviceCIDRs := prefixes("10.96.0.0/12", "fd00:96::/108")
	inventory := convert.Inventory{
		{APIVersion: "v1", Kind: "Service"}: 2, {APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}: 1,
		{APIVersion: "v1", Kind: "Node"}: 1, {APIVersion: "networking.k8s.io/v1", Kind: "ServiceCIDR"}: 1,
	}
	want := contents{isComplete: true, inventory: inventory, objects: []objectVersion{
		{key: convert.ObjectKey{Kind: convert.Services, Name: web}, value: &model.Service{
			Name: web, Created: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), ClusterIPs: addrs("10.96.0.10"),
			Ports:    []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
			Topology: policy.Topology{Keys: []policy.Key{"topology.kubernetes.io/zone", policy.AnyNode}},
		}},
		{key: convert.ObjectKey{Kind: convert.EndpointSlices, Name: slice}, value: &model.EndpointSlice{
			Name: slice, Service: web, Family: model.IPv4,
			Ports: []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: 8080}},
			Endpoints: []model.SliceEndpoint{{Addr: addrs("10.244.1.5")[0], Endpoint: model.Endpoint{
				Node: "n1", Zone: "a", Ready: true, Serving: true, HintZones: []string{"a"}}}},
		}},
		{key: convert.ObjectKey{Kind: convert.Nodes, Name: model.ObjectName{Name: "n1"}}, value: &model.Node{
			Name: "n1", Labels: map[string]string{"kubernetes.io/hostname": "n1", "topology.kubernetes.io/zone": "a"},
			Addresses: addrs("172.18.0.2"), PodCIDRs: prefixes("10.244.1.0/24")}},
		{key: convert.ObjectKey{Kind: convert.Services, Name: gate}, value: &model.Service{
			Name: gate, Created: time.Date(2026, 3, 1, 12, 5, 0, 0, time.UTC), ClusterIPs: addrs("10.96.0.11", "fd00:96::b"),
			Ports:           []model.ServicePort{{Name: "https", Protocol: model.TCP, Port: 443, NodePort: 30443}},
			ExternalIPs:     addrs("198.51.100.7"),
			LoadBalancerIPs: addrs("192.0.2.11", "2001:db8::b"),
			SourceRanges:    prefixes("10.0.0.0/8", "203.0.113.0/24"), HealthCheckNodePort: 31943, ExternalTrafficLocal: true,
		}},
		{key: convert.ObjectKey{Kind: convert.ServiceCIDRs, Name: model.ObjectName{Name: "kubernetes"}}, value: serviceCIDRs},
	}}
	sameKind := cmp.Comparer(func(a, b *convert.Kind) bool { return a == b })
	options := cmp.Options{equateValues, cmp.AllowUnexported(contents{}, objectVersion{}), sameKind}
	if diff := cmp.Diff(want, got, options); diff != "" {
		t.Errorf("decode() (-want +got):\n%s", diff)
	}
}

func TestDecodeFindsEveryObjectOfAFile(t *testing.T) {
	one, two := serviceYAML("one", "10.96.0.1"), serviceYAML("two", "10.96.0.2")
	const item = `{"metadata":{"name":"NAME"},"spec":{"clusterIP":"10.96.0.1","ports":[{"port":80}]}}`
	bare := strings.Replace(item, "NAME", "one", 1)
	typed := `{"apiVersion":"v1","kind":"Service",` + bare[1:]
	for name, test := range map[string]struct {
		file, text string
		want       []string
	}{
		"an empty file":             {"a.yaml", "", nil},
		"only comments and markers": {"a.yaml", "# nothing\n---\n# here\n---\n...\n", nil},
		"two documents":             {"a.yaml", one + "---\n" + two, []string{"Service default/one", "Service default/two"}},
		"two documents with CRLF": {"a.yml", strings.ReplaceAll(one+"---\n"+two, "\n", "\r\n"),
			[]string{"Service default/one", "Service default/two"}},
		"two documents with CR": {"a.yml", strings.ReplaceAll(one+"---\n"+two, "\n", "\r"),
			[]string{"Service default/one", "Service default/two"}},
		"a document with an end marker": {"a.yaml", one + "...\n" + two, []string{"Service default/one", "Service default/two"}},
		"a directive and comments": {"a.yaml", "%YAML 1.1\n--- # first\n" + one + "---\t# second\n" + two,
			[]string{"Service default/one", "Service default/two"}},
		"a byte order mark": {"a.yaml", "\xef\xbb\xbf" + one, []string{"Service default/one"}},
		"a marker inside an indented block": {"a.yaml", strings.Replace(one, "metadata:\n",
			"metadata:\n  annotations:\n    a: |\n      ---\n      b\n", 1), []string{"Service default/one"}},
		"JSON": {"a.json", typed, []string{"Service default/one"}},
		"a stream of JSON": {"a.json", typed + "\n" + strings.Replace(typed, "one", "two", 1) + "null",
			[]string{"Service default/one", "Service default/two"}},
		"JSON with tabs in a YAML file": {"a.yaml", "# JSON\n" + strings.ReplaceAll(typed, ",", ",\n\t"), []string{"Service default/one"}},
		"a ServiceList without kinds": {"a.json",
			`{"apiVersion":"v1","kind":"ServiceList","metadata":{"resourceVersion":"1"},"items":[` + bare + `]}`,
			[]string{"Service default/one"}},
		"a NodeList": {"a.json", `{"apiVersion":"v1","kind":"NodeList","items":[{"metadata":{"name":"n1"}}]}`,
			[]string{"Node n1"}},
		"an EndpointSliceList": {"a.json", `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSliceList","items":[` +
			`{"metadata":{"name":"s","namespace":"x"},"addressType":"IPv4"}]}`, []string{"EndpointSlice x/s"}},
		"a ServiceCIDRList": {"a.json", `{"apiVersion":"networking.k8s.io/v1","kind":"ServiceCIDRList","items":[` +
			`{"metadata":{"name":"kubernetes"},"spec":{"cidrs":["10.96.0.0/12"]}}]}`, []string{"ServiceCIDR kubernetes"}},
		"lists in lists": {"a.json", `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"List","items":[` + typed + `]},` +
			`{"apiVersion":"v1","kind":"ServiceList","items":[` + strings.Replace(bare, "one", "two", 1) + `]}]}`,
			[]string{"Service default/one", "Service default/two"}},
		"other kinds, regardless of content": {"a.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: 5\n---\n" +
			"apiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSlice\nitems: x\n---\napiVersion: v1\nkind: ConfigMap\na: 1\na: 2\n", nil},
		"anchors and merged mappings": {"a.yaml", "apiVersion: v1\nkind: List\nitems:\n- &one\n  " +
			strings.ReplaceAll(strings.TrimSpace(one), "\n", "\n  ") +
			"\n- <<: *one\n  metadata: {name: two}\n", []string{"Service default/one", "Service default/two"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := decode(test.file, []byte(test.text), convert.View{})
			objects, problems := listed(got)
			if diff := cmp.Diff(test.want, objects); diff != "" || len(problems) > 0 || !got.isComplete {
				t.Errorf("complete: %v, problems: %q, objects (-want +got):\n%s", got.isComplete, problems, diff)
			}
		})
	}
}

func TestDecodeSkipsOnlyInvalidParts(t *testing.T) {
	good := serviceYAML("good", "10.96.0.1")
	bad := serviceYAML("bad", "10.96.0.2")
	const goodJSON = `{"apiVersion":"v1","kind":"Service","metadata":{"name":"good"},"spec":{"clusterIP":"10.96.0.1","ports":[{"port":80}]}}`
	inList := func(text string) string {
		return "- " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
	}
	list := func(items ...string) string { return "apiVersion: v1\nkind: List\nitems:\n" + strings.Join(items, "") }
	for name, test := range map[string]struct {
		file, text string
		want       []string // in addition to "Service default/good", unless empty
		complete   bool
	}{
		"an unknown field": {"a.yaml", good + "---\n" + bad + "  port: 8\n",
			[]string{`a.yaml: Service default/bad: spec.port: unknown field; did you mean spec.ports?`}, true},
		"a field in the wrong case": {"a.yaml", good + "---\n" + strings.Replace(bad, "clusterIP", "clusterIp", 1),
			[]string{`a.yaml: Service default/bad: spec.clusterIp: unknown field; did you mean spec.clusterIP?`}, true},
		"a field set twice": {"a.yaml", good + "---\n" + bad + "  - port: 8\n    port: 9\n",
			[]string{`a.yaml: Service default/bad: spec.ports[1].port: duplicate field`}, true},
		"a field set twice in a list": {"a.yaml", list(inList(good), inList(bad+"  - port: 8\n    port: 9\n")),
			[]string{`a.yaml: Service default/bad: spec.ports[1].port: duplicate field`}, true},
		"a field set twice in JSON": {"a.json", goodJSON + strings.Replace(strings.Replace(goodJSON, "good",
			"bad", 1), `"port":80`, `"port":80,"port":81`, 1),
			[]string{`a.json: Service default/bad: spec.ports[0].port: duplicate field`}, true},
		"a value of the wrong type": {"a.yaml", good + "---\n" + strings.Replace(bad, "port: 80", "port: http", 1),
			[]string{`a.yaml: Service default/bad: spec.ports.port: must be int32, not string`}, true},
		"a number that overflows": {"a.yaml", good + "---\n" + strings.Replace(bad, "port: 80", "port: 99999999999", 1),
			[]string{`a.yaml: Service default/bad: spec.ports.port: must be int32, not number 99999999999`}, true},
		"an invalid value": {"a.yaml", good + "---\n" + strings.Replace(bad, "port: 80", "port: 70000", 1),
			[]string{`a.yaml: Service default/bad: spec.ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive`}, true},
		"an invalid range": {"a.yaml", good + "---\n" + serviceCIDRYAML("bad", "10.96.0.1/12"),
			[]string{`a.yaml: ServiceCIDR bad: spec.cidrs[0]: Invalid value: "10.96.0.1/12": ` +
				`must not have bits set beyond the prefix length`}, true},
		"a namespace on a cluster-scoped object": {"a.yaml", good + "---\n" +
			strings.Replace(serviceCIDRYAML("bad", "10.96.0.0/12"), "name: bad", "name: bad\n  namespace: default", 1),
			[]string{`a.yaml: ServiceCIDR bad: metadata.namespace: Forbidden: not allowed on this type`}, true},
		"a name with control characters": {"a.yaml", good + "---\n" + strings.Replace(bad, "name: bad", `name: "b\na"`, 1),
			[]string{`a.yaml: Service default/b\na: metadata.name: Invalid value: "b\na": ` +
				`a lowercase RFC 1123 label must consist of lower case alphanumeric ` +
				`characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', ` +
				`regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`}, true},
		"a document that is not YAML": {"a.yaml", good + "---\nkind: Service\n\tname: bad\n",
			[]string{`a.yaml: line 11: found a tab character that violates indentation`}, false},
		"a document that is not YAML before a valid one": {"a.yaml", "a: [\n---\n" + good,
			[]string{`a.yaml: line 2: did not find expected node content`}, false},
		"a list in the wrong place": {"a.yaml", good + "---\nx: 1\na:\n  - b\n c: 2\n",
			[]string{`a.yaml: line 13: did not find expected key`}, false},
		"a bracket that never closes": {"a.yaml", good + "---\na: [1,\nb: 2\n\nc: 3\n",
			[]string{`a.yaml: line 10: the value begins with "[", which means something else in YAML; quote it, or close the bracket`}, false},
		"text after a document": {"a.yaml", good + "---\n{kind: Service}\n{kind: Service}\n",
			[]string{`a.yaml: line 9: text after the end of the document`}, false},
		"truncated JSON": {"a.json", goodJSON + "\n{\"kind\":\n\n",
			[]string{`a.json: line 4: unexpected EOF`}, false},
		"invalid JSON": {"a.json", goodJSON + "\n{kind}",
			[]string{`a.json: line 2: invalid character 'k' looking for beginning of object key string`}, false},
		"a document that is not an object": {"a.yaml", good + "---\n- a\n",
			[]string{`a.yaml: must be a Kubernetes object, with apiVersion, kind and metadata (document at line 9)`}, false},
		"no kind": {"a.yaml", good + "---\napiVersion: v1\n",
			[]string{`a.yaml: kind: Required value (document at line 9)`}, false},
		"no apiVersion": {"a.yaml", good + "---\nkind: Service\n",
			[]string{`a.yaml: Service in the document at line 9: apiVersion: Required value`}, false},
		"no name": {"a.yaml", list(inList(good), inList(strings.Replace(bad, "name: bad", "generateName: bad", 1))),
			[]string{`a.yaml: Service in the document at line 1: items[1].metadata.name: Required value`}, false},
		"a name of the wrong type": {"a.yaml", good + "---\n" + strings.Replace(bad, "name: bad", "name: 5", 1),
			[]string{`a.yaml: Service in the document at line 9: metadata.name: must be string, not number`}, false},
		"an unknown field of a list": {"a.yaml", list(inList(good)) + "item: []\n",
			[]string{`a.yaml: item: unknown field; did you mean items? (document at line 1)`}, false},
		"a typo, next to a field of a newer Kubernetes": {"a.yaml",
			good + "---\n" + bad + "  newIn138: 1\n  loadBalancerSourceRange: []\n",
			[]string{`a.yaml: Service default/bad: spec.loadBalancerSourceRange: unknown field; did you mean spec.loadBalancerSourceRanges?`}, true},
		"items set twice": {"a.yaml", "apiVersion: v1\nkind: List\nitems: []\nitems:\n" + inList(good),
			[]string{`a.yaml: items: duplicate field (document at line 1)`}, false},
		"an empty item": {"a.yaml", list(inList(good), "-\n"),
			[]string{`a.yaml: items[1]: must be a Kubernetes object, with apiVersion, kind and metadata (document at line 1)`}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := decode(test.file, []byte(test.text), convert.View{})
			objects, problems := listed(got)
			if diff := cmp.Diff([]string{"Service default/good"}, objects); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.want, problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if got.isComplete != test.complete {
				t.Errorf("complete = %v, want %v", got.isComplete, test.complete)
			}
		})
	}
}

func TestDecodeSurvivesHostileFiles(t *testing.T) {
	bomb := "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := range 9 {
		bomb += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 10), ","))
	}
	nested := `{"apiVersion":"v1","kind":"List","items":[`
	for name, test := range map[string]struct{ file, text, want string }{
		"aliases of aliases":   {"a.yaml", bomb, `a.yaml: line 1: document contains excessive aliasing`},
		"nested brackets":      {"a.yaml", "a: " + strings.Repeat("[", 100_000), `a.yaml: line 1: exceeded max depth of 10000`},
		"nested JSON brackets": {"a.json", strings.Repeat("[", 100_000), `a.json: line 1: invalid character '[' exceeded max depth`},
		"nested lists": {"a.json", strings.Repeat(nested, 1000) + strings.Repeat("]}", 1000),
			`a.json: items[0]` + strings.Repeat(".items[0]", 7) + `: lists are nested more than 8 deep (document at line 1)`},
		"many fields set twice": {"a.yaml", "apiVersion: v1\nkind: List\nitems: [" +
			strings.Repeat("{a: 1, a: 2},", 2000) + "]", `a.yaml: line 1: more than 1000 fields are set twice`},
		"UTF-16":                  {"a.yaml", "\xff\xfek\x00", `a.yaml: the file is UTF-16; save it as UTF-8`},
		"an anchor of itself":     {"a.yaml", "a: &a [*a]\n", `a.yaml: line 1: anchor 'a' value contains itself`},
		"bytes that are not text": {"a.yaml", "a: \x00\x01\n", `a.yaml: line 1: control characters are not allowed`},
	} {
		t.Run(name, func(t *testing.T) {
			got := decode(test.file, []byte(test.text), convert.View{})
			_, problems := listed(got)
			if len(problems) != 1 || !strings.HasPrefix(problems[0], test.want) || got.isComplete {
				t.Errorf("problems = %q, complete = %v; want %q", problems, got.isComplete, test.want)
			}
		})
	}
}

func TestProblemIsOneShortLine(t *testing.T) {
	name := model.ObjectName{Namespace: "x", Name: "\x1b[31m"}
	got := convert.ObjectKey{Kind: convert.Services, Name: name}.Problem("a\n.yaml", "f", strings.Repeat("ü", 2000)).String()
	want := `a\n.yaml: Service x/\x1b[31m: f: ` + strings.Repeat("ü", 500) + "..."
	if got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
}
