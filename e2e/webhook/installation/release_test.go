package installation_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/e2e/webhook/release"
)

// An API server of a release supports the distributions that the tests expect of that release.
func TestTheAPIServerAcceptsTheDistributionsOfItsVersion(t *testing.T) {
	in := install(t, manifests, 1)
	server := release.Of(t, in.Site)
	services := in.Admin.CoreV1().Services(probedNamespace)
	for value, since := range map[string]uint{
		corev1.ServiceTrafficDistributionPreferClose:    release.KeepsDistribution,
		corev1.ServiceTrafficDistributionPreferSameZone: release.AcceptsPreferSame,
		corev1.ServiceTrafficDistributionPreferSameNode: release.AcceptsPreferSame,
	} {
		service := serviceOf("distributed", nil)
		service.Spec.TrafficDistribution = new(value)
		created, err := services.Create(t.Context(), service, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		switch {
		case !server.IsAtLeast(release.KeepsDistribution):
			if err != nil || created.Spec.TrafficDistribution != nil {
				t.Errorf("%s: error %v, stored %v; want it dropped", value, err, created.Spec.TrafficDistribution)
			}
		case !server.IsAtLeast(since):
			if !apierrors.IsInvalid(err) || len(parseDenial(err)) > 0 {
				t.Errorf("%s: error %v, want a rejection by the API server itself", value, err)
			}
		case err != nil || created.Spec.TrafficDistribution == nil || *created.Spec.TrafficDistribution != value:
			t.Errorf("%s: error %v, stored %v; want it kept", value, err, created.Spec.TrafficDistribution)
		}
	}
}

// putEndpoints stands in for the Endpoints controller.
//
//nolint:staticcheck // Endpoints are deprecated, and all that such API servers read
func (in *installation) putEndpoints(ctx context.Context, addresses []string) error {
	object := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: installedName}}
	for _, address := range addresses {
		object.Subsets = append(object.Subsets, corev1.EndpointSubset{
			Addresses: []corev1.EndpointAddress{{IP: address}},
			Ports:     []corev1.EndpointPort{{Name: "webhook", Port: webhookPort}},
		})
	}
	endpoints := in.Admin.CoreV1().Endpoints(installedNamespace)
	_, err := endpoints.Update(ctx, object, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = endpoints.Create(ctx, object, metav1.CreateOptions{})
	}
	return err
}
