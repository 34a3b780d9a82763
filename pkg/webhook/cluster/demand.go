package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/servicedemand"
)

// Publishers of demand rarely appear, and renew their Lease often; the only effect on a review is a warning. So one
// look a minute is enough, and a watch, which needs a permission of its own, would be too much.
const (
	demandInterval = time.Minute
	demandPatience = 10 * time.Second
)

// FollowDemand looks now and then whether demand is published in a cluster, until the context ends: there is a Lease in the
// publisher's namespace, renewed within servicedemand.GoodFor. The last known state stays while the API server does not
// answer.
func (f *Follower) FollowDemand(ctx context.Context, config *rest.Config, namespace string, log *slog.Logger) error {
	client, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("prepare to ask for the Lease of demand: %w", err)
	}
	logged := ""
	for {
		published, err := isDemandPublished(ctx, client.Leases(namespace))
		switch {
		case err == nil:
			logged = ""
			f.noDemand.Store(!published)
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

func isDemandPublished(ctx context.Context, leases coordinationclient.LeaseInterface) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, demandPatience)
	defer cancel()
	lease, err := leases.Get(ctx, servicedemand.LeaseName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read the Lease %s: %w", servicedemand.LeaseName, err)
	}
	renewed := lease.Spec.RenewTime
	return renewed != nil && time.Since(renewed.Time) < servicedemand.GoodFor, nil
}

// NoDemand reports whether it is known that nobody publishes demand.
func (f *Follower) NoDemand() bool { return f.noDemand.Load() }
