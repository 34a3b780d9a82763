package convert

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestInvalidServiceIsRejected(t *testing.T) {
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
		"two ports with one frontend": {
			func(s *corev1.Service) {
				s.Spec.Ports = []corev1.ServicePort{{Name: "a", Port: 53}, {Name: "b", Port: 53}, {Name: "c", Port: 53, Protocol: "UDP"}}
			},
			[]string{`spec.ports[1].port: Duplicate value: 53`},
		},
		"two ports with one name": {
			func(s *corev1.Service) {
				s.Spec.Ports = []corev1.ServicePort{{Name: "a", Port: 1}, {Name: "a", Port: 2}}
			},
			[]string{`spec.ports[1].name: Duplicate value: "a"`},
		},
		"several ports without names": {
			func(s *corev1.Service) { s.Spec.Ports = []corev1.ServicePort{{Name: "a", Port: 1}, {Port: 2}} },
			[]string{`spec.ports[1].name: Required value: a Service with several ports must name each of them`},
		},
		"node port on a ClusterIP Service": {
			func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30000 },
			[]string{"spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"},
		},
		"one node port twice": {
			func(s *corev1.Service) {
				s.Spec.Type = corev1.ServiceTypeNodePort
				s.Spec.Ports = []corev1.ServicePort{{Name: "a", Port: 1, NodePort: 30000}, {Name: "b", Port: 2, NodePort: 30000}}
			},
			[]string{`spec.ports[1].nodePort: Duplicate value: 30000`},
		},
		"node port out of range": {
			func(s *corev1.Service) { s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, -1 },
			[]string{`spec.ports[0].nodePort: Invalid value: -1: must be between 1 and 65535, inclusive`},
		},
		"ClusterIP with a zone": {
			func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "fd00::1%eth0", nil },
			[]string{`spec.clusterIP: Invalid value: "fd00::1%eth0": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`},
		},
		"broadcast ClusterIP": {
			func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "255.255.255.255", nil },
			[]string{`spec.clusterIP: Invalid value: "255.255.255.255": may not be the broadcast address (255.255.255.255)`},
		},
		"IPv4-mapped loopback ClusterIP": {
			func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "::ffff:127.0.0.1", nil },
			[]string{`spec.clusterIP: Invalid value: "::ffff:127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`},
		},
		"loopback ClusterIP": {
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
			[]string{"spec.clusterIPs[0]: Invalid value: \"10.96.0.10\": must be an IPv6 address to match `ipFamilies[0]`"},
		},
		"unknown family": {
			func(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{"IPv5"} },
			[]string{`spec.ipFamilies[0]: Unsupported value: "IPv5": supported values: "IPv4", "IPv6"`},
		},
		"unknown type": {
			func(s *corev1.Service) { s.Spec.Type = "Clusterip" },
			[]string{`spec.type: Unsupported value: "Clusterip": supported values: "ClusterIP", "NodePort", "LoadBalancer", "ExternalName"`},
		},
		"zero affinity timeout": {
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
		"external traffic policy on a ClusterIP Service": {
			func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal },
			[]string{`spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services`},
		},
		"unknown external traffic policy": {
			func(s *corev1.Service) {
				s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeNodePort, "Near"
			},
			[]string{`spec.externalTrafficPolicy: Unsupported value: "Near": supported values: "Cluster", "Local"`},
		},
		"no names": {
			func(s *corev1.Service) { s.Namespace, s.Name = "", "" },
			[]string{`metadata.namespace: Required value`, `metadata.name: Required value`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			given := webService()
			test.change(given)
			got, errs := Service(given, View{})
			if got != nil {
				t.Errorf("Service() = %v and errors", got)
			}
			if diff := cmp.Diff(test.want, texts(errs)); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}
