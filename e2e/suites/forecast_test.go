//go:build e2e

package suites

import (
	"context"
	"math"
	"net"
	"slices"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/forecast"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/apiserver"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

var _ = Describe("A forecast", func() {
	It("predicts the effect of each setting on an uneven Service", long, func(ctx SpecContext) {
		expectForecast(ctx, unevenServers())
	})

	// The controller sets hints only if each zone can have endpoints in proportion to its CPUs.
	It("predicts the effect of each setting on a Service on every node", long, func(ctx SpecContext) {
		expectForecast(ctx, serversOn(kube.nodes))
	})
})

// expectForecast forecasts a Service under all settings. Then it applies them one by one and compares the forecast with
// another forecast of what the real controllers write, and with real connections.
func expectForecast(ctx context.Context, pods []*corev1.Pod) {
	GinkgoHelper()
	namespace := newNamespace(ctx)
	servers := kube.startPods(ctx, namespace, pods...)
	service := newService(ctx, namespace)
	expectServers(ctx, "no setting", podClients, clusterIPs(service), servers)
	for _, setting := range []struct {
		name string
		set  serviceOption
	}{
		{forecast.None, func(*corev1.Service) {}},
		{corev1.ServiceTrafficDistributionPreferSameZone, trafficDistribution(corev1.ServiceTrafficDistributionPreferSameZone)},
		{corev1.ServiceTrafficDistributionPreferSameNode, trafficDistribution(corev1.ServiceTrafficDistributionPreferSameNode)},
		{"Auto", topologyMode("Auto")},
		{"120%", topologyMode(balanced)},
	} {
		predicted := forecastOf(ctx, service)
		changeService(ctx, service, func(service *corev1.Service) {
			service.Annotations, service.Spec.TrafficDistribution = nil, nil
			setting.set(service)
		})
		want := projectionOf(predicted, setting.name)
		Eventually(func(g Gomega) {
			got := projectionOf(forecastOf(ctx, service), forecast.Now)
			g.Expect(got.Zone).To(BeNumerically("~", want.Zone, 1e-6), "in-zone share with %s", setting.name)
			g.Expect(got.Node).To(BeNumerically("~", want.Node, 1e-6), "in-node share with %s", setting.name)
			g.Expect(got.Busiest.Load).To(BeNumerically("~", want.Busiest.Load, 1e-6), "load of the busiest endpoint with %s", setting.name)
		}).WithContext(ctx).Should(Succeed())
		var measured load
		Eventually(func(g Gomega) { // a proxy may not have received it yet
			measured = loadOf(ctx, service, servers)
			expectLoads(ctx, g, service, measured, predicted, setting.name)
		}).WithContext(ctx).Should(Succeed())
		AddReportEntry(setting.name, measured)
	}
}

// expectLoads compares the servers' measured loads with the forecast, as multiples of the mean. The forecast is for the
// first family; the connections are in both, which behave alike.
func expectLoads(ctx context.Context, g Gomega, service *corev1.Service, measured load, predicted forecast.Service, setting string) {
	GinkgoHelper()
	want := map[string]float64{}
	for i, endpoint := range predicted.Endpoints {
		want[endpoint.Address] = projectionOf(predicted, setting).Loads[i]
	}
	isIPv6First := isIPv6(predicted.Endpoints[0].Address)
	for _, endpoint := range endpointsOf(ctx, service, isIPv6First) {
		expected, known := want[net.JoinHostPort(endpoint.Addresses[0], strconv.Itoa(dataPort))]
		g.Expect(known).To(BeTrue(), "%s is in the forecast", endpoint.Addresses[0])
		server := measured.servers.where(func(p testPod) bool { return p.name == endpoint.TargetRef.Name })[0]
		noise := expected*rounding + deviations*math.Sqrt(expected/measured.mean())
		g.Expect(measured.relativeLoad(server)).To(BeNumerically("~", expected, noise), "%s with %s: %s", server, setting, measured)
	}
}

// forecastOf forecasts a Service with the objects in the API server.
func forecastOf(ctx context.Context, service *corev1.Service) forecast.Service {
	GinkgoHelper()
	objects, err := apiserver.Objects(ctx, kube.config, "vicinity-system")
	Expect(err).NotTo(HaveOccurred())
	report, rejectedObjects := forecast.Compute(forecast.NewCluster(objects, convert.View{}), forecast.Options{
		Now: time.Now(), Bounds: []uint64{120},
		Only: explain.Query{Service: model.ObjectName{Namespace: service.Namespace, Name: service.Name}},
	})
	Expect(rejectedObjects).To(BeEmpty())
	Expect(report.Services).To(HaveLen(1))
	return report.Services[0]
}

// projectionOf returns the forecast for a setting.
func projectionOf(service forecast.Service, setting string) forecast.Projection {
	GinkgoHelper()
	i := slices.IndexFunc(service.Projections, func(p forecast.Projection) bool { return p.Setting == setting })
	Expect(i).To(BeNumerically(">=", 0), "projection for %s", setting)
	return service.Projections[i]
}
