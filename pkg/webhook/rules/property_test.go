package rules_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// randomInput generates Services with settings that users write, valid and invalid.
type randomInput struct{ *rand.Rand }

func (w randomInput) pick(values ...string) string { return values[w.IntN(len(values))] }

// mostly returns the first value more often than not.
func (w randomInput) mostly(usual string, others ...string) string {
	if w.IntN(3) > 0 {
		return usual
	}
	return w.pick(others...)
}

const absent = "\x00"

// keys returns a list of keys, which is valid about every second time.
func (w randomInput) keys() string {
	if w.IntN(2) == 0 {
		return w.pick("kubernetes.io/hostname, ", "") + w.pick("topology.kubernetes.io/zone, ", "example.com/rack,", "") + "*"
	}
	entries := []string{
		"*", "topology.kubernetes.io/zone", "topology.kubernetes.io/region", "kubernetes.io/hostname", "example.com/rack", "rack",
		"failure-domain.beta.kubernetes.io/zone", "a b", "", "a/b/c", "Auto", " * ", "\ttopology.kubernetes.io/zone\n",
	}
	var picked []string
	for range 1 + w.IntN(4) {
		picked = append(picked, w.pick(entries...))
	}
	if w.IntN(20) == 0 {
		picked = append(picked, strings.Split(strings.Repeat("x,", 17), ",")...)
	}
	if w.IntN(2) == 0 && !slices.Contains(picked, "*") {
		picked = append(picked, "*")
	}
	return strings.Join(picked, w.mostly(",", ", ", ";", " "))
}

func (w randomInput) service() *corev1.Service {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: map[string]string{}, Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{
			Type:            corev1.ServiceType(w.mostly("ClusterIP", "NodePort", "LoadBalancer", "ExternalName")),
			ClusterIP:       w.mostly("10.96.0.1", "None"),
			Ports:           []corev1.ServicePort{{Port: 80}},
			SessionAffinity: corev1.ServiceAffinity(w.mostly("None", "ClientIP")),
		},
	}
	put(service.Annotations, policy.TopologyKeysAnnotation, w.mostly(w.keys(), absent))
	put(service.Annotations, policy.TopologyModeAnnotation,
		w.mostly(absent, "Auto", "auto", "AUTO", "Disabled", "x", "", "a/b", "PreferClose", "vicinity.dev/balanced",
			"vicinity.dev/balanced", "vicinity.dev/balanced", "vicinity.dev/x", "Vicinity.dev/Balanced "))
	put(service.Annotations, policy.TopologyAwareHintsAnnotation,
		w.mostly(absent, absent, "Auto", "auto", "Disabled", "x", "vicinity.dev/balanced"))
	put(service.Annotations, policy.MaxLoadAnnotation, w.mostly(absent, "120%", "1000%", "100%", "1.2", "120", "", "99%"))
	put(service.Annotations, policy.ClientsAnnotation,
		w.mostly(absent, absent, "ingress/nginx", "ingress/nginx, shop/frontend", "frontend", "", "a/b,a/b", "a/b, measured"))
	put(service.Annotations, policy.DemandSourceAnnotation, w.mostly(absent, absent, policy.Measured, policy.Measured, "Measured", ""))
	put(service.Annotations, "vicinity.dev/topology-key", w.mostly(absent, absent, absent, "*"))
	put(service.Labels, policy.ServiceProxyNameLabel, w.mostly(absent, "vicinity", "other", ""))
	put(service.Labels, policy.TopologyKeysAnnotation, w.mostly(absent, absent, absent, "rack"))
	put(service.Labels, policy.AdmissionLabel, w.mostly(absent, absent, absent, absent, "enabled"))
	if w.IntN(4) > 0 {
		service.Spec.Selector = map[string]string{"app": "web"}
	}
	if distribution := w.mostly(absent, policy.PreferSameNode, policy.PreferSameZone, policy.PreferClose); distribution != absent {
		service.Spec.TrafficDistribution = &distribution
	}
	if service.Spec.Type != corev1.ServiceTypeExternalName {
		service.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicy(w.mostly("Cluster", "Local")))
	}
	if service.Spec.Type == corev1.ServiceTypeNodePort || service.Spec.Type == corev1.ServiceTypeLoadBalancer {
		service.Spec.ClusterIP = "10.96.0.1"
		service.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicy(w.mostly("Cluster", "Local"))
	}
	return service
}

func put(all map[string]string, key, value string) {
	if value != absent {
		all[key] = value
	}
}

// toReviewed returns a Service in the form that the webhook gets.
func toReviewed(service *corev1.Service) *rules.Service {
	spec := rules.ServiceSpec{
		Type: string(service.Spec.Type), ClusterIP: service.Spec.ClusterIP, Selector: service.Spec.Selector,
		ExternalTrafficPolicy: string(service.Spec.ExternalTrafficPolicy), TrafficDistribution: service.Spec.TrafficDistribution,
		SessionAffinity: string(service.Spec.SessionAffinity),
	}
	if set := service.Spec.InternalTrafficPolicy; set != nil {
		spec.InternalTrafficPolicy = string(*set)
	}
	metadata := rules.Metadata{
		Name: service.Name, Namespace: service.Namespace, Labels: service.Labels, Annotations: service.Annotations,
	}
	return &rules.Service{Metadata: metadata, Spec: spec}
}

// An update after which the proxy ignores keys is reported, unless the same keys were reported before.
func TestIgnoredSettingsAreReportedOnUpdate(t *testing.T) {
	w := randomInput{rand.New(rand.NewPCG(7, 11))}
	ignored, kept := 0, 0
	for range 20_000 {
		oldService, updated := w.service(), w.service()
		if w.IntN(2) > 0 { // so that some stay unchanged
			updated.Annotations = maps.Clone(oldService.Annotations)
		}
		if !isIgnored(updated, "") {
			continue
		}
		ignored++
		result := rules.ReviewService(toReviewed(oldService), toReviewed(updated), rules.Facts{}, nil)
		if len(result.Denied)+len(result.Warned) > 0 {
			continue
		}
		kept++
		old := vicinityKeysOf(oldService)
		for key, value := range ignoredKeysOf(updated) {
			if oldValue, had := old[key]; !had || oldValue != value {
				t.Fatalf("no violation, although the proxy ignores %s of %v, updated from %v", key, updated, oldService)
			}
		}
		if !isIgnored(oldService, "") {
			t.Fatalf("no violation, although the proxy ignores annotations of %v, and used those of %v", updated, oldService)
		}
	}
	if ignored < 1000 || kept < 100 {
		t.Errorf("only %d ignored, %d of them as before", ignored, kept)
	}
}

// vicinityKeysOf returns the annotations that Vicinity's proxy reads.
func vicinityKeysOf(service *corev1.Service) map[string]string {
	settings := map[string]string{}
	for _, key := range []string{
		policy.TopologyKeysAnnotation, policy.MaxLoadAnnotation, policy.ClientsAnnotation, policy.DemandSourceAnnotation,
	} {
		if value, present := service.Annotations[key]; present {
			settings[key] = value
		}
	}
	for _, key := range []string{policy.TopologyModeAnnotation, policy.TopologyAwareHintsAnnotation} {
		if value := service.Annotations[key]; value == policy.ModeBalanced || policy.IsUnknownMode(value) {
			settings[key] = value
		}
	}
	return settings
}

// isIgnored reports whether the proxy of that name ignores a Vicinity annotation, or does not serve the Service.
func isIgnored(service *corev1.Service, proxyName string) bool {
	served, _ := convert.Service(service, convert.View{ServiceProxyName: proxyName})
	if served == nil {
		return len(vicinityKeysOf(service)) > 0
	}
	return len(ignoredFields(served)) > 0
}

// ignoredFields returns the annotations that the proxy ignores.
func ignoredFields(served *model.Service) map[string]bool {
	ignored := map[string]bool{}
	for _, finding := range served.Findings {
		if finding.Code.IsAnnotation() {
			ignored[finding.Field] = true
		}
	}
	return ignored
}

// ignoredKeysOf returns the Vicinity annotations that the proxy without a name ignores. If it ignores the keys, it
// ignores all of them.
func ignoredKeysOf(service *corev1.Service) map[string]string {
	settings := vicinityKeysOf(service)
	served, _ := convert.Service(service, convert.View{})
	_, hasKeys := settings[policy.TopologyKeysAnnotation]
	if served == nil || hasKeys && served.Topology.Keys == nil {
		return settings
	}
	maps.DeleteFunc(settings, func(key, _ string) bool { return !ignoredFields(served)[key] })
	return settings
}

// rulesOfIgnoredSettings are the rules whose denials mean that the proxy ignores something.
var rulesOfIgnoredSettings = []rules.ID{
	"SVC001", "SVC002", "SVC003", "SVC004", "SVC005", "SVC006", "SVC010", "SVC011", "SVC012", "SVC013", "SVC014", "SVC015",
}

// The proxy ignores what the rules deny, and nothing that they admit without a warning.
func TestProxyIgnoresDeniedSettings(t *testing.T) {
	w := randomInput{rand.New(rand.NewPCG(19, 23))}
	byRule := map[rules.ID]int{}
	for range 30_000 {
		service := w.service()
		served, _ := convert.Service(service, convert.View{})
		if served == nil {
			continue
		}
		result := rules.ReviewService(nil, toReviewed(service), rules.Facts{}, nil)
		for _, violation := range result.Denied {
			if !slices.Contains(rulesOfIgnoredSettings, violation.Rule) {
				continue
			}
			byRule[violation.Rule]++
			if len(ignoredFields(served)) == 0 {
				t.Fatalf("%s, but the proxy uses all annotations of %v", violation.Message(), service)
			}
		}
		if len(result.Denied)+len(result.Warned) == 0 && len(ignoredFields(served)) > 0 {
			t.Fatalf("%v is admitted without a warning, but the proxy ignores something: %v", service, served.Findings)
		}
	}
	for _, rule := range rulesOfIgnoredSettings {
		if byRule[rule] < 10 {
			t.Errorf("only %d Services are denied by %s", byRule[rule], rule)
		}
	}
}

// The proxy implements everything that is admitted without a warning. What it would not do is reported.
func TestProxyAppliesAdmittedSettings(t *testing.T) {
	w := randomInput{rand.New(rand.NewPCG(3, 5))}
	applied, ignored := 0, 0
	for range 40_000 {
		service, proxyName := w.service(), w.mostly("", "vicinity")
		result := rules.ReviewService(nil, toReviewed(service), rules.Facts{}, &rules.Settings{ProxyName: proxyName})
		isClean := len(result.Denied)+len(result.Warned) == 0
		text, hasKeys := service.Annotations[policy.TopologyKeysAnnotation]
		hasSettings := len(vicinityKeysOf(service)) > 0
		served, errs := convert.Service(service, convert.View{ServiceProxyName: proxyName})
		switch {
		case len(errs) > 0:
			t.Fatalf("the test generated an invalid Service: %v", errs)
		case isIgnored(service, proxyName):
			ignored++
			if isClean {
				t.Fatalf("no violation, although the proxy ignores annotations of %v", service)
			}
		case hasKeys && isClean:
			applied++
			want, err := policy.ParseKeys(text)
			if diff := cmp.Diff(want, served.Topology.Keys); diff != "" || err != nil || served.InternalTrafficLocal {
				t.Fatalf("%v is admitted, but not applied (-want +got, %v):\n%s", service, err, diff)
			}
		}
		if hasSettings && isClean {
			checkBound(t, service, served.Topology)
		}
		checkHints(t, service, served != nil, isClean)
	}
	if applied < 300 || ignored < 1000 {
		t.Errorf("only %d applied, %d ignored", applied, ignored)
	}
}

// checkBound checks that a bound which is admitted without a warning applies as written, and so do clients and the
// demand source.
func checkBound(t *testing.T, service *corev1.Service, got policy.Topology) {
	t.Helper()
	var want uint64
	if policy.ModeOf(service.Annotations).IsBalanced() {
		want = policy.DefaultLoadBound
	}
	if text, present := service.Annotations[policy.MaxLoadAnnotation]; present {
		want, _ = policy.ParseMaxLoad(text)
	}
	clients, hasClients := service.Annotations[policy.ClientsAnnotation]
	_, hasSource := service.Annotations[policy.DemandSourceAnnotation]
	if got.MaxLoad != want || hasClients && strings.Join(got.Clients, ", ") != clients || hasSource != got.Measured {
		t.Fatalf("%v is admitted, but not applied: %+v", service, got)
	}
}

// checkHints checks that a topology mode or trafficDistribution which is admitted without a warning has hints, and a
// proxy that reads them, and that neither of two settings is without effect.
func checkHints(t *testing.T, service *corev1.Service, isServed, isClean bool) {
	t.Helper()
	mode := policy.ModeOf(service.Annotations)
	_, hasKeys := service.Annotations[policy.TopologyKeysAnnotation]
	isDistributed := service.Spec.TrafficDistribution != nil
	isProxied := service.Spec.ClusterIP != corev1.ClusterIPNone && service.Spec.Type != corev1.ServiceTypeExternalName
	if !mode.IsAuto() && !isDistributed || !isClean {
		return
	}
	_, hasLoad := service.Annotations[policy.MaxLoadAnnotation]
	isBounded := isServed && (hasLoad || mode.IsBalanced()) // the proxy reads no hints
	if !isProxied || len(service.Spec.Selector) == 0 && !isBounded || mode.IsAuto() && isDistributed || isServed && hasKeys {
		t.Fatalf("a setting without effect is not reported: %v", service)
	}
}

// The invariants of updates, between any two Services.
func TestUpdateInvariants(t *testing.T) {
	w := randomInput{rand.New(rand.NewPCG(7, 11))}
	denied := 0
	for range 10_000 {
		old, service := toReviewed(w.service()), toReviewed(w.service())
		settings := &rules.Settings{Strict: w.IntN(2) == 0, ProxyName: w.mostly("", "vicinity")}
		created := rules.ReviewService(nil, service, rules.Facts{}, settings)
		updated := rules.ReviewService(old, service, rules.Facts{}, settings)
		if len(updated.Denied) > 0 {
			denied++
		}
		for _, violation := range updated.Denied {
			if !slices.ContainsFunc(created.Denied, isSame(violation)) && !isMaskable(violation.Rule) {
				t.Fatalf("an update of %v to %v is denied by %s, which would not deny a create", old, service, violation.Message())
			}
		}
		if same := rules.ReviewService(service, service, rules.Facts{}, settings); len(same.Denied)+len(same.Warned) > 0 {
			t.Fatalf("unchanged %v is reported: %v", service, same)
		}
		again := rules.ReviewService(old, service, rules.Facts{}, settings)
		if !slices.EqualFunc(again.Denied, updated.Denied, areSame) || !slices.EqualFunc(again.Warned, updated.Warned, areSame) {
			t.Fatalf("the same review has two results: %v and %v", updated, again)
		}
		checkOrder(t, updated)
		checkOrder(t, created)
	}
	if denied < 1000 {
		t.Errorf("only %d updates were denied", denied)
	}
}

// isMaskable reports whether other denials hide a rule's violations in a create, where they are new themselves.
func isMaskable(id rules.ID) bool {
	return slices.Contains([]rules.ID{"SVC012", "SVC013", "SVC014", "SVC020", "SVC021"}, id)
}

func isSame(a rules.Violation) func(rules.Violation) bool {
	return func(b rules.Violation) bool { return areSame(a, b) }
}

func areSame(a, b rules.Violation) bool {
	return a.Rule == b.Rule && a.Error.Error() == b.Error.Error()
}

// checkOrder checks the order of the rules, then of the paths, and that there are no duplicates.
func checkOrder(t *testing.T, result rules.Result) {
	t.Helper()
	all := rules.Rules()
	indexOf := func(id rules.ID) int {
		return slices.IndexFunc(all, func(rule rules.Rule) bool { return rule.ID == id })
	}
	for _, list := range [][]rules.Violation{result.Denied, result.Warned} {
		for i := 1; i < len(list); i++ {
			earlier, later := list[i-1], list[i]
			if indexOf(earlier.Rule) > indexOf(later.Rule) ||
				earlier.Rule == later.Rule && earlier.Error.Field > later.Error.Field || areSame(earlier, later) {
				t.Fatalf("%s comes before %s, or is a duplicate", earlier.Message(), later.Message())
			}
		}
	}
}

// Fixing a problem never makes an update fail, whatever is removed from a Service with violations.
func TestRemovingSettingsIsNotDenied(t *testing.T) {
	w := randomInput{rand.New(rand.NewPCG(13, 17))}
	for range 10_000 {
		old, updated := w.service(), (*corev1.Service)(nil)
		updated = old.DeepCopy()
		for _, key := range []string{
			policy.TopologyModeAnnotation, policy.TopologyAwareHintsAnnotation, policy.TopologyKeysAnnotation, policy.MaxLoadAnnotation,
			policy.ClientsAnnotation, policy.DemandSourceAnnotation,
		} {
			if w.IntN(2) == 0 {
				delete(updated.Annotations, key)
			}
		}
		if w.IntN(2) == 0 {
			updated.Spec.TrafficDistribution = nil
		}
		_, hadHints := old.Annotations[policy.TopologyAwareHintsAnnotation]
		_, hasHints := updated.Annotations[policy.TopologyAwareHintsAnnotation]
		if mode := policy.ModeOf(updated.Annotations); hadHints && !hasHints && (mode.IsAuto() || mode.IsBalanced()) {
			continue // this exposes the other annotation, which now counts
		}
		if hasNothingToBound(updated) {
			continue // the preference is gone, and only the bound remains
		}
		got := rules.ReviewService(toReviewed(old), toReviewed(updated), rules.Facts{}, &rules.Settings{Strict: true})
		if len(got.Denied) > 0 {
			t.Fatalf("update of %v to %v is denied: %s", old, updated, got.Denied[0].Message())
		}
	}
}

// hasNothingToBound reports whether a Service has annotations about a bound, and nothing to bound.
func hasNothingToBound(service *corev1.Service) bool {
	settings := vicinityKeysOf(service)
	delete(settings, policy.TopologyKeysAnnotation)
	keys, _ := policy.ParseKeys(service.Annotations[policy.TopologyKeysAnnotation])
	distribution := ""
	if set := service.Spec.TrafficDistribution; set != nil {
		distribution = *set
	}
	return len(settings) > 0 && policy.KeysToBound(keys, distribution, policy.ModeOf(service.Annotations)) == nil
}
