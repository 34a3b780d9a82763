package convert

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

func TestServiceDefaults(t *testing.T) {
	created := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	checkServices(t, map[string]serviceCase{
		"an unset protocol is TCP": {func(*corev1.Service) {}, func(*model.Service) {}},
		"the creation time is kept": {
			func(s *corev1.Service) { s.CreationTimestamp = metav1.NewTime(created.In(time.FixedZone("", 3600))) },
			func(s *model.Service) { s.Created = created },
		},
		"clusterIP alone is sufficient": {
			func(s *corev1.Service) { s.Spec.ClusterIPs = nil },
			func(*model.Service) {},
		},
		"both families are kept in their order": {
			func(s *corev1.Service) {
				s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, "fd00::a")
				s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
			},
			func(s *model.Service) { s.ClusterIPs = addrs("10.96.0.10", "fd00::a") },
		},
		"client affinity without a timeout lasts three hours": {
			func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP },
			func(s *model.Service) { s.AffinityTimeout = 3 * time.Hour },
		},
		"client affinity has the configured timeout": {
			func(s *corev1.Service) {
				s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
				s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
					ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(86400))}}
			},
			func(s *model.Service) { s.AffinityTimeout = 24 * time.Hour },
		},
		"internal traffic policy Local is read": {
			func(s *corev1.Service) { s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal) },
			func(s *model.Service) { s.InternalTrafficLocal = true },
		},
		"a node port is kept, and external traffic policy Local is read": {
			func(s *corev1.Service) {
				s.Spec.Type = corev1.ServiceTypeNodePort
				s.Spec.Ports[0].NodePort = 30080
				s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			},
			func(s *model.Service) {
				s.Ports[0].NodePort = 30080
				s.ExternalTrafficLocal = true
			},
		},
		"one node port may serve TCP and UDP": {
			func(s *corev1.Service) {
				s.Spec.Type = corev1.ServiceTypeNodePort
				s.Spec.Ports = []corev1.ServicePort{{Name: "a", Port: 53, NodePort: 30053},
					{Name: "b", Port: 53, Protocol: corev1.ProtocolUDP, NodePort: 30053}}
			},
			func(s *model.Service) {
				s.Ports = []model.ServicePort{{Name: "a", Protocol: model.TCP, Port: 53, NodePort: 30053},
					{Name: "b", Protocol: model.UDP, Port: 53, NodePort: 30053}}
			},
		},
		"node ports of a load balancer are optional": {
			func(s *corev1.Service) {
				s.Spec.Type = corev1.ServiceTypeLoadBalancer
				s.Spec.AllocateLoadBalancerNodePorts = new(false)
				s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
			},
			func(s *model.Service) { s.LoadBalancerIPs = addrs("192.0.2.1") },
		},
		"topology keys are parsed": {
			func(s *corev1.Service) { s.Annotations = map[string]string{policy.TopologyKeysAnnotation: "*"} },
			func(s *model.Service) { s.Topology = policy.Topology{Keys: []policy.Key{policy.AnyNode}} },
		},
		"the headless label has no effect on a Service": {
			func(s *corev1.Service) { s.Labels = map[string]string{corev1.IsHeadlessService: ""} },
			func(*model.Service) {},
		},
	})
}

// serviceCase is a change of webService, and the resulting change of webModel.
type serviceCase struct {
	change func(*corev1.Service)
	want   func(*model.Service)
}

func checkServices(t *testing.T, cases map[string]serviceCase) {
	t.Helper()
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			given, want := webService(), webModel()
			test.change(given)
			test.want(want)
			got, errs := Service(given, View{})
			if len(errs) > 0 {
				t.Fatalf("Service() rejected: %v", errs)
			}
			if diff := cmp.Diff(want, got, equateValues); diff != "" {
				t.Errorf("Service() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestServiceThatIsNotServedIsNil(t *testing.T) {
	for name, change := range map[string]func(*corev1.Service){
		"a headless Service":                            func(s *corev1.Service) { s.Spec.ClusterIP = "None" },
		"a Service whose ClusterIP is not allocated":    func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "", nil },
		"an ExternalName Service, even with an address": func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName },
		"a Service of another proxy, regardless of the label's value": func(s *corev1.Service) {
			s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": ""}
			s.Spec.Ports = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			given := webService()
			change(given)
			if got, errs := Service(given, View{}); got != nil || len(errs) > 0 {
				t.Errorf("Service() = %v, %v; want nothing", got, errs)
			}
		})
	}
}

func TestServiceIsServedByTheProxyThatItsLabelNames(t *testing.T) {
	labelled := func(name string) map[string]string { return map[string]string{policy.ServiceProxyNameLabel: name} }
	for name, test := range map[string]struct {
		labels    map[string]string
		proxyName string
		want      bool
	}{
		"no label, proxy without a name":    {nil, "", true},
		"no label, proxy with a name":       {nil, "vicinity", false},
		"another proxy's label":             {labelled("other"), "vicinity", false},
		"this proxy's label":                {labelled("vicinity"), "vicinity", true},
		"an empty label names no proxy":     {labelled(""), "", false},
		"an empty label, proxy with a name": {labelled(""), "vicinity", false},
	} {
		t.Run(name, func(t *testing.T) {
			given := webService()
			given.Labels = test.labels
			got, errs := Service(given, View{ServiceProxyName: test.proxyName})
			if len(errs) > 0 || (got != nil) != test.want {
				t.Errorf("Service() = %v, %v; want served: %v", got, errs, test.want)
			}
			view := View{ServiceProxyName: test.proxyName}
			if isForOther := Services.ForOtherProxy(given, view); isForOther == test.want {
				t.Errorf("ForOtherProxy() = %v for a Service that this proxy serves: %v", isForOther, test.want)
			}
			given.Spec.ClusterIP, given.Spec.ClusterIPs = corev1.ClusterIPNone, nil
			if Services.ForOtherProxy(given, view) {
				t.Error("ForOtherProxy() = true for a headless Service")
			}
		})
	}
}

// TestSelectorsIgnoreTheServingProxy: a Service that another proxy takes over must not look like a
// deleted one. Headless Services belong to no proxy, and are large.
func TestSelectorsIgnoreTheServingProxy(t *testing.T) {
	for _, proxyName := range []string{"", "vicinity"} {
		view := View{Node: "node-1", ServiceProxyName: proxyName}
		if got, want := Services.Select(view), (Selector{Fields: "spec.clusterIP!=None"}); got != want {
			t.Errorf("Services are selected by %+v, want %+v", got, want)
		}
		if got, want := EndpointSlices.Select(view), (Selector{Labels: "!service.kubernetes.io/headless"}); got != want {
			t.Errorf("EndpointSlices are selected by %+v, want %+v", got, want)
		}
	}
}
