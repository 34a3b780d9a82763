package cache

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/lease"
	"github.com/vicinity-proxy/vicinity/pkg/servicedemand"
)

// demandInterval is how often the Lease is read. Publishers of demand rarely appear, and renew their Lease often; the only
// effect on a review is a warning. So one look a minute is enough, and a watch, which needs a permission of its own, would
// be too much.
const demandInterval = time.Minute

// FollowDemand looks now and then whether demand is published in a cluster, until the context ends: there is a Lease in the
// publisher's namespace, renewed within servicedemand.GoodFor, as proxies judge it. The last known state stays while the API
// server does not answer, or forbids to read the Lease.
func (f *Cache) FollowDemand(ctx context.Context, config *rest.Config, namespace string, log *slog.Logger) error {
	client, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("prepare to ask for the Lease of demand: %w", err)
	}
	var seen lease.Observed
	logged := ""
	for {
		read, err := lease.Get(ctx, client.RESTClient(), namespace, servicedemand.LeaseName)
		switch {
		case err == nil:
			logged = ""
			seen.Observe(time.Now(), read)
			f.noDemand.Store(!seen.IsFresh(servicedemand.FreshFor))
		case err.Error() != logged && ctx.Err() == nil: // once, and not with every question
			logged = err.Error()
			log.Warn("could not read whether demand is published; what was known stays in force", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(demandInterval):
		}
	}
}

// HasNoDemandPublisher reports whether it is known that nobody publishes demand.
func (f *Cache) HasNoDemandPublisher() bool { return f.noDemand.Load() }
