package convert

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

func TestNodeKeepsNameAndLabels(t *testing.T) {
	got, errs := Node(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1.example", Labels: map[string]string{"example.com/rack": "r1"}}})
	want := &model.Node{Name: "n1.example", Labels: map[string]string{"example.com/rack": "r1"}}
	if diff := cmp.Diff(want, got); diff != "" || len(errs) > 0 {
		t.Errorf("Node() (-want +got):\n%s%v", diff, errs)
	}
	_, errs = Node(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Namespace: "default"}})
	if diff := cmp.Diff([]string{"metadata.namespace: Forbidden: not allowed on this type"}, texts(errs)); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
	if _, errs = Node(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "N1"}}); len(errs) != 1 {
		t.Errorf("errors = %v, want one for the name", errs)
	}
}

func TestNodeAddresses(t *testing.T) {
	internal := func(addr string) corev1.NodeAddress {
		return corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: addr}
	}
	external := func(addr string) corev1.NodeAddress {
		return corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: addr}
	}
	for name, test := range map[string]struct {
		given []corev1.NodeAddress
		want  []string
	}{
		"no addresses": {},
		"the first internal address counts, regardless of its position": {
			[]corev1.NodeAddress{external("192.0.2.1"), internal("10.0.0.1"), internal("10.0.0.2")}, []string{"10.0.0.1"}},
		"without an internal address, the first external one counts": {
			[]corev1.NodeAddress{external("192.0.2.1"), external("192.0.2.2")}, []string{"192.0.2.1"}},
		"the first address of the other family counts too": {
			[]corev1.NodeAddress{internal("fd00::1"), internal("fd00::2"), internal("10.0.0.1")}, []string{"fd00::1", "10.0.0.1"}},
		"for the other family an internal address precedes an external one": {
			[]corev1.NodeAddress{external("2001:db8::1"), internal("10.0.0.1"), internal("fd00::1")}, []string{"10.0.0.1", "fd00::1"}},
		"for the other family an external address is sufficient": {
			[]corev1.NodeAddress{internal("10.0.0.1"), external("192.0.2.1"), external("2001:db8::1")}, []string{"10.0.0.1", "2001:db8::1"}},
		"host names are ignored, even those that look like addresses": {
			[]corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "10.0.0.9"}, {Type: corev1.NodeInternalDNS, Address: "n1"},
				{Type: corev1.NodeExternalDNS, Address: "10.0.0.8"}, internal("10.0.0.1")}, []string{"10.0.0.1"}},
		"invalid and non-unicast addresses are ignored": {
			[]corev1.NodeAddress{internal(""), internal("n1"), internal("fe80::1%eth0"), internal("0.0.0.0"), internal("224.0.0.1"),
				internal("10.0.0.1")}, []string{"10.0.0.1"}},
		"leading zeros and IPv4-mapped addresses are read as in kube-proxy": {
			[]corev1.NodeAddress{internal("::ffff:010.0.0.1")}, []string{"10.0.0.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Addresses: test.given}}
			got, errs := Node(node)
			if len(errs) > 0 {
				t.Fatalf("Node() rejected: %v", errs)
			}
			if diff := cmp.Diff(addrs(test.want...), got.Addresses, equateValues); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNodePodCIDRs(t *testing.T) {
	for name, test := range map[string]struct {
		given corev1.NodeSpec
		want  []string
	}{
		"no pod CIDRs": {},
		"the first of each family counts": {
			corev1.NodeSpec{PodCIDRs: []string{"10.1.0.0/24", "10.2.0.0/24", "fd00:1::/64"}}, []string{"10.1.0.0/24", "fd00:1::/64"}},
		"podCIDR alone is sufficient": {corev1.NodeSpec{PodCIDR: "10.1.0.0/24"}, []string{"10.1.0.0/24"}},
		"podCIDRs take precedence over podCIDR": {
			corev1.NodeSpec{PodCIDR: "10.9.0.0/24", PodCIDRs: []string{"10.1.0.0/24"}}, []string{"10.1.0.0/24"}},
		"bits beyond the prefix length are cleared": {corev1.NodeSpec{PodCIDR: "010.1.0.77/24"}, []string{"10.1.0.0/24"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, errs := Node(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: test.given})
			if len(errs) > 0 {
				t.Fatalf("Node() rejected: %v", errs)
			}
			if diff := cmp.Diff(prefixes(test.want...), got.PodCIDRs, equateValues); diff != "" {
				t.Errorf("pod CIDRs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInvalidPodCIDRIsRejected(t *testing.T) {
	for name, test := range map[string]struct {
		given corev1.NodeSpec
		want  string
	}{
		"in podCIDRs": {corev1.NodeSpec{PodCIDRs: []string{"10.1.0.0/24", "x"}},
			`spec.podCIDRs[1]: Invalid value: "x": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)`},
		"in podCIDR": {corev1.NodeSpec{PodCIDR: "10.1.0.0"},
			`spec.podCIDR: Invalid value: "10.1.0.0": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)`},
	} {
		t.Run(name, func(t *testing.T) {
			got, errs := Node(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: test.given})
			if diff := cmp.Diff([]string{test.want}, texts(errs)); diff != "" || got != nil {
				t.Errorf("Node() = %v, errors (-want +got):\n%s", got, diff)
			}
		})
	}
}

func TestNotEligibleReason(t *testing.T) {
	now := metav1.Now()
	for name, test := range map[string]struct {
		given corev1.Node
		want  string
	}{
		"a node that stays": {corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{
			{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoExecute}}}}, ""},
		"a node that is being deleted": {corev1.Node{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}}, "it is being deleted"},
		"a node that the autoscaler is about to delete, whatever the taint's effect": {corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: "other"}, {Key: "ToBeDeletedByClusterAutoscaler", Value: "1760000000", Effect: corev1.TaintEffectPreferNoSchedule}}}},
			"it has the taint ToBeDeletedByClusterAutoscaler"},
		"a node that is being drained": {nodeWithConditions(
			corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
			corev1.NodeCondition{Type: "DrainInProgress", Status: corev1.ConditionTrue}), "it has the condition DrainInProgress"},
		"a node in maintenance": {nodeWithConditions(
			corev1.NodeCondition{Type: "MaintenanceInProgress", Status: corev1.ConditionTrue}), "it has the condition MaintenanceInProgress"},
		"a node that is being shut down, by its condition": {nodeWithConditions(
			corev1.NodeCondition{Type: "GracefulNodeShutdownInProgress", Status: corev1.ConditionTrue}),
			"it has the condition GracefulNodeShutdownInProgress"},
		"conditions that are false, unknown, or of other types": {nodeWithConditions(
			corev1.NodeCondition{Type: "DrainInProgress", Status: corev1.ConditionFalse},
			corev1.NodeCondition{Type: "MaintenanceInProgress", Status: corev1.ConditionUnknown},
			corev1.NodeCondition{Type: "MaintenancePlanned", Status: corev1.ConditionTrue},
			corev1.NodeCondition{Type: "Drained", Status: corev1.ConditionTrue},
			corev1.NodeCondition{Type: "MemoryPressure", Status: corev1.ConditionTrue}), ""},
		"a node that is being shut down, by the message of Ready": {nodeWithConditions(
			corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady",
				Message: "node is shutting down"}), "kubelet reports that the node is shutting down"},
		"a node that is being shut down and not ready for another reason": {nodeWithConditions(
			corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady",
				Message: "[container runtime is down, node is shutting down]"}), "kubelet reports that the node is shutting down"},
		"a node that is not ready, and stays": {nodeWithConditions(
			corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady",
				Message: "container runtime is down"}), ""},
		"a node whose kubelet stopped reporting": {nodeWithConditions(
			corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown",
				Message: "Kubelet stopped posting node status."}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			test.given.Name = "n1"
			got, errs := Node(&test.given)
			if len(errs) > 0 || got.IneligibleReason != test.want {
				t.Errorf("NotEligible = %q, want %q; errors %v", got.IneligibleReason, test.want, errs)
			}
		})
	}
}

func nodeWithConditions(conditions ...corev1.NodeCondition) corev1.Node {
	return corev1.Node{Status: corev1.NodeStatus{Conditions: conditions}}
}

// TestViewNodeAddress covers kube-proxy's bindAddress.
func TestViewNodeAddress(t *testing.T) {
	internal := func(node string, addresses ...string) *corev1.Node {
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
		for _, addr := range addresses {
			object.Status.Addresses = append(object.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: addr})
		}
		return object
	}
	for name, test := range map[string]struct {
		node *corev1.Node
		addr string
		want []string
	}{
		"replaces that of its family":       {internal("self", "10.0.0.1", "fd00::1"), "192.0.2.1", []string{"192.0.2.1", "fd00::1"}},
		"replaces that of the other family": {internal("self", "10.0.0.1", "fd00::1"), "2001:db8::1", []string{"2001:db8::1", "10.0.0.1"}},
		"is added if the object has none":   {internal("self"), "192.0.2.1", []string{"192.0.2.1"}},
		"does not affect other nodes":       {internal("other", "10.0.0.1"), "192.0.2.1", []string{"10.0.0.1"}},
		"if unset, the object's remains":    {internal("self", "10.0.0.1"), "", []string{"10.0.0.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			view := View{Node: "self"}
			if test.addr != "" {
				view.NodeAddress = addrs(test.addr)[0]
			}
			got, errs := Nodes.Convert(test.node, view)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			if diff := cmp.Diff(addrs(test.want...), got.(*model.Node).Addresses, equateValues); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
