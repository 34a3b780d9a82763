package apiserver_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

func hasRange(prefix string) func(*model.Cluster) bool {
	return func(state *model.Cluster) bool {
		return slices.Contains(state.ServiceCIDRs(), netip.MustParsePrefix(prefix))
	}
}

func TestFirstUpdateHasServiceCIDRs(t *testing.T) {
	state := model.NewCluster("none")
	state.Apply(follow(t, admin(), "none", "").started().since(0)[0].Change)
	if got := state.ServiceCIDRs(); len(got) != 2 {
		t.Errorf("ranges %v, want one of each family", got)
	}
}

func TestServiceCIDRsAreAddedAndRemoved(t *testing.T) {
	w := newWriter(t)
	f := follow(t, admin(), "none", "").started()
	api.Create(t, &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.97.0.0/24"}},
	})
	f.waitUntil("a new range", hasRange("10.97.0.0/24"))
	must.Succeed(w.t, w.client.NetworkingV1().ServiceCIDRs().Delete(t.Context(), w.namespace, metav1.DeleteOptions{}))
	f.waitUntil("a deleted range", func(state *model.Cluster) bool { return !hasRange("10.97.0.0/24")(state) })
	if !f.holds(hasRange("10.96.0.0/16")) {
		t.Error("the cluster's first range is also gone")
	}
}

func TestClusterWithoutServiceCIDRs(t *testing.T) {
	w := newWriter(t)
	old := traffic{absent: "/servicecidrs"}
	f := follow(t, old.record(admin()), "none", "").started()
	if !f.holds(func(state *model.Cluster) bool { return len(state.ServiceCIDRs()) == 0 }) {
		t.Error("the first update has ServiceCIDRs, want none")
	}
	w.service("web")
	f.waitUntil("Services are watched", hasService(w.name("web")))
	if outages := f.outagesNow(); len(outages) > 0 {
		t.Errorf("outages %v, want none", outages)
	}
	if got := strings.Count(f.log.String(), "has no ServiceCIDRs"); got != 1 {
		t.Errorf("the missing ServiceCIDRs were logged %d times, want once", got)
	}
}

func TestServiceCIDRsAreWatchedOnceAllowed(t *testing.T) {
	w := newWriter(t)
	user := w.namespace + "-user"
	config := api.User(t, user)
	w.grant(user, "", "services")
	w.grant(user, "discovery.k8s.io", "endpointslices")
	w.grant(user, "", "nodes")
	f := follow(t, config, "none", "").started()
	if !f.holds(func(state *model.Cluster) bool { return len(state.ServiceCIDRs()) == 0 }) {
		t.Error("the first update has ServiceCIDRs, want none")
	}
	if outages := f.outagesNow(); len(outages) != 1 || outages["servicecidrs"].err == nil {
		t.Errorf("outages %v, want that of the ServiceCIDRs", outages)
	}
	w.service("web")
	f.waitUntil("Services are watched", hasService(w.name("web")))
	w.grant(user, "networking.k8s.io", "servicecidrs")
	f.waitUntil("the ranges are known once allowed", hasRange("10.96.0.0/16"))
	wait.Until(t, "the outage is over", func() bool { return len(f.outagesNow()) == 0 })
}
