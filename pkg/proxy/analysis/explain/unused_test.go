package explain_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// sliceWithPorts returns a slice of default/web with one endpoint, and ports with these names.
func sliceWithPorts(name string, ports ...string) *model.EndpointSlice {
	slice := webSlice(endpoint("10.244.1.5", "node-a", true))
	slice.Name.Name, slice.Ports = name, nil
	for i, port := range ports {
		slice.Ports = append(slice.Ports, model.SlicePort{Name: port, Protocol: model.TCP, Port: uint16(8080 + i)})
	}
	return slice
}

func inIPv6(slice *model.EndpointSlice) *model.EndpointSlice {
	slice.Family, slice.Endpoints = model.IPv6, []model.SliceEndpoint{endpoint("fd00::5", "node-a", true)}
	return slice
}

func TestAnUnusedSliceReportsWhy(t *testing.T) {
	names := &model.EndpointSlice{Name: model.ObjectName{Namespace: "default", Name: "names"}, Service: web().Name, FQDNCount: 2}
	multiAddress := sliceWithPorts("crowded", "http")
	multiAddress.MultiAddressCount = 1
	addPort := func(service *model.Service) {
		service.Ports = append(service.Ports, model.ServicePort{Name: "metrics", Protocol: model.TCP, Port: 9090})
	}
	addIPv6 := func(service *model.Service) {
		service.ClusterIPs = append(service.ClusterIPs, netip.MustParseAddr("fd00:96::1"))
	}
	makeHeadless := func(service *model.Service) {
		service.IsHeadless, service.ClusterIPs, service.Topology.Keys = true, nil, []policy.Key{policy.AnyNode}
	}
	for title, test := range map[string]struct {
		change func(*model.Service)
		slices []*model.EndpointSlice
		want   []string // PORT FAMILY SLICE REASON
	}{
		"one slice serves all ports": {addPort, []*model.EndpointSlice{sliceWithPorts("all", "http", "metrics")}, nil},
		"one slice for each port":    {addPort, []*model.EndpointSlice{sliceWithPorts("one", "http"), sliceWithPorts("other", "metrics")}, nil},
		"no slice serves one of the ports": {addPort, []*model.EndpointSlice{sliceWithPorts("one", "http")},
			[]string{"metrics IPv4 default/one SliceOfOtherPorts"}},
		"a slice that serves no port next to one that does": {
			addPort, []*model.EndpointSlice{sliceWithPorts("good", "http", "metrics"), sliceWithPorts("bad", "web")},
			[]string{"http IPv4 default/bad SliceOfOtherPorts", "metrics IPv4 default/bad SliceOfOtherPorts"}},
		"no ports": {nil, []*model.EndpointSlice{sliceWithPorts("none")}, []string{"http IPv4 default/none SliceWithoutPorts"}},
		"the other family": {nil, []*model.EndpointSlice{inIPv6(sliceWithPorts("six", "http"))},
			[]string{"http IPv4 default/six SliceOfOtherFamily"}},
		"a slice is reported only for ports of its family": {addIPv6,
			[]*model.EndpointSlice{sliceWithPorts("four", "http"), inIPv6(sliceWithPorts("six", "web"))},
			[]string{"http IPv6 default/six SliceOfOtherPorts"}},
		"several addresses in an endpoint": {addIPv6, []*model.EndpointSlice{multiAddress}, []string{"http IPv4 default/crowded LaterAddresses"}},
		"an FQDN slice": {nil, []*model.EndpointSlice{sliceWithPorts("good", "http"), names},
			[]string{"http IPv4 default/names SliceOfNames"}},
		"a slice of a headless Service without ports": {makeHeadless, []*model.EndpointSlice{sliceWithPorts("none")},
			[]string{"http IPv4 default/none SliceWithoutPorts"}},
		"an FQDN slice of a headless Service": {makeHeadless, []*model.EndpointSlice{sliceWithPorts("good", "http"), names},
			[]string{" IPv4 default/names SliceOfNames", "http IPv4 default/names SliceOfNames"}},
	} {
		t.Run(title, func(t *testing.T) {
			service := web()
			if test.change != nil {
				test.change(service)
			}
			cluster := clusterOf(test.slices[0], service)
			for _, slice := range test.slices[1:] {
				cluster.Apply(model.Change{Slices: map[model.ObjectName]*model.EndpointSlice{slice.Name: slice}})
			}
			var got []string
			for _, port := range (explain.Clients{}).Ports(cluster, explain.Query{}) {
				for _, unused := range port.UnusedSlices {
					got = append(got, strings.Join([]string{port.Port, port.Family, unused.Slice, unused.Reason}, " "))
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("unused slices (-want +got):\n%s", diff)
			}
		})
	}
}

func TestManyUnusedSlicesAreCounted(t *testing.T) {
	cluster := clusterOf(sliceWithPorts("bad-00", "web"), web())
	for i := range 24 {
		slice := sliceWithPorts(fmt.Sprintf("bad-%02d", i+1), "web")
		cluster.Apply(model.Change{Slices: map[model.ObjectName]*model.EndpointSlice{slice.Name: slice}})
	}
	got := onlyPort(t, cluster)
	want := []string{"5 more EndpointSlices have no effect on this port."}
	if diff := cmp.Diff(want, got.Warnings); diff != "" || len(got.UnusedSlices) != 20 {
		t.Errorf("%d are reported; warnings (-want +got):\n%s", len(got.UnusedSlices), diff)
	}
}

func TestSlicesThatListTooManyPortsAreCounted(t *testing.T) {
	var ports []string
	for i := range model.MaxSlicePorts / 4 {
		ports = append(ports, fmt.Sprint("p", i))
	}
	cluster := clusterOf(sliceWithPorts("big-0", ports...), web())
	for i := range 5 {
		slice := sliceWithPorts(fmt.Sprintf("big-%d", i+1), ports...)
		cluster.Apply(model.Change{Slices: map[model.ObjectName]*model.EndpointSlice{slice.Name: slice}})
	}
	got := onlyPort(t, cluster)
	want := []string{"2 EndpointSlices are skipped: those of a Service can list at most 65536 ports in total."}
	if diff := cmp.Diff(want, got.Warnings); diff != "" || len(got.UnusedSlices) != 4 {
		t.Errorf("%d are reported; warnings (-want +got):\n%s", len(got.UnusedSlices), diff)
	}
}

func TestAServiceWithoutSlicesIsReported(t *testing.T) {
	cluster := model.NewCluster("node-a")
	cluster.Apply(model.Change{Services: map[model.ObjectName]*model.Service{web().Name: web()}})
	want := []string{"No EndpointSlice in the namespace default has the label kubernetes.io/service-name=web."}
	if diff := cmp.Diff(want, onlyPort(t, cluster).Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func TestUnusedSliceMessages(t *testing.T) {
	const named, unnamed = "http", ""
	ports := func(names ...string) (ports []model.SlicePort) {
		for i, name := range names {
			ports = append(ports, model.SlicePort{Name: name, Protocol: model.TCP, Port: uint16(8080 + i)})
		}
		return ports
	}
	newSlice := func(family model.Family, endpoints, multiAddressCount int, ports []model.SlicePort) model.EndpointSlice {
		return model.EndpointSlice{
			Name: model.ObjectName{Namespace: "t", Name: "web-1"}, Family: family, MultiAddressCount: uint16(multiAddressCount), Ports: ports,
			Endpoints: make([]model.SliceEndpoint, endpoints),
		}
	}
	byName := newSlice(model.IPv4, 0, 0, nil)
	byName.FQDNCount = 1
	headless := newSlice(model.IPv4, 1, 0, ports(named))
	headless.IsHeadless = true
	for name, test := range map[string]struct {
		slice   model.EndpointSlice
		port    string
		reason  string
		message string
	}{
		"the slice serves the port": {newSlice(model.IPv4, 2, 0, ports(named)), named, "", ""},
		"a slice without a name for its port": {newSlice(model.IPv4, 2, 0, ports(unnamed)), named, "SliceOfOtherPorts",
			"EndpointSlice t/web-1 has 2 endpoints, but no port named http/TCP; it has 8080/TCP without a name."},
		"a Service without a name for its port": {newSlice(model.IPv4, 1, 0, ports(named)), unnamed, "SliceOfOtherPorts",
			"EndpointSlice t/web-1 has 1 endpoint, but no TCP port without a name; it has http 8080/TCP."},
		"another protocol": {newSlice(model.IPv4, 1, 0, []model.SlicePort{{Name: named, Protocol: model.UDP, Port: 53}}), named,
			"SliceOfOtherPorts",
			"EndpointSlice t/web-1 has 1 endpoint, but no port named http/TCP; it has http 53/UDP."},
		"many ports": {newSlice(model.IPv4, 1, 0, ports("a", "b", "c", "d", "e", "f")), named, "SliceOfOtherPorts",
			"EndpointSlice t/web-1 has 1 endpoint, but no port named http/TCP; it has a 8080/TCP, b 8081/TCP, c 8082/TCP, d 8083/TCP and 2 more."},
		"no ports": {newSlice(model.IPv4, 3, 0, nil), named, "SliceWithoutPorts",
			"EndpointSlice t/web-1 has 3 endpoints, but no ports, which does not mean every port."},
		"an FQDN slice": {byName, named, "SliceOfNames", "EndpointSlice t/web-1 has 1 endpoint, " +
			"but by name (addressType FQDN), and a proxy sends connections only to addresses."},
		"the other family": {newSlice(model.IPv6, 2, 0, ports(named)), named, "SliceOfOtherFamily",
			"EndpointSlice t/web-1 has 2 IPv6 endpoints, but the Service has no IPv6 address, only IPv4."},
		"two addresses in one endpoint": {newSlice(model.IPv4, 2, 1, ports(named)), named, "LaterAddresses", "EndpointSlice t/web-1 has " +
			"an endpoint with more than one address, and only the first one is used; another endpoint needs an entry of its own."},
		"two addresses in each": {newSlice(model.IPv4, 2, 2, ports(named)), named, "LaterAddresses", "EndpointSlice t/web-1 has " +
			"2 endpoints with more than one address, and only the first one of each is used; another endpoint needs an entry of its own."},
		"the label of headless Services": {headless, named,
			"SliceOfHeadless", "EndpointSlice t/web-1 has 1 endpoint, but the label service.kubernetes.io/headless, " +
				"so no proxy reads it."},
		"an empty slice": {newSlice(model.IPv4, 0, 0, nil), named, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := explain.UnusedReason(&test.slice, webPort(test.port, model.TCP))
			want := explain.UnusedSlice{Reason: test.reason, Message: test.message}
			if want.Reason != "" {
				want.Slice, want.Endpoints = "t/web-1", max(len(test.slice.Endpoints), int(test.slice.FQDNCount))
			}
			if got != want {
				t.Errorf("got\n%+v, want\n%+v", got, want)
			}
		})
	}
}

// webPort returns a decision about a port of a Service with an IPv4 address.
func webPort(name string, protocol model.Protocol) selection.Decision {
	return selection.Decision{
		Service: &model.Service{ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}},
		Port:    model.ServicePort{Name: name, Protocol: protocol, Port: 80}, Family: model.IPv4,
	}
}

func TestAPortIsFoundByNameAndProtocolAmongMany(t *testing.T) {
	slice := model.EndpointSlice{Endpoints: make([]model.SliceEndpoint, 1)}
	for i := range 1000 {
		slice.Ports = append(slice.Ports, model.SlicePort{Name: fmt.Sprint("p", i), Protocol: model.TCP, Port: uint16(i + 1)})
	}
	if got := explain.UnusedReason(&slice, webPort("p999", model.TCP)); got != (explain.UnusedSlice{}) {
		t.Errorf("got %+v, want none: a port with this name and protocol exists", got)
	}
	if got := explain.UnusedReason(&slice, webPort("p999", model.UDP)); got.Reason != "SliceOfOtherPorts" {
		t.Errorf("got %+v, want SliceOfOtherPorts: no port has this protocol", got)
	}
}
