package ruleset_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// nodeStateWith returns a node state with the given addresses and ServiceCIDRs.
func nodeStateWith(addrs []string, serviceCIDRs []netip.Prefix) ruleset.NodeState {
	state := ruleset.NodeState{ServiceCIDRs: serviceCIDRs}
	for _, addr := range addrs {
		state.NodePortAddrs = append(state.NodePortAddrs, netip.MustParseAddr(addr))
	}
	return state
}

func TestPlansOfNodeState(t *testing.T) {
	initialAddrs := []string{"192.168.0.1", "fd00:168::1"}
	wider := append(initialNodeState.ServiceCIDRs[:2:2], prefixes("fd00:97::/112")...)
	for name, test := range map[string]struct {
		around ruleset.NodeState
		plan   []string
	}{
		"nothing changes": {nodeStateWith(initialAddrs, initialNodeState.ServiceCIDRs), nil},
		"an address is added: its element": {
			nodeStateWith([]string{"192.168.0.1", "192.168.0.2", "fd00:168::1"}, initialNodeState.ServiceCIDRs),
			[]string{"+ nodeport-ips: 192.168.0.2"},
		},
		"an address is removed: its element": {
			nodeStateWith(initialAddrs[:1], initialNodeState.ServiceCIDRs), []string{"ip6 - nodeport-ips: fd00:168::1"},
		},
		"addresses change in both families": {nodeStateWith([]string{"192.168.0.9", "fd00:168::9"}, initialNodeState.ServiceCIDRs), []string{
			"- nodeport-ips: 192.168.0.1", "ip6 - nodeport-ips: fd00:168::1", "+ nodeport-ips: 192.168.0.9", "ip6 + nodeport-ips: fd00:168::9",
		}},
		"all addresses are removed": {nodeStateWith(nil, initialNodeState.ServiceCIDRs), []string{
			"- nodeport-ips: 192.168.0.1", "ip6 - nodeport-ips: fd00:168::1",
		}},
		"a ServiceCIDR is added: one chain of its family": {
			nodeStateWith(initialAddrs, wider), []string{"ip6 0 chain nat-postrouting", "ip6 + rules of nat-postrouting"},
		},
		"the ServiceCIDRs are removed: that chain in both families": {nodeStateWith(initialAddrs, nil), []string{
			"0 chain nat-postrouting", "+ rules of nat-postrouting", "ip6 0 chain nat-postrouting", "ip6 + rules of nat-postrouting",
		}},
		"addresses and ServiceCIDRs change": {nodeStateWith(initialAddrs[1:], initialNodeState.ServiceCIDRs[1:]), []string{
			"- nodeport-ips: 192.168.0.1", "0 chain nat-postrouting", "+ rules of nat-postrouting",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, someServices()...)
			plan := r.changeNodeState(t, test.around)
			if diff := cmp.Diff(test.plan, planned(plan)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.around, r.mirror.NodeState(), comparePorts); diff != "" {
				t.Errorf("the mirror's node state (-want +got):\n%s", diff)
			}
			if again := planned(r.plan()); again != nil {
				t.Errorf("a second plan is not empty: %v", again)
			}
			var fresh ruleset.Tables
			_, full := ruleset.PlanFullSync(bothFamilies, someServices(), test.around, nil)
			mustApply(t, &fresh, full.Batch)
			if diff := cmp.Diff(text(t, &fresh), text(t, &r.Tables)); diff != "" {
				t.Errorf("tables (-full sync +plan):\n%s", diff)
			}
		})
	}
}

// TestNodeStateOfAPlanThatIsNotAccepted: the node state is planned again.
func TestNodeStateOfAPlanThatIsNotAccepted(t *testing.T) {
	r := start(t)
	elsewhere := nodeStateWith([]string{"192.168.0.9"}, prefixes("10.97.0.0/16"))
	once := planned(r.mirror.Plan(nil, elsewhere))
	if again := planned(r.mirror.Plan(nil, elsewhere)); len(once) == 0 || cmp.Diff(once, again) != "" {
		t.Errorf("first plan %v, second plan %v", once, again)
	}
	if diff := cmp.Diff(initialNodeState, r.mirror.NodeState(), comparePorts); diff != "" {
		t.Errorf("the mirror's node state (-want +got):\n%s", diff)
	}
}

// TestAServiceAndTheNodeStateChangeInOnePlan: neither change waits for the other.
func TestAServiceAndTheNodeStateChangeInOnePlan(t *testing.T) {
	r := start(t)
	r.nodeState = nodeStateWith([]string{"192.168.0.1", "192.168.0.2", "fd00:168::1"}, initialNodeState.ServiceCIDRs)
	plan := r.change(t, everyKindWith(podsOnNode2(1))...)
	added := map[string][]string{}
	for _, op := range plan.Batch.Ops {
		if object, ok := op.Object.(ruleset.ElementsObject); ok && op.Family == model.IPv4 && op.Verb == ruleset.Add {
			for element := range object.Elements {
				added[object.Set.Name] = append(added[object.Set.Name], formatElements(object.Set, []ruleset.Element{element})...)
			}
		}
	}
	if diff := cmp.Diff([]string{"192.168.0.2"}, added["nodeport-ips"]); diff != "" {
		t.Errorf("addresses for node ports (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"30001 => class/1"}, added["nodeports"]); diff != "" {
		t.Errorf("node ports (-want +got):\n%s", diff)
	}
}
