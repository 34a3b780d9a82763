package events_test

import (
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/events"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
)

// cluster is an API server for one test.
type cluster struct {
	*site.Site
	t *testing.T
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	return &cluster{site.New(t, site.Config{}), t}
}

// eventCreator returns the configuration of a client that may create Events, and do nothing else.
func (c *cluster) eventCreator() *rest.Config {
	c.t.Helper()
	return c.User(c.t, "event-creator", rbacv1.PolicyRule{
		APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create"},
	})
}

// createAll creates the objects of the Events: the Service shop/web, a slice, a ServiceCIDR, and three Nodes.
func (c *cluster) createAll() (service, slice, cidr events.Reference) {
	c.t.Helper()
	web := objects.Service("shop", "web")
	web1 := objects.Slice("shop", "web-1", "web")
	all := &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "all"},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.112.0.0/16"}},
	}
	c.Create(c.t, objects.Namespace("shop", nil, nil), objects.Namespace("bank", nil, nil), objects.Node("node-1", nil),
		objects.Node("node-2", nil), objects.Node("node-3", nil), web, web1, all)
	return events.Reference{Kind: "Service", Namespace: "shop", Name: "web", UID: string(web.UID)},
		events.Reference{Kind: "EndpointSlice", Namespace: "shop", Name: "web-1", UID: string(web1.UID)},
		events.Reference{Kind: "ServiceCIDR", Name: "all", UID: string(all.UID)}
}

// eventsWhere returns the proxies' Events that fulfil a condition.
func (c *cluster) eventsWhere(holds func(eventsv1.Event) bool) []eventsv1.Event {
	c.t.Helper()
	list, err := c.Admin.EventsV1().Events("").List(c.t.Context(), metav1.ListOptions{})
	must.Succeed(c.t, err)
	var found []eventsv1.Event
	for _, event := range list.Items {
		if event.ReportingController == "vicinity.dev/proxy" && holds(event) {
			found = append(found, event)
		}
	}
	return found
}

// count returns the number of Events by namespace, object and reason.
func (c *cluster) count() map[string]int {
	c.t.Helper()
	counts := map[string]int{}
	for _, event := range c.eventsWhere(func(eventsv1.Event) bool { return true }) {
		counts[event.Namespace+" "+event.Regarding.Kind+" "+event.Regarding.Name+" "+event.Reason]++
	}
	return counts
}
