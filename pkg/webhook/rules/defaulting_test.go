package rules

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// plainService returns a Service that may get any default, in the form that a webhook gets.
func plainService(changes ...func(*Service)) *Service {
	service := &Service{
		Metadata: Metadata{Name: "web", Namespace: "shop"},
		Spec: ServiceSpec{
			Type: "ClusterIP", Selector: map[string]string{"app": "web"}, InternalTrafficPolicy: "Cluster", SessionAffinity: "None",
		},
	}
	for _, change := range changes {
		change(service)
	}
	return service
}

func annotated(key, value string) func(*Service) {
	return func(s *Service) {
		if s.Metadata.Annotations == nil {
			s.Metadata.Annotations = map[string]string{}
		}
		s.Metadata.Annotations[key] = value
	}
}

func labelled(key, value string) func(*Service) {
	return func(s *Service) { s.Metadata.Labels = map[string]string{key: value} }
}

// namespaceWith returns a Namespace with these annotations, given as keys and values.
func namespaceWith(keysAndValues ...string) NamespaceDefaults {
	annotations := map[string]string{}
	for i := 0; i < len(keysAndValues); i += 2 {
		annotations[keysAndValues[i]] = keysAndValues[i+1]
	}
	return NamespaceDefaults{IsLoaded: true, Annotations: annotations}
}

// inZones returns a cluster of a current version with one Node in each zone.
func inZones(zones ...string) Facts {
	nodes := NewNodeLabels()
	for _, zone := range zones {
		nodes.Put("node-"+zone, map[string]string{string(policy.Zone): zone})
	}
	return Facts{Nodes: nodes, Kubernetes: version.MustParseSemantic("v1.36.3")}
}

var (
	auto      = Default{TopologyMode, "Auto"}
	disabled  = Default{TopologyMode, "Disabled"}
	sameZone  = Default{TrafficDistribution, "PreferSameZone"}
	sameNode  = Default{TrafficDistribution, "PreferSameNode"}
	zoneOrAny = Default{TopologyKeys, "topology.kubernetes.io/zone, *"}
)

func adds(add Default, source DefaultSource) DefaultDecision {
	return DefaultDecision{Add: &add, Source: source}
}

func addsNothing(source DefaultSource, reason string) DefaultDecision {
	return DefaultDecision{Source: source, Reason: reason}
}

func TestDecideDefaultPrecedence(t *testing.T) {
	const (
		mode         = policy.DefaultTopologyModeAnnotation
		keys         = policy.DefaultTopologyKeysAnnotation
		distribution = policy.DefaultTrafficDistributionAnnotation
		optOut       = "vicinity.dev/admission"
	)
	for name, c := range map[string]struct {
		service   *Service
		namespace NamespaceDefaults
		settings  *Settings
		want      DefaultDecision
	}{
		"no setting anywhere: a fresh install mutates nothing": {want: addsNothing(FromNone, "")},
		"nil Settings are those of a fresh install":            {settings: nil, want: addsNothing(FromNone, "")},
		"the cluster":                 {settings: &Settings{Default: &sameZone}, want: adds(sameZone, FromCluster)},
		"the cluster, topology keys":  {settings: &Settings{Default: &zoneOrAny}, want: adds(zoneOrAny, FromCluster)},
		"the Namespace":               {namespace: namespaceWith(mode, "Auto"), want: adds(auto, FromNamespace)},
		"the Namespace has Disabled":  {namespace: namespaceWith(mode, "Disabled"), want: adds(disabled, FromNamespace)},
		"the Namespace, distribution": {namespace: namespaceWith(distribution, "PreferSameNode"), want: adds(sameNode, FromNamespace)},
		"the Namespace, keys, unchanged": {namespace: namespaceWith(keys, " a ,*"),
			want: adds(Default{TopologyKeys, " a ,*"}, FromNamespace)},
		"the Namespace before the cluster": {
			namespace: namespaceWith(mode, "Auto"), settings: &Settings{Default: &sameZone}, want: adds(auto, FromNamespace),
		},
		"None overrides the cluster": {
			namespace: namespaceWith(mode, "None"), settings: &Settings{Default: &sameZone},
			want: addsNothing(FromNamespace, "the Namespace has vicinity.dev/default-topology-mode=None"),
		},
		"None of another kind overrides the cluster, too": {
			namespace: namespaceWith(distribution, "None"), settings: &Settings{Default: &auto},
			want: addsNothing(FromNamespace, "the Namespace has vicinity.dev/default-traffic-distribution=None"),
		},
		"None is not a topology key": {
			namespace: namespaceWith(keys, "None"), settings: &Settings{Default: &auto},
			want: addsNothing(FromNamespace, "the Namespace has vicinity.dev/default-topology-keys=None"),
		},
		"an invalid value of the Namespace": {
			namespace: namespaceWith(mode, "AUTO"), settings: &Settings{Default: &sameZone},
			want: addsNothing(FromNamespace, "the Namespace's vicinity.dev/default-topology-mode cannot be used: "+
				`"AUTO" must be one of: Auto, Disabled, vicinity.dev/balanced`),
		},
		"an older value in the Namespace": {
			namespace: namespaceWith(distribution, "PreferClose"),
			want: addsNothing(FromNamespace, "the Namespace's vicinity.dev/default-traffic-distribution cannot be used: "+
				`"PreferClose" must be one of: PreferSameZone, PreferSameNode`),
		},
		"invalid keys in the Namespace": {
			namespace: namespaceWith(keys, "*,a"),
			want: addsNothing(FromNamespace, "the Namespace's vicinity.dev/default-topology-keys cannot be used: "+
				`entry 1 "*" matches every endpoint, so the keys after it would never be tried; move it to the end`),
		},
		"an empty value": {
			namespace: namespaceWith(mode, ""),
			want: addsNothing(FromNamespace, "the Namespace's vicinity.dev/default-topology-mode cannot be used: "+
				`"" must be one of: Auto, Disabled, vicinity.dev/balanced`),
		},
		"two kinds of default": {
			namespace: namespaceWith(mode, "Auto", keys, "*"), settings: &Settings{Default: &sameZone},
			want: addsNothing(FromNamespace,
				"the Namespace has more than one default: vicinity.dev/default-topology-mode, vicinity.dev/default-topology-keys"),
		},
		"two kinds of default, even if one is None": {
			namespace: namespaceWith(mode, "Auto", distribution, "None"),
			want: addsNothing(FromNamespace,
				"the Namespace has more than one default: vicinity.dev/default-topology-mode, vicinity.dev/default-traffic-distribution"),
		},
		"the Service opts out": {
			service: plainService(labelled(optOut, "disabled")), namespace: namespaceWith(mode, "Auto"), settings: &Settings{Default: &sameZone},
			want: addsNothing(FromOptOut, "the Service has the label vicinity.dev/admission=disabled"),
		},
		"the Namespace opts out": {
			namespace: NamespaceDefaults{IsLoaded: true, Labels: map[string]string{optOut: "disabled"},
				Annotations: map[string]string{mode: "Auto"}},
			want: addsNothing(FromOptOut, "the Namespace has the label vicinity.dev/admission=disabled"),
		},
		"another value of the label does not opt out": {
			service: plainService(labelled(optOut, "enabled")), settings: &Settings{Default: &auto}, want: adds(auto, FromCluster),
		},
		"trafficDistribution on the Service": {
			service:  plainService(func(s *Service) { s.Spec.TrafficDistribution = new("PreferSameNode") }, labelled(optOut, "disabled")),
			settings: &Settings{Default: &auto}, want: addsNothing(FromService, "spec.trafficDistribution is set"),
		},
		"an empty trafficDistribution": {
			service: plainService(func(s *Service) { s.Spec.TrafficDistribution = new("") }), settings: &Settings{Default: &auto},
			want: addsNothing(FromService, "spec.trafficDistribution is set"),
		},
		"topology-mode on the Service, whatever its value": {
			service: plainService(annotated(policy.TopologyModeAnnotation, "nonsense")), namespace: namespaceWith(mode, "Auto"),
			want: addsNothing(FromService, "the annotation service.kubernetes.io/topology-mode is set"),
		},
		"the deprecated annotation, which the API server rejects with another mode": {
			service: plainService(annotated(policy.TopologyAwareHintsAnnotation, "auto")), namespace: namespaceWith(mode, "Auto"),
			want: addsNothing(FromService, "the annotation service.kubernetes.io/topology-aware-hints is set"),
		},
		"topology keys on the Service, even if they are empty": {
			service: plainService(annotated(policy.TopologyKeysAnnotation, "")), settings: &Settings{Default: &sameZone},
			want: addsNothing(FromService, "the annotation vicinity.dev/topology-keys is set"),
		},
		"the Namespace is excluded": {
			namespace: namespaceWith(mode, "Auto"), settings: &Settings{ExcludedNamespaces: []string{"kube-system", "shop"}, Default: &auto},
			want: addsNothing(FromCluster, "the configuration excludes this Namespace"),
		},
		"the configuration's default is invalid": {
			settings: &Settings{Default: &Default{TopologyMode, "auto"}},
			want: addsNothing(FromCluster,
				`the configuration's default cannot be used: "auto" must be one of: Auto, Disabled, vicinity.dev/balanced`),
		},
		"the configuration's default is of an unknown kind": {
			settings: &Settings{Default: &Default{"topology", "Auto"}},
			want:     addsNothing(FromCluster, `the configuration's default cannot be used: "topology" is not a topology setting`),
		},
		"the configuration's default is None for keys": {
			settings: &Settings{Default: &Default{TopologyKeys, "None"}},
			want:     addsNothing(FromCluster, "the configuration's default cannot be used: None is not a list of keys"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			service, namespace := c.service, c.namespace
			if service == nil {
				service = plainService()
			}
			namespace.IsLoaded = true
			got := DecideDefault(service, namespace, inZones("a", "b"), c.settings, false)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnknownNamespaceGetsNoDefault(t *testing.T) {
	got := DecideDefault(plainService(), NamespaceDefaults{}, inZones("a", "b"), &Settings{Default: &auto}, false)
	if diff := cmp.Diff(addsNothing(FromNone, "the Namespace is not known yet"), got); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
}

// everyDefault has one default of each kind with exemptions of its own.
var everyDefault = []Default{auto, disabled, sameZone, sameNode, zoneOrAny, {TopologyKeys, "*"}}

func TestExemptServicesGetNoDefault(t *testing.T) {
	const (
		noProxyByName = "ExternalName Services have no proxy"
		noProxy       = "headless Services have no proxy"
		overridden    = "internalTrafficPolicy=Local overrides it"
		otherProxy    = "another proxy serves it"
		noSelector    = "without a selector no controller writes EndpointSlice hints"
		notWithKeys   = "topology keys may not be used with externalTrafficPolicy=Local"
		affinity      = "sessionAffinity=ClientIP would be kept within fewer endpoints"
		noVersion     = "the version of Kubernetes is not known yet"
		tooEarly      = "Kubernetes before 1.34 does not support this trafficDistribution"
		oneZone       = "the Nodes are in fewer than two zones"
	)
	const proxyName = "service.kubernetes.io/service-proxy-name"
	all := func(reason string) []string { return []string{reason, reason, reason, reason, reason, reason} }
	for name, c := range map[string]struct {
		change   func(*Service)
		settings Settings
		facts    Facts
		isUpdate bool
		want     []string // the reason for each of everyDefault; empty where it is added
	}{
		"a plain Service gets any default": {want: all("")},
		"ExternalName":                     {change: func(s *Service) { s.Spec.Type = "ExternalName" }, want: all(noProxyByName)},
		"headless":                         {change: func(s *Service) { s.Spec.ClusterIP = "None" }, want: all(noProxy)},
		"no ClusterIP yet is not headless": {change: func(s *Service) { s.Spec.ClusterIP = "" }, want: all("")},
		"no selector": {
			change: func(s *Service) { s.Spec.Selector = nil },
			want:   []string{noSelector, noSelector, noSelector, noSelector, "", ""},
		},
		"internalTrafficPolicy Local": {change: func(s *Service) { s.Spec.InternalTrafficPolicy = "Local" }, want: all(overridden)},
		"externalTrafficPolicy Local": {
			change: func(s *Service) { s.Spec.Type, s.Spec.ExternalTrafficPolicy = "LoadBalancer", "Local" },
			want:   []string{"", "", "", "", notWithKeys, ""},
		},
		"sessionAffinity ClientIP": {change: func(s *Service) { s.Spec.SessionAffinity = "ClientIP" }, want: all(affinity)},
		"sessionAffinity ClientIP, if enabled": {
			change: func(s *Service) { s.Spec.SessionAffinity = "ClientIP" }, settings: Settings{DefaultWithAffinity: true}, want: all(""),
		},
		"default/kubernetes": {
			change: func(s *Service) { s.Metadata.Namespace, s.Metadata.Name = "default", "kubernetes" },
			want:   all("the API server writes the EndpointSlices of default/kubernetes, without zones"),
		},
		"a Service named kubernetes in another Namespace": {change: func(s *Service) { s.Metadata.Name = "kubernetes" }, want: all("")},
		"another Service in default":                      {change: func(s *Service) { s.Metadata.Namespace = "default" }, want: all("")},
		"handled by another proxy":                        {change: labelled(proxyName, "other"), want: all(otherProxy)},
		"handled by no proxy":                             {change: labelled(proxyName, ""), want: all(otherProxy)},
		"handled by this proxy": {change: labelled(proxyName, "vicinity"),
			settings: Settings{ProxyName: "vicinity"}, want: all("")},
		"without the proxy's name": {settings: Settings{ProxyName: "vicinity"}, want: all(otherProxy)},
		"an update":                {isUpdate: true, want: all("only new Services get defaults")},
		"an update, if enabled": {
			isUpdate: true, settings: Settings{DefaultOnUpdate: true}, want: all(""),
		},
		"unknown Nodes": {
			facts: Facts{Kubernetes: version.MustParseSemantic("v1.36.3")},
			want:  []string{"the Nodes are not known yet", "", "the Nodes are not known yet", "", "", ""},
		},
		"unknown version": {
			facts: Facts{Nodes: inZones("a", "b").Nodes}, want: []string{"", "", noVersion, noVersion, "", ""},
		},
		"the last version without PreferSameZone": {
			facts: Facts{Nodes: inZones("a", "b").Nodes, Kubernetes: version.MustParseSemantic("v1.33.12-vendor.1+2")},
			want:  []string{"", "", tooEarly, tooEarly, "", ""},
		},
		"the first version with PreferSameZone": {
			facts: Facts{Nodes: inZones("a", "b").Nodes, Kubernetes: version.MustParseSemantic("v1.34.0-vendor.1")}, want: all(""),
		},
		"no Nodes": {facts: inZones(), want: []string{oneZone, "", oneZone, "", "", ""}},
		"one zone": {facts: inZones("a"), want: []string{oneZone, "", oneZone, "", "", ""}},
		"being deleted": {
			change: func(s *Service) { s.Metadata.DeletionTimestamp = "2026-01-01T00:00:00Z" }, isUpdate: true,
			settings: Settings{DefaultOnUpdate: true}, want: all("the Service is being deleted"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			facts := c.facts
			if facts.Nodes == nil && name != "unknown Nodes" {
				facts = inZones("a", "b")
			}
			for i, add := range everyDefault {
				service, settings := plainService(), c.settings
				if c.change != nil {
					c.change(service)
				}
				settings.Default = &add
				got := DecideDefault(service, NamespaceDefaults{IsLoaded: true}, facts, &settings, c.isUpdate)
				if got.Reason != c.want[i] || (got.Add == nil) == (c.want[i] == "") {
					t.Errorf("%v: added %v, reason %q, want reason %q", add, got.Add, got.Reason, c.want[i])
				}
			}
		})
	}
}

func TestDefaultReasonTruncatesValue(t *testing.T) {
	long := strings.Repeat("ä", 1000)
	got := DecideDefault(plainService(), namespaceWith(policy.DefaultTopologyModeAnnotation, long), Facts{}, &Settings{}, false)
	if got.Add != nil || len(got.Reason) > 300 {
		t.Errorf("a reason of %d bytes: %q", len(got.Reason), got.Reason)
	}
	got = DecideDefault(plainService(), namespaceWith(policy.DefaultTopologyKeysAnnotation, long), Facts{}, &Settings{}, false)
	if got.Add != nil || len(got.Reason) > 2000 {
		t.Errorf("a reason of %d bytes: %q", len(got.Reason), got.Reason)
	}
}

// A load bound is not a preference: a Service that has only a bound gets the default as its preference.
func TestDefaultWithLoadBound(t *testing.T) {
	bound := plainService(annotated(policy.MaxLoadAnnotation, "150%"))
	for annotation, value := range map[string]string{
		policy.DefaultTopologyModeAnnotation: policy.ModeBalanced, policy.DefaultTopologyKeysAnnotation: "example.com/rack, *",
		policy.DefaultTrafficDistributionAnnotation: policy.PreferSameZone,
	} {
		got := DecideDefault(bound, namespaceWith(annotation, value), inZones("a", "b"), &Settings{}, false)
		if got.Add == nil || got.Add.Value != value {
			t.Errorf("%s=%s: %+v", annotation, value, got)
			continue
		}
		if result := ReviewService(nil, got.Add.applyTo(bound), Facts{}, nil); len(result.Denied)+len(result.Warned) > 0 {
			t.Errorf("%s=%s: %v", annotation, value, result)
		}
	}
	got := DecideDefault(bound, namespaceWith(policy.DefaultTopologyModeAnnotation, "Auto"), inZones("a", "b"), &Settings{}, false)
	if diff := cmp.Diff(addsNothing(FromNamespace, "SVC013 would deny the Service with this default"), got); diff != "" {
		t.Errorf("with the default Auto (-want +got):\n%s", diff)
	}
}

func TestDeniedDefaultIsNotAdded(t *testing.T) {
	rack := namespaceWith(policy.DefaultTopologyKeysAnnotation, "example.com/rack, *")
	settings := &Settings{Actions: map[ID]Action{"SVC030": Deny}}
	got := DecideDefault(plainService(), rack, inZones("a", "b"), settings, false)
	if diff := cmp.Diff(addsNothing(FromNamespace, "SVC030 would deny the Service with this default"), got); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
	if got := DecideDefault(plainService(), rack, inZones("a", "b"), &Settings{}, false); got.Add == nil {
		t.Errorf("no default, although the rule only warns: %v", got)
	}
}
