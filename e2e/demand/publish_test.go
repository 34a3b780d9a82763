package demand_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand"
)

// newFakeClusterOfEight returns three nodes in each of two zones, and two nodes without a zone.
func newFakeClusterOfEight(t *testing.T) *fakeCluster {
	t.Helper()
	c := newFakeCluster(t, "a", "a", "a", "b", "b", "b", "", "")
	c.api.Create(t, objects.Namespace("shop", nil, nil))
	return c
}

// TestDemandIsPublishedOnRequest checks that published demand is created, not changed by a successor, updated and
// deleted.
func TestDemandIsPublishedOnRequest(t *testing.T) {
	c := newFakeClusterOfEight(t)
	web := c.service(t, "shop", "web", "ingress/nginx, measured")
	c.service(t, "shop", "assumed", "")
	c.service(t, "shop", "named", "ingress/nginx")
	for _, name := range []string{"web", "assumed", "named"} {
		c.setDemand("shop/"+name, 100, 100, 800, 100, 100, 100, 100, 100)
	}
	one := c.start(t, "one")

	first := c.waitFor(t, func(d *v1alpha1.ServiceDemand) bool {
		return zoneDemand(d, "a") > 600_000 && d.NodesReporting == 8
	})
	if owner := first.OwnerReferences; len(owner) != 1 || owner[0].UID != web.UID || owner[0].Controller != nil {
		t.Errorf("owner references %+v, want Service web", owner)
	}
	if len(first.Zones) != 3 || zoneDemand(first, "a")+zoneDemand(first, "b")+zoneDemand(first, "") != v1alpha1.PPM ||
		first.Zones[0].Zone != "" {
		t.Errorf("zones: %+v", first.Zones)
	}
	row := strings.Fields(strings.Split(c.api.Kubectl(t, "get", "servicedemands", "--namespace", "shop"), "\n")[1])
	wantZone := fmt.Sprintf(`{"demandPPM":%d,"zone":"a"}`, zoneDemand(first, "a"))
	if len(row) != 6 || row[0] != "web" || row[2] != "8" || !strings.Contains(row[5], wantZone) {
		t.Errorf("kubectl get prints %q", row)
	}
	holder := func() string {
		lease, err := c.api.Admin.CoordinationV1().Leases(system).Get(t.Context(), v1alpha1.DemandLeaseName, metav1.GetOptions{})
		if err != nil || lease.Spec.RenewTime == nil {
			return fmt.Sprint(err)
		}
		return *lease.Spec.HolderIdentity
	}
	wait.Equal(t, "the holder of the Lease", "one", holder)

	two := c.start(t, "two")
	one.stop()
	wait.Equal(t, "the holder of the Lease", "two", holder)
	before := c.object(t, "web").ResourceVersion
	_, began := two.lastRound()
	wait.Until(t, "ten more rounds", func() bool { _, rounds := two.lastRound(); return rounds >= began+10 })
	if after := c.object(t, "web").ResourceVersion; after != before || two.writes.All() != "map[]" {
		t.Errorf("the successor wrote %s: version %s after %s", two.writes.All(), after, before)
	}

	c.setDemand("shop/web", 10, 10, 10, 900, 900, 900, 10, 10)
	c.waitFor(t, func(d *v1alpha1.ServiceDemand) bool { return zoneDemand(d, "b") > 900_000 })
	for _, name := range []string{"assumed", "named"} {
		if object := c.object(t, name); object != nil {
			t.Errorf("demand of %s is published: %+v", name, object)
		}
	}
	if round, _ := two.lastRound(); len(round.Services) != 1 {
		t.Errorf("%d Services are compared with the default demand, want 1", len(round.Services))
	}

	c.api.Kubectl(t, "annotate", "service", "--namespace", "shop", "web", policy.DemandSourceAnnotation+"-")
	wait.Until(t, "the deletion of unrequested demand", func() bool { return c.object(t, "web") == nil })
	c.api.Kubectl(t, "annotate", "service", "--namespace", "shop", "web", policy.DemandSourceAnnotation+"=measured")
	c.waitFor(t, func(d *v1alpha1.ServiceDemand) bool { return zoneDemand(d, "b") > 900_000 })
	// This API server has no garbage collector for objects without an owner.
	c.api.Kubectl(t, "delete", "service", "--namespace", "shop", "web")
	wait.Until(t, "the deletion of demand without a Service", func() bool { return c.object(t, "web") == nil })
	// The observer is notified only after the response.
	wait.Until(t, "the successor reports one creation, updates, and two deletions", func() bool {
		got := two.reportedWrites()
		return got["create"] == 1 && got["delete"] == 2 && got["update"] > 0
	})
	if one.failures()+two.failures() > 0 {
		t.Errorf("the replicas reported %d and %d failures, want none", one.failures(), two.failures())
	}
}

// TestRejectionDoesNotStopOtherWrites checks that an object in a terminating Namespace is rejected, an object of another author
// stays, and all others are written.
func TestRejectionDoesNotStopOtherWrites(t *testing.T) {
	c := newFakeClusterOfEight(t)
	c.api.Create(t, objects.Namespace("ending", nil, nil))
	c.service(t, "ending", "web", "measured")
	c.api.Kubectl(t, "delete", "namespace", "ending", "--wait=false") // this API server never ends it
	c.service(t, "shop", "foreign", "measured")
	foreign := demandOf("shop", "foreign", map[string]uint32{"elsewhere": 1_000_000})
	must.Succeed(t, c.client.Create(t.Context(), foreign))
	c.service(t, "shop", "web", "measured")
	for _, name := range []string{"ending/web", "shop/foreign", "shop/web"} {
		c.setDemand(name, 100, 100, 100, 900, 900, 900, 100, 100)
	}
	r := c.start(t, "one")
	c.waitFor(t, func(d *v1alpha1.ServiceDemand) bool { return zoneDemand(d, "b") > 700_000 })
	r.log.WaitFor(t, "object=ending/web")
	r.log.WaitFor(t, "object=shop/foreign")
	_, began := r.lastRound()
	wait.Until(t, "five more rounds", func() bool { _, rounds := r.lastRound(); return rounds >= began+5 })
	if after := c.object(t, "foreign"); after.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("the object of another author changed: %+v", after)
	}
	if lines := r.log.Count("object=ending/web"); lines != 1 || !r.log.Has("being terminated") {
		t.Errorf("the rejection was logged %d times, want once, with its cause", lines)
	}
}

// TestLeaseIsRenewedWhile90PercentReport covers the coverage below which published demand expires in an hour. The zone of
// a proxy that never responds counts as assumed until it does.
func TestLeaseIsRenewedWhile90PercentReport(t *testing.T) {
	c := newFakeClusterOfEight(t)
	c.service(t, "shop", "web", "")
	c.setDemand("shop/web", 100, 100, 100, 900, 900, 900, 100) // the last node does not respond
	r := c.start(t, "one", func(o *demand.Options) { o.Settings.MeasuredByDefault = true })
	c.waitFor(t, func(d *v1alpha1.ServiceDemand) bool {
		return zoneDemand(d, "b") > 600_000 && zoneDemand(d, "") >= 240_000 && d.Zones[0].Assumed && d.NodesReporting == 7 && d.NodesTotal == 8
	})
	wait.Until(t, "ten rounds", func() bool { _, rounds := r.lastRound(); return rounds >= 10 })
	lease, err := c.api.Admin.CoordinationV1().Leases(system).Get(t.Context(), v1alpha1.DemandLeaseName, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("read the Lease while only 7 of 8 nodes report: got %+v, error %v, want NotFound", lease, err)
	}
	c.setDemand("shop/web", 100, 100, 100, 900, 900, 900, 100, 100)
	wait.Success(t, "the Lease", func() error {
		_, err := c.api.Admin.CoordinationV1().Leases(system).Get(t.Context(), v1alpha1.DemandLeaseName, metav1.GetOptions{})
		return err
	})
}

// demandOf returns a ServiceDemand with the given zones.
func demandOf(namespace, name string, zones map[string]uint32) *v1alpha1.ServiceDemand {
	d := &v1alpha1.ServiceDemand{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, ObservedAt: metav1.Now()}
	for zone, ppm := range zones {
		d.Zones = append(d.Zones, v1alpha1.ZoneDemand{Zone: zone, DemandPPM: ppm})
	}
	return d
}

// TestSchemaRejectsInvalidObjects checks invalid objects of any author.
func TestSchemaRejectsInvalidObjects(t *testing.T) {
	c := newFakeClusterOfEight(t)
	zones := func(count int) map[string]uint32 {
		zones := map[string]uint32{}
		for number := range count {
			zones[fmt.Sprintf("%s-%03d", strings.Repeat("z", 59), number)] = uint32(v1alpha1.PPM / count)
		}
		return zones
	}
	for _, test := range []struct {
		name  string
		zones map[string]uint32
		want  string // of the error; empty if the object is valid
	}{
		{"a million", map[string]uint32{"": 400_000, "b": 600_000}, ""},
		{"more than a million", map[string]uint32{"a": 400_001, "b": 600_000}, "exceeds a million"},
		{"a zone with more than a million", map[string]uint32{"a": 1_000_001}, "less than or equal to 1000000"},
		{"the maximum number of zones", zones(512), ""},
		{"513 zones", zones(513), "must have at most 512 items"},
		{"no zones", nil, "zones"},
	} {
		err := c.client.Create(t.Context(), demandOf("shop", "web", test.zones), client.DryRunAll)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
	if text := c.api.Kubectl(t, "explain", "servicedemands.zones.demandPPM"); !strings.Contains(text, "from this zone per million") {
		t.Errorf("kubectl explain prints %s", text)
	}
}

// TestSchemaKeepsFieldsOfAnotherVersion checks that no field is pruned, because proxies of another version read the
// object during an update.
func TestSchemaKeepsFieldsOfAnotherVersion(t *testing.T) {
	c := newFakeClusterOfEight(t)
	other := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": "shop", "name": "web"}, "nodesHeard": int64(7), "since": "2026-11-27T08:00:00Z",
		"zones": []any{map[string]any{"zone": "a", "asks": int64(1_000_000)}},
	}}
	other.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.ServiceDemandKind))
	want := other.DeepCopy().Object
	must.Succeed(t, c.client.Create(t.Context(), other))
	delete(want, "metadata")
	delete(other.Object, "metadata")
	if diff := cmp.Diff(want, other.Object); diff != "" {
		t.Errorf("the stored object (-written +got):\n%s", diff)
	}
	read := &v1alpha1.ServiceDemand{}
	must.Succeed(t, c.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, read))
	if demand, errs := convert.ServiceDemand(read); demand != nil || len(errs) == 0 {
		t.Errorf("a proxy reads the object of another version as %+v with errors %v, want only errors", demand, errs)
	}
	read.Zones, read.ObservedAt = []v1alpha1.ZoneDemand{{Zone: "b", DemandPPM: 1_000_000}}, metav1.Now()
	must.Succeed(t, c.client.Update(t.Context(), read))
	if demand, errs := convert.ServiceDemand(read); demand == nil || len(errs) > 0 {
		t.Errorf("after an update a proxy reads the object as %+v with errors %v, want no errors", demand, errs)
	}
}

// TestOnlyWebhookMayWriteDemand checks that neither proxies nor the owner of a Namespace may write ServiceDemands.
func TestOnlyWebhookMayWriteDemand(t *testing.T) {
	c := newFakeClusterOfEight(t)
	scheme := runtime.NewScheme()
	must.Succeed(t, v1alpha1.AddToScheme(scheme))
	tenant := c.api.User(t, "tenant", rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{rbacv1.VerbAll},
	})
	got := map[string]bool{}
	for user, config := range map[string]*rest.Config{
		"the webhook": c.api.Account(t, system, "vicinity-webhook"), "a tenant": tenant,
		"a proxy": c.api.Account(t, "kube-system", "vicinity-proxy"), "the account of the token": c.api.Account(t, system, account),
	} {
		userClient, err := client.New(config, client.Options{Scheme: scheme})
		must.Succeed(t, err)
		err = userClient.Create(t.Context(), demandOf("shop", "web", map[string]uint32{"a": 1_000_000}), client.DryRunAll)
		if err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", user, err)
		}
		got[user] = err == nil
	}
	want := map[string]bool{"the webhook": true, "a tenant": false, "a proxy": false, "the account of the token": false}
	if !maps.Equal(want, got) {
		t.Errorf("permission to write: %v, want %v", got, want)
	}
}
