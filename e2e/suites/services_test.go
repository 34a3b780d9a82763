//go:build e2e

package suites

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"
)

const (
	servicePort = 80
	// keysAnnotation is the annotation with the order in which nodes are preferred.
	keysAnnotation = "vicinity.dev/topology-keys"
	// proxyNameLabel is the label with the name of the proxy that should serve a Service.
	proxyNameLabel = "service.kubernetes.io/service-proxy-name"
)

type serviceOption func(*corev1.Service)

// newService creates a webService.
func newService(ctx context.Context, namespace string, options ...serviceOption) *corev1.Service {
	GinkgoHelper()
	created, err := kube.CoreV1().Services(namespace).Create(ctx, webService(options...), metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return created
}

// webService returns a Service for the selected pods, over TCP and UDP, and in both families if the cluster has both.
func webService(options ...serviceOption) *corev1.Service {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{
			Selector:       map[string]string{appLabel: "web"},
			IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack),
			Ports: []corev1.ServicePort{
				{Name: "tcp", Protocol: corev1.ProtocolTCP, Port: servicePort, TargetPort: intstr.FromInt32(dataPort)},
				{Name: "udp", Protocol: corev1.ProtocolUDP, Port: servicePort, TargetPort: intstr.FromInt32(dataPort)},
			},
		},
	}
	for _, option := range options {
		option(service)
	}
	return service
}

// changeService updates an existing Service.
func changeService(ctx context.Context, service *corev1.Service, options ...serviceOption) *corev1.Service {
	GinkgoHelper()
	services := kube.CoreV1().Services(service.Namespace)
	var changed *corev1.Service
	Expect(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		found, err := services.Get(ctx, service.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, option := range options {
			option(found)
		}
		changed, err = services.Update(ctx, found, metav1.UpdateOptions{})
		return err
	})).To(Succeed())
	return changed
}

// named gives the Service another name, for specs with two.
func named(name string) serviceOption { return func(service *corev1.Service) { service.Name = name } }

// topologyKeys sets the annotation.
func topologyKeys(keys string) serviceOption {
	return func(service *corev1.Service) { metav1.SetMetaDataAnnotation(&service.ObjectMeta, keysAnnotation, keys) }
}

// nodePort makes the Service one of type NodePort, with the same port number over TCP and UDP, which the API server
// allocates.
func nodePort(service *corev1.Service) { service.Spec.Type = corev1.ServiceTypeNodePort }

func loadBalancer(service *corev1.Service) { service.Spec.Type = corev1.ServiceTypeLoadBalancer }

// affinity enables ClientIP affinity with this timeout, which starts again with each new connection.
func affinity(seconds int32) serviceOption {
	return func(service *corev1.Service) {
		service.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		service.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(seconds)}}
	}
}

func noAffinity(service *corev1.Service) {
	service.Spec.SessionAffinity, service.Spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
}

// trafficDistribution sets spec.trafficDistribution.
func trafficDistribution(value string) serviceOption {
	return func(service *corev1.Service) { service.Spec.TrafficDistribution = &value }
}

func internalLocal(service *corev1.Service) {
	service.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
}

func externalLocal(service *corev1.Service) {
	service.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

// proxyName sets the name of the proxy that should serve the Service.
func proxyName(name string) serviceOption {
	return func(service *corev1.Service) { metav1.SetMetaDataLabel(&service.ObjectMeta, proxyNameLabel, name) }
}

func noProxyName(service *corev1.Service) { delete(service.Labels, proxyNameLabel) }
