//go:build e2e

package suites

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// createOutcome is whether the API server called the webhook for a new Service, as the response shows.
type createOutcome string

const (
	reviewed createOutcome = "reviewed by the webhook"
	passed   createOutcome = "passed without the webhook"
)

// dryRunClients are clients that keep creating Services in dry runs, until they are stopped.
type dryRunClients struct {
	stop    chan struct{}
	clients sync.WaitGroup

	mu     sync.Mutex
	counts map[createOutcome]int
	failed []error
	// missed are the durations of requests that passed without the webhook: about the webhook's timeout, or less if no
	// replica accepted the call.
	missed []time.Duration
}

// createInterval is the delay between the requests of each of the two clients.
const createInterval = 20 * time.Millisecond

// startDryRunClients starts one client that creates Services which get a default, and one that creates Services which
// are denied. It returns when the webhook has reviewed a Service of each kind: any later Service that is not reviewed
// was missed.
func startDryRunClients(ctx context.Context) *dryRunClients {
	GinkgoHelper()
	namespace := newNamespace(ctx, func(namespace *corev1.Namespace) {
		metav1.SetMetaDataAnnotation(&namespace.ObjectMeta, defaultKeysAnnotation, zoneFirst)
	})
	kinds := []*corev1.Service{webService(), webService(topologyKeys(mistakenKeys))}
	for _, service := range kinds {
		Eventually(createInDryRun).WithArguments(ctx, namespace, service).WithContext(ctx).Should(Equal(reviewed))
	}
	c := &dryRunClients{stop: make(chan struct{}), counts: map[createOutcome]int{}}
	for _, service := range kinds {
		c.clients.Go(func() { c.repeat(ctx, namespace, service) })
	}
	return c
}

// createInDryRun creates a Service in a dry run. It returns an error if the response comes neither from the webhook nor
// from an API server that skipped the webhook.
func createInDryRun(ctx context.Context, namespace string, service *corev1.Service) (createOutcome, error) {
	created, err := kube.CoreV1().Services(namespace).Create(ctx, service, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case isDenial(err):
		return reviewed, nil
	case err != nil:
		return "", err
	case settings(service) == "" && settings(created) == zoneFirst:
		return reviewed, nil
	}
	return passed, nil
}

// isDenial reports whether an error is the webhook's denial of mistakenKeys.
func isDenial(err error) bool {
	return apierrors.IsInvalid(err) && strings.HasSuffix(err.Error(), "[SVC005]")
}

func (c *dryRunClients) repeat(ctx context.Context, namespace string, service *corev1.Service) {
	for {
		select {
		case <-c.stop:
			return
		case <-ctx.Done():
			return
		case <-time.After(createInterval):
		}
		start := time.Now()
		outcome, err := createInDryRun(ctx, namespace, service)
		c.mu.Lock()
		if err != nil {
			c.failed = append(c.failed, err)
		} else {
			c.counts[outcome]++
		}
		if outcome == passed {
			c.missed = append(c.missed, time.Since(start).Round(time.Millisecond))
		}
		c.mu.Unlock()
	}
}

func (c *dryRunClients) count(outcome createOutcome) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[outcome]
}

// expectMore waits until more Services have this outcome than before.
func (c *dryRunClients) expectMore(ctx context.Context, desc string, outcome createOutcome) {
	GinkgoHelper()
	before := c.count(outcome)
	Eventually(func() int { return c.count(outcome) }).WithContext(ctx).Should(BeNumerically(">", before), "%s: Services %s", desc, outcome)
}

// end stops the clients and reports the outcomes of all Services.
func (c *dryRunClients) end() *dryRunClients {
	close(c.stop)
	c.clients.Wait()
	AddReportEntry("new Services", c)
	return c
}

func (c *dryRunClients) String() string {
	const maxShown = 10
	return fmt.Sprintf("%v after %v, %d failed", c.counts, c.missed[:min(len(c.missed), maxShown)], len(c.failed))
}
