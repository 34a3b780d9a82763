package manifests

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

func TestFolderDeliversServiceCIDRs(t *testing.T) {
	f := newTestFolder(t)
	for _, step := range []struct {
		desc, text string
		changed    []string
		want       string // the active ranges; empty for none
		problems   []string
	}{
		{"it appears", serviceCIDRYAML("kubernetes", "10.96.0.0/12"), []string{"ServiceCIDR kubernetes"}, "[10.96.0.0/12]", nil},
		{"a comment is added", "# hello\n" + serviceCIDRYAML("kubernetes", "10.96.0.0/12"), nil, "[10.96.0.0/12]", nil},
		{"it changes", serviceCIDRYAML("kubernetes", "10.96.0.0/16"), []string{"ServiceCIDR kubernetes"}, "[10.96.0.0/16]", nil},
		{"it is invalid", serviceCIDRYAML("kubernetes", "10.96.0.0/33"), nil, "[10.96.0.0/16]", []string{
			`a.yaml: ServiceCIDR kubernetes: spec.cidrs[0]: Invalid value: "10.96.0.0/33": ` +
				`must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)`}},
		{"it is valid again", serviceCIDRYAML("kubernetes", "10.97.0.0/16"), []string{"ServiceCIDR kubernetes"}, "[10.97.0.0/16]", nil},
		{"it is deleted", "# nothing\n", []string{"ServiceCIDR kubernetes"}, "", nil},
	} {
		f.write("a.yaml", step.text)
		if diff := cmp.Diff(step.changed, f.load()); diff != "" {
			t.Errorf("after %s, changed objects (-want +got):\n%s", step.desc, diff)
		}
		if got := f.state["ServiceCIDR kubernetes"]; got != step.want {
			t.Errorf("after %s, the ranges are %q, want %q", step.desc, got, step.want)
		}
		f.wantProblems(step.problems...)
	}
}

func TestFolderDeliversChangesOfAnyServedField(t *testing.T) {
	const plain = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  type: LoadBalancer\n  clusterIP: 10.96.0.1\n" +
		"  externalTrafficPolicy: Local\n  ports: [{port: 80, nodePort: 30080}]\n"
	f := newTestFolder(t)
	f.write("a.yaml", plain)
	f.load()
	for _, step := range []struct {
		desc, text string
	}{
		{"another node port", strings.Replace(plain, "30080", "30081", 1)},
		{"an external IP", plain + "  externalIPs: [192.0.2.1]\n"},
		{"an invalid external IP", plain + "  externalIPs: [127.0.0.1]\n"},
		{"a source range", plain + "  loadBalancerSourceRanges: [10.0.0.0/8]\n"},
		{"a health check", plain + "  healthCheckNodePort: 32000\n"},
		{"a load balancer", plain + "status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}\n"},
	} {
		for _, text := range []string{step.text, plain} {
			f.write("a.yaml", text)
			if diff := cmp.Diff([]string{"Service default/web"}, f.load()); diff != "" {
				t.Errorf("with %s and without it, changed objects (-want +got):\n%s", step.desc, diff)
			}
			f.wantProblems(skipped(text)...)
		}
	}
}

// Unknown parts count as absent, and are reported once.
func TestFolderReadsObjectsOfANewerKubernetes(t *testing.T) {
	f := newTestFolder(t)
	text := serviceYAML("web", "10.96.0.1") + "  newIn138: x\n---\n" + sliceYAML("web-1", "web", "10.244.0.1") + "newField: 3\n"
	problems := []string{
		"a.yaml: EndpointSlice default/web-1: newField: unknown field, perhaps of a newer Kubernetes; it counts as absent",
		"a.yaml: Service default/web: spec.newIn138: unknown field, perhaps of a newer Kubernetes; it counts as absent",
	}
	for _, step := range []struct {
		desc, text string
		changed    []string
	}{
		{"they appear", text, []string{"EndpointSlice default/web-1", "Service default/web"}},
		{"an endpoint moves", strings.Replace(text, "10.244.0.1", "10.244.0.2", 1), []string{"EndpointSlice default/web-1"}},
		{"a list of a newer Kubernetes follows", strings.Replace(text, "10.244.0.1", "10.244.0.2", 1) +
			"---\napiVersion: v1\nkind: List\nnewOfLists: 1\nitems: []\n", nil},
	} {
		f.write("a.yaml", step.text)
		if diff := cmp.Diff(step.changed, f.load()); diff != "" {
			t.Errorf("after %s, changed objects (-want +got):\n%s", step.desc, diff)
		}
		if len(step.changed) == 0 {
			problems = append(problems, "a.yaml: newOfLists: unknown field, perhaps of a newer Kubernetes (document at line 23); it counts "+
				"as absent")
		}
		f.wantProblems(problems...)
	}
	if len(f.folder.Rejections()) > 0 {
		t.Errorf("rejected: %v", f.folder.Rejections())
	}
}

// skipped returns the report of a folder about a Service with an invalid external IP.
func skipped(text string) []string {
	if !strings.Contains(text, "externalIPs: [127.0.0.1]") {
		return nil
	}
	return []string{`a.yaml: Service default/web: spec.externalIPs[0]: Invalid value: "127.0.0.1": ` +
		`may not be in the loopback range (127.0.0.0/8, ::1/128)`}
}

func TestFolderReadsPartlyInvalidSlices(t *testing.T) {
	slice := func(addrs ...string) string {
		text := strings.Replace(sliceYAML("web-1", "web", addrs[0]), "ports:", "PORTS:", 1)
		for _, addr := range addrs[1:] {
			text = strings.Replace(text, "PORTS:", "- addresses: ["+addr+"]\nPORTS:", 1)
		}
		return serviceYAML("web", "10.96.0.1") + "---\n" + strings.Replace(text, "PORTS:", "ports:", 1)
	}
	f := newTestFolder(t)
	for _, step := range []struct {
		desc, text string
		want       []string // the active endpoints
		problems   []string
	}{
		{"two endpoints", slice("10.244.0.5", "10.244.0.6"), []string{"10.244.0.5", "10.244.0.6"}, nil},
		{"one of them is invalid", slice("10.244.0.7", "127.0.0.1"), []string{"10.244.0.7"}, []string{
			`a.yaml: EndpointSlice default/web-1: endpoints[1].addresses[0]: Invalid value: "127.0.0.1": ` +
				`may not be in the loopback range (127.0.0.0/8, ::1/128)`}},
		{"both are invalid", slice("127.0.0.2", "127.0.0.1"), []string{"10.244.0.7"}, []string{
			`a.yaml: EndpointSlice default/web-1: endpoints[0].addresses[0]: Invalid value: "127.0.0.2": ` +
				`may not be in the loopback range (127.0.0.0/8, ::1/128)`,
			`a.yaml: EndpointSlice default/web-1: endpoints[1].addresses[0]: Invalid value: "127.0.0.1": ` +
				`may not be in the loopback range (127.0.0.0/8, ::1/128)`}},
		{"its port is invalid", strings.Replace(slice("10.244.0.8"), "8080", "70000", 1), []string{"10.244.0.7"}, []string{
			`a.yaml: EndpointSlice default/web-1: ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive`}},
		{"it is valid again", slice("10.244.0.9"), []string{"10.244.0.9"}, nil},
	} {
		f.write("a.yaml", step.text)
		f.load()
		var got []string
		for key, entry := range f.folder.applied {
			if key.Kind == convert.EndpointSlices {
				for _, endpoint := range entry.value.(*model.EndpointSlice).Endpoints {
					got = append(got, endpoint.Addr.String())
				}
			}
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("with %s, active endpoints (-want +got):\n%s", step.desc, diff)
		}
		f.wantProblems(step.problems...)
	}
}

// A folder delivers the Services with the name of its proxy, or those without the label if the proxy has no name.
func TestFolderDeliversOnlyServicesOfItsProxy(t *testing.T) {
	const labelled = "apiVersion: v1\nkind: Service\nmetadata: {name: labelled, labels: {service.kubernetes.io/service-proxy-name: mine}}\n" +
		"spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}\n"
	const other = "---\napiVersion: v1\nkind: Service\nmetadata: {name: other, labels: {service.kubernetes.io/service-proxy-name: other}}\n" +
		"spec: {clusterIP: 10.96.0.2, ports: [{port: 80}]}\n"
	const plain = "---\napiVersion: v1\nkind: Service\nmetadata: {name: plain}\nspec: {clusterIP: 10.96.0.3, ports: [{port: 80}]}\n"
	for proxyName, want := range map[string]string{"": "plain", "mine": "labelled", "another": ""} {
		f := newTestFolder(t)
		f.folder.View = convert.View{ServiceProxyName: proxyName}
		f.write("a.yaml", labelled+other+plain)
		f.load()
		var names []string
		for object, version := range f.state {
			if name, isService := strings.CutPrefix(object, "Service default/"); isService && version != "" {
				names = append(names, name)
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("the proxy with the name %q gets %q, want %q", proxyName, got, want)
		}
	}
}
