package source

import (
	"encoding/json"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// FuzzDecode feeds the decoder anything at all. It must end, and what it takes must be as package model promises.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{
		serviceYAML("web", "10.96.0.1") + "---\n" + sliceYAML("web-1", "web", "10.244.0.5"),
		`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}]}`,
		"--- # comment\n%YAML 1.1\n---\na: &a [*a]\n...\n{a: b} c", "a:\r\n  - \u2028b: 1\n    b: 2", "\xef\xbb\xbfkind: 5",
		"? a\n: b\n? [a]\n: c",
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
		got := decode(name, text)
		if !got.isComplete && len(got.problems) == 0 {
			t.Error("something was not read, and nobody is told")
		}
		for _, c := range got.claims {
			for _, problem := range c.problems {
				if strings.ContainsAny(problem.String(), "\n\r\x1b") {
					t.Errorf("problem %q is not one line", problem)
				}
			}
			if isBad := c.object != (object{}) && !c.isGood(); isBad {
				t.Errorf("%s is handed over besides problems %v", c.key, c.problems)
			}
			checkService(t, c.object.service)
			checkSlice(t, c.object.slice)
		}
	})
}

// FuzzConvertSlice turns any JSON into an EndpointSlice and converts it.
func FuzzConvertSlice(f *testing.F) {
	seed, err := json.Marshal(webSlice())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte(strings.ReplaceAll(string(seed), "8080", "70000")))
	f.Add([]byte(strings.ReplaceAll(string(seed), "10.244.0.5", "::ffff:127.0.0.1")))
	f.Fuzz(func(t *testing.T, text []byte) {
		var slice discoveryv1.EndpointSlice
		if json.Unmarshal(text, &slice) != nil {
			return
		}
		got, errs := EndpointSlice(&slice)
		if got != nil && len(errs) > 0 {
			t.Errorf("EndpointSlice() = %v besides %v", got, errs)
		}
		checkSlice(t, got)
	})
}

func checkLabel(t *testing.T, name string) {
	t.Helper()
	if messages := validation.IsDNS1123Label(name); len(messages) > 0 {
		t.Errorf("name %q: %v", name, messages)
	}
}

func checkService(t *testing.T, service *model.Service) {
	t.Helper()
	if service == nil {
		return
	}
	checkLabel(t, service.Name.Namespace)
	checkLabel(t, service.Name.Name)
	families := make(map[model.Family]bool)
	for _, addr := range service.ClusterIPs {
		if !addr.IsValid() || addr.Is4In6() || addr.Zone() != "" || addr.IsLoopback() || families[model.FamilyOf(addr)] {
			t.Errorf("ClusterIPs = %v", service.ClusterIPs)
		}
		families[model.FamilyOf(addr)] = true
	}
	seen := make(map[any]bool)
	for _, port := range service.Ports {
		number := protocolAndPort{port.Protocol, port.Port}
		if port.Port == 0 || seen[number] || seen[port.Name] {
			t.Errorf("ports = %v", service.Ports)
		}
		seen[number], seen[port.Name] = true, true
		if port.Name != "" {
			checkLabel(t, port.Name)
		}
	}
	if len(service.Ports) == 0 || len(service.ClusterIPs) == 0 {
		t.Errorf("service %v has no frontend", service)
	}
}

func checkSlice(t *testing.T, slice *model.EndpointSlice) {
	t.Helper()
	if slice == nil {
		return
	}
	checkLabel(t, slice.Name.Namespace)
	checkLabel(t, slice.Service.Name)
	if messages := validation.IsDNS1123Subdomain(slice.Name.Name); len(messages) > 0 {
		t.Errorf("slice name %q: %v", slice.Name.Name, messages)
	}
	for _, port := range slice.Ports {
		if port.Port == 0 {
			t.Errorf("ports = %v", slice.Ports)
		}
		if port.Name != "" {
			checkLabel(t, port.Name)
		}
	}
	for _, endpoint := range slice.Endpoints {
		addr := endpoint.Addr
		if !addr.IsValid() || model.FamilyOf(addr) != slice.Family || addr.Is4In6() || addr.Zone() != "" ||
			addr.IsLoopback() || addr.IsUnspecified() || addr.IsMulticast() {
			t.Errorf("endpoint %v in an %v slice", addr, slice.Family)
		}
	}
}
