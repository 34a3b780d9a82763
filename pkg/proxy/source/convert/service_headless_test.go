package convert

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// headlessWeb is a headless Service with topology keys.
func headlessWeb() *corev1.Service {
	service := webService()
	service.Spec.ClusterIP, service.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
	service.Annotations = map[string]string{policy.TopologyKeysAnnotation: "topology.kubernetes.io/zone, *"}
	return service
}

func TestHeadlessServiceNeedsTopologyKeys(t *testing.T) {
	dns := View{WithHeadless: true}
	want := &model.Service{
		Name: webModel().Name, IsHeadless: true, Ports: webModel().Ports,
		Topology: policy.Topology{Keys: []policy.Key{policy.Zone, policy.AnyNode}},
	}
	got, errs := Service(headlessWeb(), dns)
	if diff := cmp.Diff(want, got, equateValues); diff != "" || len(errs) > 0 {
		t.Errorf("Service() (-want +got):\n%s%v", diff, errs)
	}
	for title, test := range map[string]struct {
		view   View
		change func(*corev1.Service)
		isOurs bool
		err    string
	}{
		"without DNS":       {View{}, func(*corev1.Service) {}, false, ""},
		"without keys":      {dns, func(s *corev1.Service) { s.Annotations = nil }, false, ""},
		"with invalid keys": {dns, func(s *corev1.Service) { s.Annotations[policy.TopologyKeysAnnotation] = "*, a/b" }, false, ""},
		"with only trafficDistribution": {dns, func(s *corev1.Service) {
			s.Annotations, s.Spec.TrafficDistribution = nil, new("PreferSameZone")
		}, false, ""},
		"of another proxy": {dns, func(s *corev1.Service) {
			s.Labels = map[string]string{policy.ServiceProxyNameLabel: "other"}
		}, false, ""},
		"of ExternalName":      {dns, func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }, false, ""},
		"without ports":        {dns, func(s *corev1.Service) { s.Spec.Ports = nil }, true, ""},
		"with a bound":         {dns, func(s *corev1.Service) { s.Annotations[policy.MaxLoadAnnotation] = "120%" }, true, ""},
		"with external IPs":    {dns, func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.1"} }, true, ""},
		"with an invalid port": {dns, func(s *corev1.Service) { s.Spec.Ports[0].Port = 0 }, false, "spec.ports[0].port"},
	} {
		t.Run(title, func(t *testing.T) {
			service := headlessWeb()
			test.change(service)
			got, errs := Service(service, test.view)
			if (got != nil) != test.isOurs || (len(errs) > 0) != (test.err != "") || len(errs) > 0 && errs[0].Field != test.err {
				t.Fatalf("Service() = %v, %v; want ours: %t, error for %q", got, errs, test.isOurs, test.err)
			}
			if got != nil && (len(got.ExternalIPs) > 0 || !got.IsHeadless) {
				t.Errorf("a headless Service has frontends: %+v", got)
			}
		})
	}
}

// Hostnames are not read from slices of other Services that the EndpointSlice controller writes, because there are
// many. They are read from slices that it did not write, even without the label of headless Services, which CoreDNS
// ignores.
func TestSlicesOfHeadlessServicesHaveNames(t *testing.T) {
	sliceWith := func(labels map[string]string) *discoveryv1.EndpointSlice {
		slice := webSlice()
		maps.Copy(slice.Labels, labels)
		slice.Endpoints = []discoveryv1.Endpoint{
			{Addresses: []string{"10.244.0.5"}, Hostname: new("web-0")},
			{Addresses: []string{"bad"}, Hostname: new("web-1")},
			{Addresses: []string{"10.244.0.7"}},
			{Addresses: []string{"10.244.0.8"}, Hostname: new("not a name")},
			{Addresses: []string{"10.244.0.9"}, Hostname: new("web-4"), TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "pod-4"}},
			{Addresses: []string{"10.244.0.10"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "pod-5"}},
			{Addresses: []string{"10.244.0.11"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "pod.6"}},
			{Addresses: []string{"10.244.0.12"}, Hostname: new("web.7")},
			{Addresses: []string{"10.244.0.13"}, Hostname: new(""), TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "pod-8"}},
		}
		return slice
	}
	managed := map[string]string{discoveryv1.LabelManagedBy: sliceController}
	headless := map[string]string{corev1.IsHeadlessService: "", discoveryv1.LabelManagedBy: sliceController}
	withHeadless, withPods := View{WithHeadless: true}, View{WithHeadless: true, WithPodNames: true}
	for title, test := range map[string]struct {
		labels    map[string]string
		view      View
		isServed  bool
		hostnames []string
	}{
		"headless, selected":             {headless, withHeadless, true, []string{"web-0", "", "", "web-4", "", "", "", ""}},
		"with pod names":                 {headless, withPods, true, []string{"web-0", "", "", "web-4", "pod-5", "", "", "pod-8"}},
		"headless, not selected":         {headless, View{}, false, nil},
		"the controller's, not headless": {managed, withPods, true, nil},
		"by hand, selected":              {nil, withHeadless, true, []string{"web-0", "", "", "web-4", "", "", "", ""}},
		"by hand, with pod names":        {nil, withPods, true, []string{"web-0", "", "", "web-4", "pod-5", "", "", "pod-8"}},
		"by hand, not selected":          {nil, View{}, true, nil},
	} {
		t.Run(title, func(t *testing.T) {
			got, errs := EndpointSlice(sliceWith(test.labels), test.view)
			if len(errs) > 0 || (got != nil) != test.isServed {
				t.Fatalf("EndpointSlice() = %v, %v", got, errs)
			}
			if got == nil {
				return
			}
			if diff := cmp.Diff(test.hostnames, got.Hostnames); diff != "" || len(got.Endpoints) != 8 {
				t.Errorf("%d endpoints, hostnames (-want +got):\n%s", len(got.Endpoints), diff)
			}
		})
	}
}

// TestDemandIsMeasuredByDefault covers Services with a bound. Headless ones are excluded: their connections are not
// counted.
func TestDemandIsMeasuredByDefault(t *testing.T) {
	view := View{WithHeadless: true, DefaultMaxLoad: 150, DefaultMeasured: true}
	proxied := webService()
	proxied.Annotations = map[string]string{policy.TopologyKeysAnnotation: "topology.kubernetes.io/zone, *"}
	for service, want := range map[*corev1.Service]bool{proxied: true, headlessWeb(): false, webService(): false} {
		got, errs := Service(service, view)
		if len(errs) > 0 || got.Topology.Measured != want || got.IsHeadless != (service.Spec.ClusterIP == corev1.ClusterIPNone) {
			t.Errorf("ClusterIP %s: %+v, %v; want measured: %v", service.Spec.ClusterIP, got.Topology, errs, want)
		}
	}
	annotated := headlessWeb()
	annotated.Annotations[policy.MaxLoadAnnotation], annotated.Annotations[policy.DemandSourceAnnotation] = "120%", policy.Measured
	got, errs := Service(annotated, view)
	if len(errs) > 0 || got.Topology.Measured || len(got.Findings) != 1 || got.Findings[0].Reason != policy.MeasuredHeadless {
		t.Errorf("a headless Service with measured demand: %+v, %v", got, errs)
	}
}
