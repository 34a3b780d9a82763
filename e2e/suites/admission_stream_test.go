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

// outcomeOfCreate is whether the webhook was asked about a new Service, which the answer shows.
type outcomeOfCreate string

const (
	reviewed outcomeOfCreate = "judged by the webhook"
	passed   outcomeOfCreate = "passed without the webhook"
)

// creates is clients that go on making Services, of which none is kept, until they are stopped.
type creates struct {
	stop   chan struct{}
	making sync.WaitGroup

	mu     sync.Mutex
	counts map[outcomeOfCreate]int
	failed []error
	// missed is how long each request that passed without the webhook took: its timeout, or less if nobody was there.
	missed []time.Duration
}

// betweenCreates is how long each of the two clients waits between its requests.
const betweenCreates = 20 * time.Millisecond

// startCreates has one client make Services that get a default, and one that makes Services that are denied. It
// returns when both have been judged: whatever is not judged afterwards was missed.
func startCreates(ctx context.Context) *creates {
	GinkgoHelper()
	namespace := newNamespace(ctx, func(namespace *corev1.Namespace) {
		metav1.SetMetaDataAnnotation(&namespace.ObjectMeta, defaultKeysAnnotation, zoneFirst)
	})
	kinds := []*corev1.Service{webService(), webService(topologyKeys(mistakenKeys))}
	for _, service := range kinds {
		Eventually(createDry).WithArguments(ctx, namespace, service).WithContext(ctx).Should(Equal(reviewed))
	}
	c := &creates{stop: make(chan struct{}), counts: map[outcomeOfCreate]int{}}
	for _, service := range kinds {
		c.making.Go(func() { c.repeat(ctx, namespace, service) })
	}
	return c
}

// createDry makes a Service and keeps nothing of it. An answer that is neither the webhook's nor that of an API server
// that goes on without it is an error.
func createDry(ctx context.Context, namespace string, service *corev1.Service) (outcomeOfCreate, error) {
	made, err := kube.CoreV1().Services(namespace).Create(ctx, service, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case isDenial(err):
		return reviewed, nil
	case err != nil:
		return "", err
	case settings(service) == "" && settings(made) == zoneFirst:
		return reviewed, nil
	}
	return passed, nil
}

// isDenial distinguishes the webhook's denial of mistakenKeys from all other errors.
func isDenial(err error) bool {
	return apierrors.IsInvalid(err) && strings.HasSuffix(err.Error(), "[SVC005]")
}

func (c *creates) repeat(ctx context.Context, namespace string, service *corev1.Service) {
	for {
		select {
		case <-c.stop:
			return
		case <-ctx.Done():
			return
		case <-time.After(betweenCreates):
		}
		asked := time.Now()
		outcome, err := createDry(ctx, namespace, service)
		c.mu.Lock()
		if err != nil {
			c.failed = append(c.failed, err)
		} else {
			c.counts[outcome]++
		}
		if outcome == passed {
			c.missed = append(c.missed, time.Since(asked).Round(time.Millisecond))
		}
		c.mu.Unlock()
	}
}

func (c *creates) count(outcome outcomeOfCreate) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[outcome]
}

// expectMore waits until more Services have this outcome than had it before.
func (c *creates) expectMore(ctx context.Context, why string, outcome outcomeOfCreate) {
	GinkgoHelper()
	before := c.count(outcome)
	Eventually(func() int { return c.count(outcome) }).WithContext(ctx).Should(BeNumerically(">", before), "%s: Services %s", why, outcome)
}

// end stops the clients and reports what became of all Services.
func (c *creates) end() *creates {
	close(c.stop)
	c.making.Wait()
	AddReportEntry("new Services", c)
	return c
}

func (c *creates) String() string {
	const most = 10
	return fmt.Sprintf("%v after %v, %d failed", c.counts, c.missed[:min(len(c.missed), most)], len(c.failed))
}
