package source

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

var equateValues = cmp.Options{cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{})}

func addrs(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

// webService is a plain Service that each case changes.
func webService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.ServiceSpec{
			ClusterIP:  "10.96.0.10",
			ClusterIPs: []string{"10.96.0.10"},
			Ports:      []corev1.ServicePort{{Name: "http", Port: 80}},
		},
	}
}

func webModel() *model.Service {
	return &model.Service{
		Name:       model.ObjectName{Namespace: "default", Name: "web"},
		ClusterIPs: addrs("10.96.0.10"),
		Ports:      []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
	}
}

func TestServiceIsReadWithTheDefaultsOfTheAPI(t *testing.T) {
	created := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		change func(*corev1.Service)
		want   func(*model.Service)
	}{
		"an unset protocol is TCP": {func(*corev1.Service) {}, func(*model.Service) {}},
		"the creation time is kept": {
			func(s *corev1.Service) { s.CreationTimestamp = metav1.NewTime(created.In(time.FixedZone("", 3600))) },
			func(s *model.Service) { s.Created = created },
		},
		"clusterIP alone is enough": {
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
		"client affinity lasts as long as it says": {
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
		"a node port makes the Service external in the families of its ClusterIPs": {
			func(s *corev1.Service) {
				s.Spec.Type = corev1.ServiceTypeNodePort
				s.Spec.Ports[0].NodePort = 30080
				s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
				s.Spec.ExternalIPs = []string{"2001:db8::1"}
			},
			func(s *model.Service) {
				s.Ports[0].NodePort = 30080
				s.ExternalTrafficLocal = true
				s.ExternalFamilies = []model.Family{model.IPv4}
			},
		},
		"a load balancer in mode Proxy or with only a name is no external address": {
			func(s *corev1.Service) {
				s.Spec.Type = corev1.ServiceTypeLoadBalancer
				s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{
					{Hostname: "lb.example.com"}, {IP: "192.0.2.1", IPMode: new(corev1.LoadBalancerIPModeProxy)}}
			},
			func(*model.Service) {},
		},
		"a load balancer's address makes the Service external": {
			func(s *corev1.Service) {
				s.Spec.Type = corev1.ServiceTypeLoadBalancer
				s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
			},
			func(s *model.Service) { s.ExternalFamilies = []model.Family{model.IPv4} },
		},
		"topology keys are parsed": {
			func(s *corev1.Service) { s.Annotations = map[string]string{policy.TopologyKeysAnnotation: "*"} },
			func(s *model.Service) { s.Topology = policy.Topology{Keys: []policy.Key{policy.AnyNode}} },
		},
		"an empty label of another kind changes nothing": {
			func(s *corev1.Service) { s.Labels = map[string]string{corev1.IsHeadlessService: ""} },
			func(*model.Service) {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			given, want := webService(), webModel()
			test.change(given)
			test.want(want)
			got, errs := Service(given)
			if len(errs) > 0 {
				t.Fatalf("Service() refused: %v", errs)
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
		"a Service of another proxy, whatever the label's value": func(s *corev1.Service) {
			s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": ""}
			s.Spec.Ports = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			given := webService()
			change(given)
			if got, errs := Service(given); got != nil || len(errs) > 0 {
				t.Errorf("Service() = %v, %v; want nothing", got, errs)
			}
		})
	}
}

func TestServiceThatCannotBeIsRefusedWithTheFieldAndTheReason(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*corev1.Service)
		want   []string
	}{
		"port out of range": {
			func(s *corev1.Service) { s.Spec.Ports[0].Port = 70000 },
			[]string{`spec.ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive`},
		},
		"no port number": {
			func(s *corev1.Service) { s.Spec.Ports[0].Port = 0 },
			[]string{`spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive`},
		},
		"no ports": {func(s *corev1.Service) { s.Spec.Ports = nil }, []string{`spec.ports: Required value`}},
		"unknown protocol": {
			func(s *corev1.Service) { s.Spec.Ports[0].Protocol = "tcp" },
			[]string{`spec.ports[0].protocol: Unsupported value: "tcp": supported values: "TCP", "UDP", "SCTP"`},
		},
		"port name that nft could misread": {
			func(s *corev1.Service) { s.Spec.Ports[0].Name = "a;b" },
			[]string{`spec.ports[0].name: Invalid value: "a;b": a lowercase RFC 1123 label must consist of lower case alphanumeric ` +
				`characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', ` +
				`regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`},
		},
		"two ports of one frontend": {
			func(s *corev1.Service) {
				s.Spec.Ports = []corev1.ServicePort{{Name: "a", Port: 53}, {Name: "b", Port: 53}, {Name: "c", Port: 53, Protocol: "UDP"}}
			},
			[]string{`spec.ports[1].port: Duplicate value: 53`},
		},
		"two ports of one name": {
			func(s *corev1.Service) {
				s.Spec.Ports = []corev1.ServicePort{{Name: "a", Port: 1}, {Name: "a", Port: 2}}
			},
			[]string{`spec.ports[1].name: Duplicate value: "a"`},
		},
		"several ports without names": {
			func(s *corev1.Service) { s.Spec.Ports = []corev1.ServicePort{{Name: "a", Port: 1}, {Port: 2}} },
			[]string{`spec.ports[1].name: Required value: a Service with several ports must name each of them`},
		},
		"node port on a Service that has none": {
			func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30000 },
			[]string{"spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"},
		},
		"node port out of range": {
			func(s *corev1.Service) { s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, -1 },
			[]string{`spec.ports[0].nodePort: Invalid value: -1: must be between 1 and 65535, inclusive`},
		},
		"ClusterIP with leading zeros": {
			func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "010.0.0.1", nil },
			[]string{`spec.clusterIP: Invalid value: "010.0.0.1": must not have leading 0s`},
		},
		"ClusterIP mapped into IPv6": {
			func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "::ffff:10.0.0.1", nil },
			[]string{`spec.clusterIP: Invalid value: "::ffff:10.0.0.1": must not be an IPv4-mapped IPv6 address`},
		},
		"ClusterIP with a zone": {
			func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "fd00::1%eth0", nil },
			[]string{`spec.clusterIP: Invalid value: "fd00::1%eth0": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`},
		},
		"ClusterIP of loopback": {
			func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "127.0.0.1", []string{"127.0.0.1"} },
			[]string{`spec.clusterIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`},
		},
		"clusterIPs that contradict clusterIP": {
			func(s *corev1.Service) { s.Spec.ClusterIP = "10.96.0.11" },
			[]string{"spec.clusterIPs[0]: Invalid value: \"10.96.0.10\": must be the value of `clusterIP`"},
		},
		"clusterIPs without clusterIP": {
			func(s *corev1.Service) { s.Spec.ClusterIP = "" },
			[]string{"spec.clusterIPs: Invalid value: [\"10.96.0.10\"]: must be empty when `clusterIP` is not specified"},
		},
		"three ClusterIPs": {
			func(s *corev1.Service) { s.Spec.ClusterIPs = []string{"10.96.0.10", "fd00::1", "fd00::2"} },
			[]string{`spec.clusterIPs: Too many: 3: must have at most 2 items`},
		},
		"two ClusterIPs of one family": {
			func(s *corev1.Service) { s.Spec.ClusterIPs = []string{"10.96.0.10", "10.96.0.11"} },
			[]string{`spec.clusterIPs[1]: Invalid value: "10.96.0.11": may specify no more than one IP for each IP family`},
		},
		"ClusterIP of another family than declared": {
			func(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} },
			[]string{"spec.clusterIPs[0]: Invalid value: \"10.96.0.10\": must be an IPv6 address, as `ipFamilies[0]` says"},
		},
		"unknown family": {
			func(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{"IPv5"} },
			[]string{`spec.ipFamilies[0]: Unsupported value: "IPv5": supported values: "IPv4", "IPv6"`},
		},
		"unknown type": {
			func(s *corev1.Service) { s.Spec.Type = "Clusterip" },
			[]string{`spec.type: Unsupported value: "Clusterip": supported values: "ClusterIP", "NodePort", "LoadBalancer", "ExternalName"`},
		},
		"affinity timeout of no time": {
			func(s *corev1.Service) {
				s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
				s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(0))}}
			},
			[]string{`spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 0: must be between 1 and 86400, inclusive`},
		},
		"affinity settings without affinity": {
			func(s *corev1.Service) { s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{} },
			[]string{`spec.sessionAffinityConfig: Forbidden: must not be set when session affinity is None`},
		},
		"unknown affinity": {
			func(s *corev1.Service) { s.Spec.SessionAffinity = "Cookie" },
			[]string{`spec.sessionAffinity: Unsupported value: "Cookie": supported values: "ClientIP", "None"`},
		},
		"unknown internal traffic policy": {
			func(s *corev1.Service) {
				s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicy("local"))
			},
			[]string{`spec.internalTrafficPolicy: Unsupported value: "local": supported values: "Cluster", "Local"`},
		},
		"external traffic policy that nothing external could follow": {
			func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal },
			[]string{`spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services`},
		},
		"unknown external traffic policy": {
			func(s *corev1.Service) {
				s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeNodePort, "Near"
			},
			[]string{`spec.externalTrafficPolicy: Unsupported value: "Near": supported values: "Cluster", "Local"`},
		},
		"external IP of link-local": {
			func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"169.254.169.254"} },
			[]string{`spec.externalIPs[0]: Invalid value: "169.254.169.254": may not be in the link-local range (169.254.0.0/16, fe80::/10)`},
		},
		"load balancer address that is none": {
			func(s *corev1.Service) { s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "x"}} },
			[]string{`status.loadBalancer.ingress[0].ip: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`},
		},
		"no names": {
			func(s *corev1.Service) { s.Namespace, s.Name = "", "" },
			[]string{`metadata.namespace: Required value`, `metadata.name: Required value`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			given := webService()
			test.change(given)
			got, errs := Service(given)
			if got != nil {
				t.Errorf("Service() = %v besides errors", got)
			}
			if diff := cmp.Diff(test.want, texts(errs)); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNodeKeepsNameAndLabels(t *testing.T) {
	got, errs := Node(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1.example", Labels: map[string]string{"example.com/rack": "r1"}}})
	want := &model.Node{Name: "n1.example", Labels: map[string]string{"example.com/rack": "r1"}}
	if diff := cmp.Diff(want, got); diff != "" || len(errs) > 0 {
		t.Errorf("Node() (-want +got):\n%s%v", diff, errs)
	}
	_, errs = Node(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Namespace: "default"}})
	if diff := cmp.Diff([]string{"metadata.namespace: Forbidden: not allowed on this type"}, texts(errs)); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
	if _, errs = Node(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "N1", Labels: map[string]string{"a b": "c"}}}); len(errs) != 2 {
		t.Errorf("errors = %v, want one for the name and one for the label", errs)
	}
}

func webSlice() *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web-abc", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.5"}}},
	}
}

func texts(errs field.ErrorList) []string {
	var list []string
	for _, err := range errs {
		list = append(list, err.Error())
	}
	return list
}
