package cache

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/lease"
)

// demandInterval is how often the Lease is read. Publishers of demand rarely start or stop, and the only effect on a
// review is a warning. So one request a minute suffices; a watch would need another permission.
const demandInterval = time.Minute

// FollowDemand checks periodically, until ctx ends, whether demand is published: whether the Lease in the publisher's
// namespace was renewed within v1alpha1.DemandFreshFor. Proxies use the same criterion. The last result is kept while
// the API server is down or denies reading the Lease.
func (c *Cache) FollowDemand(ctx context.Context, config *rest.Config, namespace string, log *slog.Logger) error {
	client, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("create client for the demand Lease: %w", err)
	}
	var observed lease.Observed
	logged := ""
	for {
		renewal, err := lease.Get(ctx, client.RESTClient(), namespace, v1alpha1.DemandLeaseName)
		switch {
		case err == nil:
			logged = ""
			observed.Observe(time.Now(), renewal)
			c.noDemand.Store(!observed.IsFresh(v1alpha1.DemandFreshFor))
		case err.Error() != logged && ctx.Err() == nil: // once, not with every request
			logged = err.Error()
			log.Warn("failed to read the demand Lease; keeping the last known state", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(demandInterval):
		}
	}
}

// HasNoDemandPublisher reports whether demand is known to be unpublished.
func (c *Cache) HasNoDemandPublisher() bool { return c.noDemand.Load() }
