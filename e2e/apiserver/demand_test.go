package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/apiserver"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// publisherNamespace is the namespace of the Lease.
const publisherNamespace = "vicinity-system"

// permissiveCRD defines ServiceDemands with a schema that accepts everything, so that tests can write invalid
// objects.
const permissiveCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: servicedemands.vicinity.dev}
spec:
  group: vicinity.dev
  scope: Namespaced
  names: {kind: ServiceDemand, listKind: ServiceDemandList, plural: servicedemands, singular: servicedemand}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// fakePublisher stands in for a publisher of ServiceDemands: tests write its objects.
type fakePublisher struct {
	*writer
	traffic *traffic
	proxy   *rest.Config
}

// newPublication creates the CRD, the Lease, and an account with the proxy's rights from the manifests.
func newPublication(t *testing.T) *fakePublisher {
	t.Helper()
	p := &fakePublisher{writer: newWriter(t), traffic: &traffic{}}
	p.createCRD()
	p.shell(`kubectl create namespace vicinity-system --dry-run=client -o yaml | kubectl apply -f -
		kubectl apply -f manifests/access.yaml -f manifests/webhook/components/demand/proxies.yaml`)
	p.renewLease(time.Now())
	t.Cleanup(func() { p.deleteLease(); p.deleteCRD() })
	p.proxy = api.Account(t, "kube-system", "vicinity-proxy")
	const protobuf = "application/vnd.kubernetes.protobuf"
	p.proxy.ContentType, p.proxy.AcceptContentTypes = protobuf, protobuf+",application/json"
	return p
}

func (p *fakePublisher) shell(commands string, variables ...string) {
	p.t.Helper()
	_, err := api.Shell(context.WithoutCancel(p.t.Context()), commands, variables...)
	must.Succeed(p.t, err)
}

func (p *fakePublisher) createCRD() {
	p.t.Helper()
	p.shell(`printf '%s' "$DEFINITION" | kubectl apply -f -
		kubectl wait --for condition=Established customresourcedefinition servicedemands.vicinity.dev`, "DEFINITION="+permissiveCRD)
}

// deleteCRD deletes the CRD, and with it all objects.
func (p *fakePublisher) deleteCRD() {
	p.t.Helper()
	p.shell("kubectl delete customresourcedefinition servicedemands.vicinity.dev --ignore-not-found")
}

// measured makes a Service use measured demand.
func measured(service *corev1.Service) {
	bounded(service)
	objects.Annotated(policy.DemandSourceAnnotation, policy.Measured)(service)
}

func bounded(service *corev1.Service) {
	keyed(zoneLabel + ", *")(service)
	objects.Annotated(policy.MaxLoadAnnotation, "120%")(service)
}

// renewLease sets the time at which the Lease was renewed.
func (p *fakePublisher) renewLease(renewed time.Time) {
	p.t.Helper()
	leases, ctx := api.Admin.CoordinationV1().Leases(publisherNamespace), context.WithoutCancel(p.t.Context())
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.DemandLeaseName},
		Spec:       coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(renewed))},
	}
	_, err := leases.Create(ctx, lease, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		patch := fmt.Appendf(nil, `{"spec": {"renewTime": %q}}`, renewed.UTC().Format(metav1.RFC3339Micro))
		_, err = leases.Patch(ctx, lease.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	must.Succeed(p.t, err)
}

func (p *fakePublisher) deleteLease() {
	p.t.Helper()
	p.shell("kubectl --namespace vicinity-system delete lease vicinity-demand --ignore-not-found")
}

// writeDemand writes the measured demand of a Service: the given amount for zone-a, and the rest for zone-b.
func (p *fakePublisher) writeDemand(name string, ppm uint32) {
	p.t.Helper()
	object := &v1alpha1.ServiceDemand{
		TypeMeta:       metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.ServiceDemandKind},
		ObjectMeta:     metav1.ObjectMeta{Name: name, Namespace: p.namespace},
		Zones:          []v1alpha1.ZoneDemand{{Zone: "zone-a", DemandPPM: ppm}, {Zone: "zone-b", DemandPPM: 1_000_000 - min(ppm, 1_000_000)}},
		NodesReporting: 9, NodesTotal: 10, ConnectionsPerMinute: 600, ObservedAt: metav1.NewTime(time.Now()),
	}
	text, err := json.Marshal(object)
	must.Succeed(p.t, err)
	path := "/apis/vicinity.dev/v1alpha1/namespaces/" + p.namespace + "/servicedemands"
	client := api.Admin.CoreV1().RESTClient()
	err = client.Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body(text).Do(p.t.Context()).Error()
	if apierrors.IsAlreadyExists(err) {
		err = client.Patch(types.MergePatchType).AbsPath(path, name).Body(text).Do(p.t.Context()).Error()
	}
	must.Succeed(p.t, err)
}

func (p *fakePublisher) deleteDemand(name string) {
	p.t.Helper()
	p.shell("kubectl --namespace " + p.namespace + " delete servicedemand " + name)
}

// follow starts a follower with the rights of a configuration.
func (p *fakePublisher) follow(config *rest.Config) *follower {
	p.t.Helper()
	withNamespace := func(options *apiserver.Options) { options.TopologyNamespace = publisherNamespace }
	return follow(p.t, p.traffic.record(config), p.namespace+"-self", "", withNamespace)
}

// requestCount counts the requests for ServiceDemands, and those for the Lease.
func (p *fakePublisher) requestCount() (objects, lease int) {
	p.traffic.mu.Lock()
	defer p.traffic.mu.Unlock()
	for _, request := range p.traffic.requests {
		if strings.Contains(request.URL.Path, "/servicedemands") {
			objects++
		}
		if strings.Contains(request.URL.Path, "/leases") {
			lease++
		}
	}
	return objects, lease
}

// rejectedDemands returns the findings about ServiceDemands.
func (f *follower) rejectedDemands() (lines []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for problem := range f.problems {
		if problem.Kind == v1alpha1.ServiceDemandKind {
			lines = append(lines, problem.String())
		}
	}
	return lines
}

// hasDemand returns a condition: a Service's measured demand is active and has the given value for zone-a.
func hasDemand(service model.ObjectName, want uint32) func(*model.Cluster) bool {
	return func(state *model.Cluster) bool {
		demand := demandIn(state, service)
		return demand != nil && demand.Zones["zone-a"] == want && demand.NodesReporting == 9
	}
}

// demandIn returns the measured demand with which a Service is planned. It returns nil for the default demand, and if
// there is no such Service.
func demandIn(state *model.Cluster, name model.ObjectName) *model.Demand {
	if service := state.Service(name); service != nil {
		return state.MeasuredDemand(service)
	}
	return nil
}

func demandIs(want model.DemandState) func(*model.Cluster) bool {
	return func(state *model.Cluster) bool { return state.DemandState() == want }
}

func demandIsActive(change model.Change) bool {
	return change.DemandState != nil && *change.DemandState == model.DemandActive
}

// maxBurst is the number of requests that start watching a resource: a watch that lists, which an API server may
// reject, and then a list and a watch instead.
const maxBurst = 3

// TestMeasuredDemandIsWatched covers objects that are created, updated, invalid and deleted, and a
// Lease that is expired, renewed and deleted. There must be no request unless a Service needs it.
func TestMeasuredDemandIsWatched(t *testing.T) {
	p := newPublication(t)
	web := p.name("web")
	p.writeDemand("web", 100_000)
	p.service("web", bounded)
	f := p.follow(p.proxy).started()
	f.waitUntil("a Service with a load bound", hasService(web))
	p.service("other")
	f.waitUntil("another Service", hasService(p.name("other")))
	if objects, lease := p.requestCount(); objects+lease > 0 {
		t.Errorf("no Service needs demand, but it was requested %d times, and the Lease %d times", objects, lease)
	}

	p.patchService("web", `{"metadata": {"annotations": {"`+policy.DemandSourceAnnotation+`": "`+policy.Measured+`"}}}`)
	f.waitUntil("the measured demand", hasDemand(web, 100_000))
	p.writeDemand("web", 200_000)
	f.waitUntil("the new measured demand", hasDemand(web, 200_000))
	p.writeDemand("web", 1_000_001)
	finding := fmt.Sprintf("ServiceDemand %s: zones: Invalid value: 1000001: the sum must not be greater than 1000000, the demand of "+
		"all zones", web)
	wait.Equal(t, "the invalid object is rejected", []string{finding}, f.rejectedDemands)
	if !f.holds(hasDemand(web, 200_000)) {
		t.Error("the last known good version is not active")
	}
	p.writeDemand("web", 300_000)
	f.waitUntil("the object is valid again", hasDemand(web, 300_000))
	wait.Equal(t, "no object is rejected", nil, f.rejectedDemands)
	p.deleteDemand("web")
	f.waitUntil("the demand is deleted", func(state *model.Cluster) bool { return demandIn(state, web) == nil })
	p.writeDemand("web", 400_000)
	f.waitUntil("demand is published again", hasDemand(web, 400_000))

	p.renewLease(time.Now().Add(-2 * time.Hour))
	f.waitUntil("the Lease is expired", demandIs(model.DemandStale))
	if f.holds(hasDemand(web, 400_000)) {
		t.Error("expired demand is still active")
	}
	p.renewLease(time.Now())
	f.waitUntil("the Lease is renewed", hasDemand(web, 400_000))
	p.deleteLease()
	f.waitUntil("the Lease is deleted", demandIs(model.DemandUnavailable))
	p.renewLease(time.Now())
	f.waitUntil("the Lease is recreated", hasDemand(web, 400_000))

	p.patchService("web", `{"metadata": {"annotations": {"`+policy.DemandSourceAnnotation+`": null}}}`)
	f.waitUntil("no Service needs it", demandIs(model.DemandUnknown))
	if objects, _ := p.requestCount(); objects < 1 || objects > maxBurst {
		t.Errorf("demand was requested %d times, want 1 to %d", objects, maxBurst)
	}
	if outages := f.outagesNow(); len(outages) > 0 {
		t.Errorf("outages: %v", outages)
	}
	for _, text := range []string{"level=WARN msg=\"The Lease vicinity-demand is missing", "level=WARN msg=\"Measured demand is too old"} {
		if got := strings.Count(f.log.String(), text); got != 1 {
			t.Errorf("%q was logged %d times, want once", text, got)
		}
	}
}

// TestFirstUpdateHasMeasuredDemand has 1,000 Services, and expects at most one list
// and one watch.
func TestFirstUpdateHasMeasuredDemand(t *testing.T) {
	p := newPublication(t)
	const many = 1000
	for i := range many {
		p.writeDemand(fmt.Sprintf("web-%d", i), uint32(i))
	}
	p.service("web-7", measured)
	f := p.follow(p.proxy).started()
	first := f.since(0)[0].Change
	if first.Services[p.name("web-7")] == nil || len(first.Demands) != many || !demandIsActive(first) {
		t.Errorf("the first update has Service %v, %d demands, state %v", first.Services[p.name("web-7")], len(first.Demands), first.DemandState)
	}
	if !f.holds(hasDemand(p.name("web-7"), 7)) {
		t.Error("the first update lacks the measured demand")
	}
	p.writeDemand("web-7", 8)
	f.waitUntil("one demand changes", hasDemand(p.name("web-7"), 8))
	if objects, lease := p.requestCount(); objects > maxBurst || lease > 2 {
		t.Errorf("demand was requested %d times, want at most %d, and the Lease %d times", objects, maxBurst, lease)
	}
	watcher, err := apiserver.New(p.proxy, apiserver.Options{
		View: convert.View{Node: p.namespace + "-self"}, TopologyNamespace: publisherNamespace, Log: f.log.Logger(),
	})
	must.Succeed(t, err)
	loaded, err := watcher.Load(t.Context(), apiserver.AllNodes)
	if err != nil || len(loaded.Change.Demands) != many || !demandIsActive(loaded.Change) {
		t.Errorf("Load() returns %d demands, state %v, %v", len(loaded.Change.Demands), loaded.Change.DemandState, err)
	}
}

// TestForbiddenDemandDoesNotBlock covers a Lease, objects or a resource that the proxy cannot read.
func TestForbiddenDemandDoesNotBlock(t *testing.T) {
	p := newPublication(t)
	p.writeDemand("web", 100_000)
	p.service("web", measured)
	list := []string{"list", "watch"}
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services", "nodes"}, Verbs: list},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: list},
		{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"servicecidrs"}, Verbs: list},
	}
	lease := rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get"}}
	demandObjects := rbacv1.PolicyRule{APIGroups: []string{v1alpha1.SchemeGroupVersion.Group},
		Resources: []string{v1alpha1.ServiceDemandResource}, Verbs: list}
	for _, test := range []struct {
		name, user string
		granted    []rbacv1.PolicyRule
		before     func()
		objects    bool // requests for objects are expected
	}{
		{"neither Lease nor objects", "without-demand", rules, func() {}, false},
		{"no objects", "with-lease", append(rules, lease), func() {}, true},
		{"no such kind", "with-all", append(rules, lease, demandObjects), p.deleteCRD, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.before()
			p.traffic.mu.Lock()
			p.traffic.requests = nil
			p.traffic.mu.Unlock()
			began := time.Now()
			f := p.follow(api.User(t, test.user, test.granted...))
			f.waitUntil("the Service is active", hasService(p.name("web")))
			f.waitUntil("demand is unavailable", demandIs(model.DemandUnavailable))
			if objects, _ := p.requestCount(); (objects > 0) != test.objects {
				t.Errorf("objects were requested %d times, want requests: %t", objects, test.objects)
			}
			if strings.Contains(f.log.String(), "timed out") {
				t.Errorf("a wait timed out, after %s:\n%s", time.Since(began), f.log.String())
			}
			if got := strings.Count(f.log.String(), "component demand"); got != 1 {
				t.Errorf("the remedy was logged %d times, want once:\n%s", got, f.log.String())
			}
		})
	}
}

// TestMeasuredDemandStaysDuringOutage deletes the Lease during the outage.
func TestMeasuredDemandStaysDuringOutage(t *testing.T) {
	p := newPublication(t)
	web := p.name("web")
	p.writeDemand("web", 100_000)
	p.service("web", measured)
	wire, config := newWire(t, p.proxy)
	f := p.follow(config)
	f.waitUntil("the measured demand", hasDemand(web, 100_000))
	wire.rejectConnections()
	wait.Until(t, "an outage of ServiceDemands", func() bool { _, isOut := f.outagesNow()["servicedemands"]; return isOut })
	p.writeDemand("web", 200_000)
	p.deleteLease()
	_, before := p.requestCount()
	wait.Until(t, "failed requests for the Lease", func() bool { _, now := p.requestCount(); return now >= before+2 })
	if !f.holds(hasDemand(web, 100_000)) {
		t.Error("the last known demand is not active during the outage")
	}
	p.renewLease(time.Now())
	wire.heal(true)
	f.waitUntil("the demand that changed during the outage", hasDemand(web, 200_000))
}
