package convert

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// toBeDeletedTaint is the taint of a node that the cluster autoscaler is about to delete. Its effect and value do not
// matter.
const toBeDeletedTaint = "ToBeDeletedByClusterAutoscaler"

// shuttingDown is part of the message of a Ready condition that is False while kubelet terminates the pods of a machine
// that is shutting down (pkg/kubelet/nodeshutdown, since Kubernetes 1.21). The message may list other reasons, too. The
// only taint that follows is the one of every node that is not ready.
const shuttingDown = "node is shutting down"

// Node converts a v1 Node: its name, its labels, its addresses, the ranges of its pods, and whether it is about to be
// removed.
//
// It rejects values of these that the API server would reject, except labels: an invalid one counts as absent. The API
// server accepts any text as an address, so texts that are not addresses are ignored, as in kube-proxy.
func Node(node *corev1.Node) (*model.Node, field.ErrorList) {
	metadata := field.NewPath("metadata")
	errs := checkName(metadata.Child("name"), node.Name, validation.IsDNS1123Subdomain)
	errs = append(errs, checkClusterScoped(metadata, node.Namespace)...)
	podCIDRs, rejected := readPodCIDRs(field.NewPath("spec"), &node.Spec)
	errs = append(errs, rejected...)
	if len(errs) > 0 {
		return nil, errs
	}
	return &model.Node{
		Name:             node.Name,
		Labels:           validLabels(node.Labels),
		Addresses:        readNodeAddresses(node.Status.Addresses),
		PodCIDRs:         podCIDRs,
		IneligibleReason: notEligibleReason(node),
	}, nil
}

// nodeInView converts a Node. View.NodeAddress replaces the address of its family if the Node is this node.
func nodeInView(node *corev1.Node, view View) (*model.Node, field.ErrorList) {
	converted, errs := Node(node)
	if converted != nil && converted.Name == view.Node && view.NodeAddress.IsValid() {
		converted.Addresses = firstOfEachFamily(slices.Insert(converted.Addresses, 0, view.NodeAddress), model.FamilyOf)
	}
	return converted, errs
}

// notEligibleReason returns why load balancers should skip a node; empty if they should not. The first two reasons are
// those of kube-proxy's /healthz (KEP-3836).
func notEligibleReason(node *corev1.Node) string {
	if node.DeletionTimestamp != nil {
		return "it is being deleted"
	}
	for i := range node.Spec.Taints {
		if node.Spec.Taints[i].Key == toBeDeletedTaint {
			return "it has the taint " + toBeDeletedTaint
		}
	}
	for i := range node.Status.Conditions {
		condition := &node.Status.Conditions[i]
		isTrue := condition.Status == corev1.ConditionTrue
		switch {
		case isTrue && slices.Contains(policy.DrainConditions[:], condition.Type):
			return "it has the condition " + string(condition.Type)
		case condition.Type == corev1.NodeReady && !isTrue && strings.Contains(condition.Message, shuttingDown):
			return "kubelet reports that the " + shuttingDown
		}
	}
	return ""
}

// readNodeAddresses returns the first address of each family, internal ones before external ones. The first of all is
// of the node's primary family.
func readNodeAddresses(entries []corev1.NodeAddress) []netip.Addr {
	var addrs []netip.Addr
	for _, typ := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for i := range entries {
			if entries[i].Type != typ {
				continue
			}
			addr, rejected := readAddress(nil, entries[i].Address)
			if len(rejected) == 0 && !addr.IsUnspecified() && !addr.IsMulticast() {
				addrs = append(addrs, addr)
			}
		}
	}
	return firstOfEachFamily(addrs, model.FamilyOf)
}

// readPodCIDRs reads spec.podCIDRs, or spec.podCIDR if only that is set, and returns the first range of each family.
func readPodCIDRs(spec *field.Path, node *corev1.NodeSpec) ([]netip.Prefix, field.ErrorList) {
	texts, pathOf := node.PodCIDRs, spec.Child("podCIDRs").Index
	if len(texts) == 0 && node.PodCIDR != "" {
		texts, pathOf = []string{node.PodCIDR}, func(int) *field.Path { return spec.Child("podCIDR") }
	}
	var prefixes []netip.Prefix
	var errs field.ErrorList
	for i, text := range texts {
		prefix, rejected := readPrefix(pathOf(i), text)
		prefixes, errs = append(prefixes, prefix), append(errs, rejected...)
	}
	return firstOfEachFamily(prefixes, model.FamilyOfPrefix), errs
}
