package rules

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

func withKeys(text string) *Service {
	return &Service{Metadata: Metadata{Annotations: map[string]string{policy.TopologyKeysAnnotation: text}}}
}

func idsOf(violations []Violation) []ID {
	var ids []ID
	for _, violation := range violations {
		ids = append(ids, violation.Rule)
	}
	return ids
}

// An annotation may have 256 KiB, but a response must not.
func TestMessagesTruncateHugeValues(t *testing.T) {
	const maxLength = 1500
	for _, huge := range []string{
		strings.Repeat("x", 1<<18), strings.Repeat("é", 1<<17), strings.Repeat("\xff", 1<<18), strings.Repeat("\n", 1<<18),
		strings.Repeat(",", 1<<18), strings.Repeat("a b,", 16)[:63] + strings.Repeat("y", 1<<18), "x/" + strings.Repeat("x", 1<<18) + "/x",
	} {
		service := withKeys(huge)
		metadata := &service.Metadata
		for _, key := range []string{
			policy.TopologyModeAnnotation, policy.TopologyAwareHintsAnnotation, policy.Domain + huge, "service.kubernetes.io/topology" + huge,
			openYurtKeysAnnotation, lastAppliedAnnotation, policy.MaxLoadAnnotation, policy.ClientsAnnotation,
		} {
			metadata.Annotations[key] = huge
		}
		metadata.Labels = map[string]string{
			policy.AdmissionLabel: huge, policy.ServiceProxyNameLabel: huge, policy.Domain + huge: huge, policy.TopologyModeAnnotation: huge,
		}
		service.Spec.TrafficDistribution = &huge
		service.Spec.TopologyKeys = []string{huge}
		result := ReviewService(nil, service, Facts{}, nil)
		namespace := &Namespace{Metadata: Metadata{Annotations: map[string]string{
			policy.DefaultTopologyModeAnnotation: huge, policy.DefaultTopologyKeysAnnotation: huge,
			policy.DefaultTrafficDistributionAnnotation: huge, policy.Domain + huge: huge,
		}}}
		result.Denied = append(result.Denied, ReviewNamespace(nil, namespace, nil).Denied...)
		if len(result.Denied) < 6 || len(result.Warned) < 2 {
			t.Errorf("%.5q…: denied by %v, warned by %v", huge, idsOf(result.Denied), idsOf(result.Warned))
		}
		for _, violation := range slices.Concat(result.Denied, result.Warned) {
			message := violation.Message()
			if len(message) > maxLength || !utf8.ValidString(message) || strings.ContainsAny(message, "\n\x00\x1b") {
				t.Errorf("%d bytes: %.300q", len(message), message)
			}
		}
	}
}

// Values are truncated in messages, but compared in full.
func TestHugeValuesAreComparedInFull(t *testing.T) {
	huge := strings.Repeat("x", 1000) + " "
	old, updated := withKeys(huge+"a"), withKeys(huge+"b")
	if got := ReviewService(old, updated, Facts{}, nil); !slices.Equal(idsOf(got.Denied), []ID{"SVC003"}) {
		t.Errorf("denied by %v, want SVC003", idsOf(got.Denied))
	}
	if got := ReviewService(old, old, Facts{}, nil); len(got.Denied) > 0 {
		t.Errorf("the unchanged Service is denied by %v", idsOf(got.Denied))
	}
}

func TestNilSettingsAreDefaults(t *testing.T) {
	service := withKeys("a b")
	nilResult, zeroResult := ReviewService(nil, service, Facts{}, nil), ReviewService(nil, service, Facts{}, &Settings{})
	if !slices.Equal(idsOf(nilResult.Denied), idsOf(zeroResult.Denied)) || len(zeroResult.Denied) == 0 {
		t.Errorf("denied by %v and %v", idsOf(nilResult.Denied), idsOf(zeroResult.Denied))
	}
}

func TestMessagesHaveSuggestions(t *testing.T) {
	annotated := func(key, value string) *Service {
		return &Service{Metadata: Metadata{Annotations: map[string]string{key: value}}}
	}
	labelled := func(key, value string) *Service {
		return &Service{Metadata: Metadata{Labels: map[string]string{key: value}}}
	}
	bounded := func(key, value string) *Service {
		service := annotated(policy.TopologyModeAnnotation, policy.ModeBalanced)
		service.Metadata.Annotations[key] = value
		return service
	}
	for want, service := range map[string]*Service{
		`did you mean "Auto"?`:                                            annotated(policy.TopologyModeAnnotation, " AUTO "),
		`did you mean "Disabled"?`:                                        annotated(policy.TopologyModeAnnotation, "disable"),
		`set trafficDistribution: PreferSameZone`:                         annotated(policy.TopologyModeAnnotation, "prefer samezone"),
		`did you mean vicinity.dev/topology-keys?`:                        annotated("vicinity.dev/topology-key", "*"),
		`did you mean spec.trafficDistribution?`:                          annotated("vicinity.dev/default-traffic-distribution", "PreferClose"),
		`did you mean the annotation service.kubernetes.io/topology-mode`: annotated("service.kubernetes.io/topology_mode", "Auto"),
		`such as "120%"`:                                                  bounded(policy.MaxLoadAnnotation, "1.2"),
		`did you mean "vicinity.dev/balanced"?`:                           annotated(policy.TopologyModeAnnotation, "Balanced"),
		`must be an integer`:                                              bounded(policy.MaxLoadAnnotation, "lots"),
		`did you mean vicinity.dev/max-load?`:                             annotated("vicinity.dev/maxload", "120%"),
		`did you mean vicinity.dev/clients?`:                              annotated("vicinity.dev/client", "a/b"),
		`did you mean service.kubernetes.io/topology-mode?`:               annotated("vicinity.dev/topology-mode", "balanced"),
		`it is a value of service.kubernetes.io/topology-mode`:            annotated(policy.ModeBalanced, "true"),
		`did you mean the annotation vicinity.dev/max-load?`:              annotated("vicinity.de/max-load", "120%"),
		`did you mean "ingress/nginx"?`:                                   bounded(policy.ClientsAnnotation, "nginx.ingress.svc"),
		`make it a label`:                                                 annotated(policy.AdmissionLabel, "disabled"),
		`separate keys with commas`:                                       annotated(policy.TopologyKeysAnnotation, "rack; *"),
		`make it an annotation`:                                           labelled(policy.TopologyKeysAnnotation, "rack"),
		`did you mean vicinity.dev/admission?`:                            labelled("vicinity.dev/admision", "disabled"),
	} {
		result := ReviewService(nil, service, Facts{}, nil)
		all := slices.Concat(result.Denied, result.Warned)
		if len(all) != 1 || !strings.Contains(all[0].Message(), want) {
			t.Errorf("want %q, got %v", want, all)
		}
	}
}
