package apiserver_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

func TestFirstUpdateIsTheCompleteState(t *testing.T) {
	w := newWriter(t)
	node := w.node("self", zoneLabel+"=zone-a", "kubernetes.io/os=linux", rackLabel+"=rack-1")
	w.service("web")
	w.service("headless", func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone })
	w.service("foreign", proxyLabel("other"))
	w.slice("web-1", "web", "10.0.0.1", "10.0.0.2")
	w.slice("headless-1", "headless", "10.0.0.3")
	w.patchSlice("headless-1", `{"metadata": {"labels": {"service.kubernetes.io/headless": ""}}}`)

	first := follow(t, admin(), node, "").started().since(0)[0]
	state := model.NewCluster(node)
	state.Apply(first.Change)
	for what, condition := range map[string]func(*model.Cluster) bool{
		"the Service":                 hasService(w.name("web")),
		"no headless Service":         hasNoService(w.name("headless")),
		"no Service of another proxy": hasNoService(w.name("foreign")),
		"the endpoints":               endpointsAre(w.name("web"), "10.0.0.1", "10.0.0.2"),
		"no headless endpoints":       endpointsAre(w.name("headless")),
		"this node's zone and system": labelsAre(node, "kubernetes.io/os=linux", zoneLabel+"=zone-a"), // no rack
	} {
		if !condition(state) {
			t.Errorf("the first update does not meet the condition: %s", what)
		}
	}
}

// handoffDelay is the time for which a proxy keeps serving a Service that was handed over to another proxy.
const handoffDelay = 5 * time.Second

// TestHandoffToAnotherProxyHasNoGap ensures that the Service is served by a proxy at every
// moment.
func TestHandoffToAnotherProxyHasNoGap(t *testing.T) {
	w := newWriter(t)
	unnamed, named := follow(t, admin(), "none", "").started(), follow(t, admin(), "none", "vicinity").started()
	web := w.name("web")
	w.service("web")
	unnamed.waitUntil("the unnamed proxy serves the Service", hasService(web))
	label := func(value string) (at time.Time) {
		at = time.Now()
		w.patchService("web", `{"metadata": {"labels": {"service.kubernetes.io/service-proxy-name": `+value+`}}}`)
		return at
	}
	checkHandoff := func(name string, proxy *follower, since time.Time) {
		t.Helper()
		proxy.waitUntil("the Service is gone from "+name+" proxy", hasNoService(web))
		if took := time.Since(since); took < handoffDelay {
			t.Errorf("%s proxy released the Service after %s, want at least %s", name, took, handoffDelay)
		}
	}
	labelled := label(`"vicinity"`)
	named.waitUntil("the named proxy serves the Service", hasService(web))
	checkHandoff("the unnamed", unnamed, labelled)
	checkHandoff("the named", named, label(`"other"`))
	label(`null`)
	unnamed.waitUntil("the unnamed proxy serves the Service again", hasService(web))
	if named.holds(hasService(web)) {
		t.Error("the named proxy also serves the Service")
	}
}

func TestSliceMovesWithItsLabels(t *testing.T) {
	w := newWriter(t)
	f := follow(t, admin(), "none", "").started()
	web, shop := w.name("web"), w.name("shop")
	w.service("web")
	w.service("shop")
	w.slice("slice", "web", "10.0.0.1")
	f.waitUntil("the slice belongs to the first Service", endpointsAre(web, "10.0.0.1"))

	w.patchSlice("slice", `{"metadata": {"labels": {"kubernetes.io/service-name": "shop"}}}`)
	f.waitUntil("the slice belongs to the second Service", endpointsAre(shop, "10.0.0.1"))
	f.waitUntil("the first Service has no endpoints", endpointsAre(web))

	w.patchSlice("slice", `{"metadata": {"labels": {"service.kubernetes.io/headless": ""}}}`)
	f.waitUntil("a headless slice belongs to no Service", endpointsAre(shop))
	w.patchSlice("slice", `{"metadata": {"labels": {"service.kubernetes.io/headless": null}}}`)
	f.waitUntil("the slice is no longer headless", endpointsAre(shop, "10.0.0.1"))

	w.patchSlice("slice", `{"metadata": {"labels": {"kubernetes.io/service-name": null}}}`)
	f.waitUntil("a slice without the label belongs to no Service", endpointsAre(shop))
	w.patchSlice("slice", `{"metadata": {"labels": {"kubernetes.io/service-name": "web"}}}`)
	f.waitUntil("the slice belongs to the first Service again", endpointsAre(web, "10.0.0.1"))

	w.deleteSlice("slice")
	f.waitUntil("the slice is deleted", endpointsAre(web))
}

func TestRecreatedServiceHasNewUID(t *testing.T) {
	w := newWriter(t)
	f := follow(t, admin(), "none", "").started()
	web := w.name("web")
	withClusterIP := func(address string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.ClusterIP = address }
	}
	clusterIPIs := func(want string) func(*model.Cluster) bool {
		return func(state *model.Cluster) bool {
			service := state.Service(web)
			return service != nil && service.ClusterIPs[0].String() == want
		}
	}
	first := w.service("web", withClusterIP("10.96.77.1"))
	f.waitUntil("the first Service exists", clusterIPIs("10.96.77.1"))
	if uid := f.UID(convert.Services, web); uid != string(first.UID) {
		t.Errorf("UID() = %q, want %q", uid, first.UID)
	}
	w.deleteService("web")
	second := w.service("web", withClusterIP("10.96.77.2"))
	f.waitUntil("the second Service exists", clusterIPIs("10.96.77.2"))
	if uid := f.UID(convert.Services, web); uid != string(second.UID) {
		t.Errorf("UID() = %q, want that of the second Service, %q", uid, second.UID)
	}
	w.deleteService("web")
	f.waitUntil("the Service is deleted", hasNoService(web))
	if uid := f.UID(convert.Services, web); uid != "" {
		t.Errorf("UID() = %q after the Service was deleted, want none", uid)
	}
}

func TestInvalidObjectKeepsItsLastKnownGoodVersion(t *testing.T) {
	w := newWriter(t)
	f := follow(t, admin(), "none", "").started()
	web, shop := w.name("web"), w.name("shop")
	w.service("web")
	w.service("shop")
	w.slice("web-1", "web", "10.0.0.1")
	f.waitUntil("the slice is active", endpointsAre(web, "10.0.0.1"))

	w.patchSlice("web-1", `{"ports": [{"name": "http", "port": 70000}]}`)
	problem := "EndpointSlice " + w.namespace + "/web-1: ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive"
	f.untilProblems(w.namespace, problem)
	w.slice("shop-1", "shop", "10.0.0.2")
	f.waitUntil("another slice is active", endpointsAre(shop, "10.0.0.2"))
	portIs := func(want uint16) func(*model.Cluster) bool {
		return func(state *model.Cluster) bool {
			return slices.ContainsFunc(state.SlicesOf(web), func(s *model.EndpointSlice) bool { return s.Ports[0].Port == want })
		}
	}
	if !f.holds(portIs(8080)) {
		t.Error("the last known good version is not active")
	}
	w.patchSlice("web-1", `{"ports": [{"name": "http", "port": 8081}]}`)
	f.waitUntil("the slice is valid again", portIs(8081))
	f.untilProblems(w.namespace)

	w.patchSlice("web-1", `{"ports": [{"name": "http", "port": 70000}]}`)
	f.untilProblems(w.namespace, problem)
	w.deleteSlice("web-1")
	f.waitUntil("the slice is deleted", endpointsAre(web))
	f.untilProblems(w.namespace)
}
