package convert

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func serviceCIDR(cidrs ...string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: cidrs}}
}

func TestServiceCIDRRanges(t *testing.T) {
	terminating := serviceCIDR("10.96.0.0/12")
	terminating.DeletionTimestamp = &metav1.Time{}
	terminating.Status.Conditions = []metav1.Condition{{Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionFalse}}
	for name, test := range map[string]struct {
		given *networkingv1.ServiceCIDR
		want  []string
	}{
		"one range":                          {serviceCIDR("10.96.0.0/12"), []string{"10.96.0.0/12"}},
		"one of each family, in their order": {serviceCIDR("fd00:96::/108", "10.96.0.0/12"), []string{"fd00:96::/108", "10.96.0.0/12"}},
		"one that is being deleted":          {terminating, []string{"10.96.0.0/12"}},
		"a single address":                   {serviceCIDR("10.96.0.1/32"), []string{"10.96.0.1/32"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, errs := ServiceCIDR(test.given)
			if diff := cmp.Diff(prefixes(test.want...), got, equateValues); diff != "" || len(errs) > 0 {
				t.Errorf("ServiceCIDR() (-want +got):\n%s%v", diff, errs)
			}
		})
	}
}

func TestInvalidServiceCIDRIsRejected(t *testing.T) {
	namespaced, unnamed := serviceCIDR("10.96.0.0/12"), serviceCIDR("10.96.0.0/12")
	namespaced.Namespace, unnamed.Name = "default", ""
	for name, test := range map[string]struct {
		given *networkingv1.ServiceCIDR
		want  []string
	}{
		"no range": {serviceCIDR(), []string{`spec.cidrs: Required value: at least one CIDR required`}},
		"three ranges": {serviceCIDR("10.96.0.0/12", "fd00:96::/108", "10.0.0.0/16"),
			[]string{`spec.cidrs: Too many: 3: must have at most 2 items`}},
		"two ranges of one family": {serviceCIDR("10.96.0.0/12", "10.0.0.0/16"),
			[]string{`spec.cidrs: Invalid value: ["10.96.0.0/12","10.0.0.0/16"]: may specify no more than one CIDR for each IP family`}},
		"an address": {serviceCIDR("10.96.0.0"),
			[]string{`spec.cidrs[0]: Invalid value: "10.96.0.0": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)`}},
		"an address within its network": {serviceCIDR("fd00:96::/108", "10.96.0.1/12"),
			[]string{`spec.cidrs[1]: Invalid value: "10.96.0.1/12": must not have bits set beyond the prefix length`}},
		"leading zeros": {serviceCIDR("010.96.0.0/12"),
			[]string{`spec.cidrs[0]: Invalid value: "010.96.0.0/12": must not have leading 0s in IP or prefix length`}},
		"an IPv4-mapped range": {serviceCIDR("::ffff:10.96.0.0/108"),
			[]string{`spec.cidrs[0]: Invalid value: "::ffff:10.96.0.0/108": must not have an IPv4-mapped IPv6 address`}},
		"all addresses": {serviceCIDR("::/0"),
			[]string{`spec.cidrs[0]: Invalid value: "::/0": may not be all addresses: those that are not ClusterIPs would be dropped`}},
		"a namespace": {namespaced, []string{`metadata.namespace: Forbidden: not allowed on this type`}},
		"no name":     {unnamed, []string{`metadata.name: Required value`}},
	} {
		t.Run(name, func(t *testing.T) {
			got, errs := ServiceCIDR(test.given)
			if diff := cmp.Diff(test.want, texts(errs)); diff != "" || got != nil {
				t.Errorf("ServiceCIDR() = %v, errors (-want +got):\n%s", got, diff)
			}
		})
	}
}
