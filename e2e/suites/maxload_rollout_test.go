//go:build e2e

package suites

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var _ = Describe("A rollout under load", func() {
	// The new version must not run in the first zone, so the zone's old pods decrease gradually to none. On two cores the
	// lab can run 30 pods together with the old ones that terminate.
	It("overloads none of 30 pods with a bound of 120 %, unlike PreferSameZone", longestFirst, func(ctx SpecContext) {
		const replicas, surge = 30, 3
		namespace := newNamespace(ctx)
		makeDeployment(ctx, namespace, replicas, surge)
		preferring := newService(ctx, namespace, named("preferring"), preferSameZone)
		bounded := newService(ctx, namespace, named("bounded"), preferSameZone, withLoadBound)
		before := expectRolledOut(ctx, namespace)
		expectEachInItsZone(ctx, "PreferSameZone", clusterIPs(preferring), before)
		// Each of the ten steps takes at least three seconds, so that a busy machine counts connections in some windows, too.
		updateDeployment(ctx, namespace, `{"minReadySeconds":3,"template":`+notInZone(kube.zones()[0])+`}`)
		windows := watchRollout(ctx, namespace, preferring, bounded)
		after := expectRolledOut(ctx, namespace)

		Expect(after.inZone(kube.zones()[0])).To(BeEmpty(), "new pods in a zone where they may not run")
		Expect(len(windows)).To(BeNumerically(">=", 5), "windows in which connections were counted during the update")
		AddReportEntry(preferring.Name, busiestPod(windows, preferring, replicas))
		AddReportEntry(bounded.Name, busiestPod(windows, bounded, replicas))
		for _, w := range windows {
			for name, got := range w {
				Expect(got.Errors).To(BeEmpty(), "failed connections to Service %s: %s", name, got)
			}
			got := w[bounded.Name]
			mean := float64(got.replies()) / replicas // at least this number is ready at any time
			for server, count := range got.Servers {
				Expect(float64(count)).To(BeNumerically("<=", loadBound*mean*(1+rounding)+deviations*math.Sqrt(loadBound*mean)),
					"connections to %s, of %d in a window: %s", server, got.replies(), got)
			}
		}
	})
})

// notInZone returns a patch of a Deployment's template that keeps its pods out of a zone.
func notInZone(zone string) string {
	return fmt.Sprintf(`{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{`+
		`"nodeSelectorTerms":[{"matchExpressions":[{"key":%q,"operator":"NotIn","values":[%q]}]}]}}}}}`, corev1.LabelTopologyZone, zone)
}

// window has the results of connections in a few seconds, by Service name.
type window map[string]results

// watchRollout counts connections from every node, in consecutive windows, until all pods are new.
func watchRollout(ctx context.Context, namespace string, services ...*corev1.Service) []window {
	GinkgoHelper()
	nameOf := map[target]string{}
	for _, service := range services {
		for _, to := range clusterIPs(service) {
			nameOf[to] = service.Name
		}
	}
	targets := slices.Collect(maps.Keys(nameOf))
	var windows []window
	for deadline := time.Now().Add(waitTimeout); time.Now().Before(deadline); {
		w := window{}
		for _, got := range dialTogether(ctx, podClients, targets,
			dialling{count: 150, timeout: successTimeout, interval: 10 * time.Millisecond}) {
			Expect(got.err).NotTo(HaveOccurred())
			w[nameOf[got.to]] = w[nameOf[got.to]].plus(got.results)
		}
		windows = append(windows, w)
		found, err := kube.AppsV1().Deployments(namespace).Get(ctx, "web", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		if isRolledOut(found) {
			break
		}
	}
	return windows
}

// busiestPod describes the load of the busiest pod in any window.
func busiestPod(windows []window, service *corev1.Service, pods int) string {
	maxLoad, worst := 0.0, results{}
	for _, w := range windows {
		got := w[service.Name]
		podLoad := float64(slices.Max(slices.Collect(maps.Values(got.Servers)))*pods) / float64(got.replies())
		if podLoad > maxLoad {
			maxLoad, worst = podLoad, got
		}
	}
	return fmt.Sprintf("the busiest pod got %.2f times the mean, in the worst of %d windows of %d connections",
		maxLoad, len(windows), worst.replies())
}
