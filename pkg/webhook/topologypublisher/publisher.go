package topologypublisher

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/election"
)

const (
	// NodesPerSlice is the maximum number of nodes in a slice, the same as of endpoints in an EndpointSlice: one change
	// writes one slice, which every proxy receives.
	NodesPerSlice = 100
	// batchDelay is how long the first change waits for others.
	batchDelay = time.Second
	// renewInterval is how often the Lease is renewed, and leaseDuration is how long the slices then count as current.
	renewInterval = 20 * time.Second
	leaseDuration = time.Minute
)

// electionLease names the Lease that elects the publisher.
const electionLease = "vicinity-topology-publisher"

// Options configure Run.
type Options struct {
	// Namespace contains both Leases. Identity is this replica's name.
	Namespace, Identity string
	// DefaultKeys returns the configured default list of topology keys for Services, in the format of the annotation, or
	// "".
	DefaultKeys func() string
	Log         *slog.Logger
	Observer    Observer
}

// Observer receives what is published. Its methods must not block.
type Observer interface {
	// Published is called whenever everything is written, with the number of slices, of nodes, and of keys in use that are
	// not published. lag is how long the first change waited; 0 if there was none.
	Published(at time.Time, slices, nodes, skipped int, lag time.Duration)
	// LeadEnded is called when this replica is no longer the leader.
	LeadEnded()
	// SliceWritten counts a write; operation is "create", "update" or "delete".
	SliceWritten(operation string)
	// PublishFailed counts a failed round, which will be retried.
	PublishFailed()
}

// Run takes part in the election until ctx ends, and publishes while elected. It returns an error only if it cannot
// start.
func Run(ctx context.Context, config *rest.Config, options Options) error {
	leases, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("create client for the Lease of the topology publisher: %w", err)
	}
	return election.Run(ctx, election.Options{
		Leases: leases, Namespace: options.Namespace, Lease: electionLease, Identity: options.Identity,
		Task: "publishing the topology of nodes",
		Lead: func(ctx context.Context) error {
			return publish(ctx, config, &publisher{options: options, leases: leases.Leases(options.Namespace), changes: make(debouncer, 1)})
		},
		Failed: options.Observer.PublishFailed, Ended: options.Observer.LeadEnded,
		Log: options.Log,
	})
}

// publish runs a publisher with a cache of its own, which ends with it.
func publish(ctx context.Context, config *rest.Config, p *publisher) error {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return fmt.Errorf("add TopologySlices to scheme: %w", err)
	}
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		return fmt.Errorf("add metadata to scheme: %w", err)
	}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("create HTTP client: %w", err)
	}
	byObject := cacheOptions()
	objects, err := cache.New(config, cache.Options{
		HTTPClient: httpClient, Scheme: scheme, Mapper: mapper(), ByObject: byObject,
	})
	if err != nil {
		return fmt.Errorf("create cache: %w", err)
	}
	jsonConfig := rest.CopyConfig(config) // custom resources do not support protobuf
	jsonConfig.ContentType = runtime.ContentTypeJSON
	if p.writer, err = client.New(jsonConfig, client.Options{HTTPClient: httpClient, Scheme: scheme, Mapper: mapper()}); err != nil {
		return fmt.Errorf("create client: %w", err)
	}
	p.objects = objects
	for object := range byObject {
		informer, err := objects.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err == nil {
			_, err = informer.AddEventHandler(p.changes.handler())
		}
		if err != nil {
			return fmt.Errorf("watch objects: %w", err)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- objects.Start(ctx) }()
	// Without the resource or the permissions it waits here; the rest of the webhook is not affected.
	if objects.WaitForCacheSync(ctx) {
		p.run(ctx)
	}
	return <-ended
}
