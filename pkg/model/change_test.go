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

func TestThen(t *testing.T) {
	web, db := named("web"), named("db")
	first, second := serviceNamed("web"), serviceNamed("web")
	slice := sliceFor("web-1", "web")
	tests := map[string]struct{ earlier, later, want Change }{
		"nothing and then nothing is nothing": {Change{}, Change{}, Change{}},
		"changes of different objects are both there": {
			earlier: Change{Services: map[ObjectName]*Service{web: first}},
			later:   Change{Slices: map[ObjectName]*EndpointSlice{slice.Name: slice}, Nodes: map[string]*Node{"node-1": versionedNode("1")}},
			want: Change{
				Services: map[ObjectName]*Service{web: first},
				Slices:   map[ObjectName]*EndpointSlice{slice.Name: slice},
				Nodes:    map[string]*Node{"node-1": versionedNode("1")},
			},
		},
		"of one object, the later version counts": {
			earlier: Change{Nodes: map[string]*Node{"node-1": versionedNode("1")}},
			later:   Change{Nodes: map[string]*Node{"node-1": versionedNode("2")}},
			want:    Change{Nodes: map[string]*Node{"node-1": versionedNode("2")}},
		},
		"what goes later is gone": {
			earlier: Change{Services: map[ObjectName]*Service{web: first, db: nil}},
			later:   Change{Services: map[ObjectName]*Service{web: nil}},
			want:    Change{Services: map[ObjectName]*Service{web: nil, db: nil}},
		},
		"what comes back later is there": {
			earlier: Change{Services: map[ObjectName]*Service{web: nil}},
			later:   Change{Services: map[ObjectName]*Service{web: second}},
			want:    Change{Services: map[ObjectName]*Service{web: second}},
		},
		"ServiceCIDRs are united by object, and the later version of each counts": {
			earlier: Change{ServiceCIDRs: map[string][]netip.Prefix{"kubernetes": prefixes("10.96.0.0/16"), "more": prefixes("10.97.0.0/16")}},
			later:   Change{ServiceCIDRs: map[string][]netip.Prefix{"more": nil, "new": prefixes("fd00:96::/112")}},
			want: Change{ServiceCIDRs: map[string][]netip.Prefix{
				"kubernetes": prefixes("10.96.0.0/16"), "more": nil, "new": prefixes("fd00:96::/112"),
			}},
		},
		"of the local addresses, the later list counts and not the earlier one": {
			earlier: Change{LocalAddrs: addrs("192.0.2.10 192.0.2.11")},
			later:   Change{LocalAddrs: addrs("192.0.2.11")},
			want:    Change{LocalAddrs: addrs("192.0.2.11")},
		},
		"nothing new about local addresses leaves the earlier list": {
			earlier: Change{LocalAddrs: addrs("192.0.2.10")},
			later:   Change{Nodes: map[string]*Node{"node-1": versionedNode("1")}},
			want:    Change{LocalAddrs: addrs("192.0.2.10"), Nodes: map[string]*Node{"node-1": versionedNode("1")}},
		},
		"a machine that lost its last address has none, which is not the same as nothing new": {
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
				t.Errorf("both together differ (-want +got):\n%s", diff)
			}
			if got.IsEmpty() != test.want.IsEmpty() {
				t.Errorf("both together are empty: %v, want %v", got.IsEmpty(), test.want.IsEmpty())
			}
			if diff := cmp.Diff(earlierBefore, Change{}.Merge(test.earlier), compareAddrs); diff != "" {
				t.Errorf("the earlier change was written to (-before +after):\n%s", diff)
			}
			if diff := cmp.Diff(laterBefore, Change{}.Merge(test.later), compareAddrs); diff != "" {
				t.Errorf("the later change was written to (-before +after):\n%s", diff)
			}
		})
	}
}

func TestAChangeIsEmptyOnlyIfItNamesNothing(t *testing.T) {
	tests := map[string]struct {
		change Change
		want   bool
	}{
		"no maps":                 {Change{}, true},
		"maps without entries":    {Change{Services: map[ObjectName]*Service{}, Nodes: map[string]*Node{}}, true},
		"a Service that went":     {Change{Services: map[ObjectName]*Service{named("web"): nil}}, false},
		"a slice that went":       {Change{Slices: map[ObjectName]*EndpointSlice{named("web-1"): nil}}, false},
		"a node that came":        {Change{Nodes: map[string]*Node{"node-1": versionedNode("1")}}, false},
		"a Service that is new":   {Change{Services: map[ObjectName]*Service{named("web"): serviceNamed("web")}}, false},
		"a ServiceCIDR that went": {Change{ServiceCIDRs: map[string][]netip.Prefix{"kubernetes": nil}}, false},
		"local addresses":         {Change{LocalAddrs: addrs("192.0.2.10")}, false},
		"the word that there is no local address any more": {Change{LocalAddrs: []netip.Addr{}}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.change.IsEmpty(); got != test.want {
				t.Errorf("IsEmpty is %v, want %v", got, test.want)
			}
		})
	}
}
