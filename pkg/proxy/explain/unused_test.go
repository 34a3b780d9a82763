package explain_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/explain"
)

// offering is a slice of default/web with one endpoint, and ports of these names.
func offering(name string, ports ...string) *model.EndpointSlice {
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

func TestASliceThatDoesNothingForAPortSaysWhy(t *testing.T) {
	names := &model.EndpointSlice{Name: model.ObjectName{Namespace: "default", Name: "names"}, Service: web().Name, Names: 2}
	crowded := offering("crowded", "http")
	crowded.Crowded = 1
	two := func(service *model.Service) {
		service.Ports = append(service.Ports, model.ServicePort{Name: "metrics", Protocol: model.TCP, Port: 9090})
	}
	dual := func(service *model.Service) {
		service.ClusterIPs = append(service.ClusterIPs, netip.MustParseAddr("fd00:96::1"))
	}
	headless := func(service *model.Service) {
		service.IsHeadless, service.ClusterIPs, service.Topology.Keys = true, nil, []policy.Key{policy.AnyNode}
	}
	for title, test := range map[string]struct {
		change func(*model.Service)
		slices []*model.EndpointSlice
		want   []string // PORT FAMILY SLICE REASON
	}{
		"all serve":          {two, []*model.EndpointSlice{offering("all", "http", "metrics")}, nil},
		"a slice for a port": {two, []*model.EndpointSlice{offering("one", "http"), offering("other", "metrics")}, nil},
		"nobody serves one of the ports": {two, []*model.EndpointSlice{offering("one", "http")},
			[]string{"metrics IPv4 default/one SliceOfOtherPorts"}},
		"a slice that serves no port beside one that does": {
			two, []*model.EndpointSlice{offering("good", "http", "metrics"), offering("bad", "web")},
			[]string{"http IPv4 default/bad SliceOfOtherPorts", "metrics IPv4 default/bad SliceOfOtherPorts"}},
		"no ports":         {nil, []*model.EndpointSlice{offering("none")}, []string{"http IPv4 default/none SliceWithoutPorts"}},
		"the other family": {nil, []*model.EndpointSlice{inIPv6(offering("six", "http"))}, []string{"http IPv4 default/six SliceOfOtherFamily"}},
		"a family is told where it is decided": {dual, []*model.EndpointSlice{offering("four", "http"), inIPv6(offering("six", "web"))},
			[]string{"http IPv6 default/six SliceOfOtherPorts"}},
		"later addresses": {dual, []*model.EndpointSlice{crowded}, []string{"http IPv4 default/crowded LaterAddresses"}},
		"names": {nil, []*model.EndpointSlice{offering("good", "http"), names},
			[]string{"http IPv4 default/names SliceOfNames"}},
		"addresses need no port": {headless, []*model.EndpointSlice{offering("none")}, []string{"http IPv4 default/none SliceWithoutPorts"}},
		"nor the names of headless ones": {headless, []*model.EndpointSlice{offering("good", "http"), names},
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
	cluster := clusterOf(offering("bad-00", "web"), web())
	for i := range 24 {
		slice := offering(fmt.Sprintf("bad-%02d", i+1), "web")
		cluster.Apply(model.Change{Slices: map[model.ObjectName]*model.EndpointSlice{slice.Name: slice}})
	}
	got := one(t, cluster)
	want := []string{"5 more EndpointSlices do nothing for this port."}
	if diff := cmp.Diff(want, got.Warnings); diff != "" || len(got.UnusedSlices) != 20 {
		t.Errorf("%d are told; warnings (-want +got):\n%s", len(got.UnusedSlices), diff)
	}
}

func TestSlicesThatListTooManyPortsAreCounted(t *testing.T) {
	var ports []string
	for i := range model.MaxOffers / 4 {
		ports = append(ports, fmt.Sprint("p", i))
	}
	cluster := clusterOf(offering("big-0", ports...), web())
	for i := range 5 {
		slice := offering(fmt.Sprintf("big-%d", i+1), ports...)
		cluster.Apply(model.Change{Slices: map[model.ObjectName]*model.EndpointSlice{slice.Name: slice}})
	}
	got := one(t, cluster)
	want := []string{"2 EndpointSlices are left out: those of a Service can list 65536 ports in sum."}
	if diff := cmp.Diff(want, got.Warnings); diff != "" || len(got.UnusedSlices) != 4 {
		t.Errorf("%d are told; warnings (-want +got):\n%s", len(got.UnusedSlices), diff)
	}
}

func TestAServiceWithoutSlicesIsTold(t *testing.T) {
	cluster := model.NewCluster("node-a")
	cluster.Apply(model.Change{Services: map[model.ObjectName]*model.Service{web().Name: web()}})
	want := []string{"No EndpointSlice in the namespace default has the label kubernetes.io/service-name=web."}
	if diff := cmp.Diff(want, one(t, cluster).Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}
