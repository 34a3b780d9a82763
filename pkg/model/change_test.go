package model

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// versionedNode returns a node for the tests of Merge, with its version in a label.
func versionedNode(version string) *Node {
	return &Node{Name: "node-1", Labels: map[string]string{"version": version}}
}

func TestMerge(t *testing.T) {
	web, db := named("web"), named("db")
	first, second := serviceNamed("web"), serviceNamed("web")
	slice := sliceFor("web-1", "web")
	tests := map[string]struct{ earlier, later, want Change }{
		"two empty changes": {Change{}, Change{}, Change{}},
		"changes of different objects": {
			earlier: Change{Services: map[ObjectName]*Service{web: first}},
			later:   Change{Slices: map[ObjectName]*EndpointSlice{slice.Name: slice}, Nodes: map[string]*Node{"node-1": versionedNode("1")}},
			want: Change{
				Services: map[ObjectName]*Service{web: first},
				Slices:   map[ObjectName]*EndpointSlice{slice.Name: slice},
				Nodes:    map[string]*Node{"node-1": versionedNode("1")},
			},
		},
		"two versions of one object: the later one": {
			earlier: Change{Nodes: map[string]*Node{"node-1": versionedNode("1")}},
			later:   Change{Nodes: map[string]*Node{"node-1": versionedNode("2")}},
			want:    Change{Nodes: map[string]*Node{"node-1": versionedNode("2")}},
		},
		"an object that is deleted later": {
			earlier: Change{Services: map[ObjectName]*Service{web: first, db: nil}},
			later:   Change{Services: map[ObjectName]*Service{web: nil}},
			want:    Change{Services: map[ObjectName]*Service{web: nil, db: nil}},
		},
		"an object that is recreated later": {
			earlier: Change{Services: map[ObjectName]*Service{web: nil}},
			later:   Change{Services: map[ObjectName]*Service{web: second}},
			want:    Change{Services: map[ObjectName]*Service{web: second}},
		},
		"ServiceCIDRs are merged by object, with the later version of each": {
			earlier: Change{ServiceCIDRs: map[string][]netip.Prefix{"kubernetes": prefixes("10.96.0.0/16"), "more": prefixes("10.97.0.0/16")}},
			later:   Change{ServiceCIDRs: map[string][]netip.Prefix{"more": nil, "new": prefixes("fd00:96::/112")}},
			want: Change{ServiceCIDRs: map[string][]netip.Prefix{
				"kubernetes": prefixes("10.96.0.0/16"), "more": nil, "new": prefixes("fd00:96::/112"),
			}},
		},
		"the later list of local addresses replaces the earlier one": {
			earlier: Change{LocalAddrs: addrs("192.0.2.10 192.0.2.11")},
			later:   Change{LocalAddrs: addrs("192.0.2.11")},
			want:    Change{LocalAddrs: addrs("192.0.2.11")},
		},
		"nil local addresses keep the earlier list": {
			earlier: Change{LocalAddrs: addrs("192.0.2.10")},
			later:   Change{Nodes: map[string]*Node{"node-1": versionedNode("1")}},
			want:    Change{LocalAddrs: addrs("192.0.2.10"), Nodes: map[string]*Node{"node-1": versionedNode("1")}},
		},
		"the later backlog of measured demand replaces the earlier one": {
			earlier: Change{DemandBacklog: &DemandBacklog{Waiting: 1}},
			later:   Change{DemandBacklog: &DemandBacklog{Waiting: 2}},
			want:    Change{DemandBacklog: &DemandBacklog{Waiting: 2}},
		},
		"an empty list of local addresses replaces the earlier one": {
			earlier: Change{LocalAddrs: addrs("192.0.2.10")},
			later:   Change{LocalAddrs: []netip.Addr{}},
			want:    Change{LocalAddrs: []netip.Addr{}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			earlierBefore, laterBefore := Change{}.Merge(test.earlier), Change{}.Merge(test.later)
			got := test.earlier.Merge(test.later)
			if diff := cmp.Diff(Change{}.Merge(test.want), got, compareAddrs); diff != "" {
				t.Errorf("merged change (-want +got):\n%s", diff)
			}
			if got.IsEmpty() != test.want.IsEmpty() {
				t.Errorf("the merged change is empty: %v, want %v", got.IsEmpty(), test.want.IsEmpty())
			}
			if diff := cmp.Diff(earlierBefore, Change{}.Merge(test.earlier), compareAddrs); diff != "" {
				t.Errorf("Merge modified the earlier change (-before +after):\n%s", diff)
			}
			if diff := cmp.Diff(laterBefore, Change{}.Merge(test.later), compareAddrs); diff != "" {
				t.Errorf("Merge modified the later change (-before +after):\n%s", diff)
			}
		})
	}
}

func TestIsEmpty(t *testing.T) {
	tests := map[string]struct {
		change Change
		want   bool
	}{
		"no maps":                          {Change{}, true},
		"maps without entries":             {Change{Services: map[ObjectName]*Service{}, Nodes: map[string]*Node{}}, true},
		"a deleted Service":                {Change{Services: map[ObjectName]*Service{named("web"): nil}}, false},
		"a deleted slice":                  {Change{Slices: map[ObjectName]*EndpointSlice{named("web-1"): nil}}, false},
		"a new node":                       {Change{Nodes: map[string]*Node{"node-1": versionedNode("1")}}, false},
		"a new Service":                    {Change{Services: map[ObjectName]*Service{named("web"): serviceNamed("web")}}, false},
		"a deleted ServiceCIDR":            {Change{ServiceCIDRs: map[string][]netip.Prefix{"kubernetes": nil}}, false},
		"local addresses":                  {Change{LocalAddrs: addrs("192.0.2.10")}, false},
		"an empty list of local addresses": {Change{LocalAddrs: []netip.Addr{}}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.change.IsEmpty(); got != test.want {
				t.Errorf("IsEmpty is %v, want %v", got, test.want)
			}
		})
	}
}
