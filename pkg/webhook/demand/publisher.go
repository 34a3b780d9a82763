package demand

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vicinity-proxy/vicinity/pkg/demandapi"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/election"
)

const (
	// electionLease names the Lease that elects the replica that pulls from the proxies.
	electionLease = "vicinity-demand-publisher"
	// minCoverage is the fraction of nodes that must report. The alert VicinityDemandNotPublished uses the same number.
	minCoverage = 0.9
	// interval is the pull interval, and largeInterval the one for more than manyNodes nodes.
	interval, largeInterval = 30 * time.Second, time.Minute
	manyNodes               = 1000
	// requestSpread is the fraction of an interval over which requests are spread. The rest is for the last responses.
	requestSpread = 0.8
)

// Options configure Run.
type Options struct {
	// Namespace contains the Lease and the ServiceAccount. Identity is this replica's name.
	Namespace, Identity string
	// Account is the ServiceAccount whose token authenticates requests to proxies.
	Account string
	// Proxies is the Service whose EndpointSlices list the proxies' addresses.
	Proxies types.NamespacedName
	Puller  *Puller
	Log     *slog.Logger
	// Observer receives the results.
	Observer Observer
	// MeasuredByDefault is set if demand is also published for Services with a load bound that name no clients.
	MeasuredByDefault bool
	// Every overrides the pull interval, and MinSkewDuration how long skew must last before an Event; 0 means the default.
	Every, MinSkewDuration time.Duration
}

// Observer receives the results of rounds. Its methods must not block.
type Observer interface {
	// Measured is called after each round. The round omits Services whose assumed demand is unknown here, and those that
	// use measured demand.
	Measured(round Round)
	// Queued is called in each round with the backlog. Published is called after each write with "create", "update" or
	// "delete".
	Queued(waiting Backlog)
	Published(operation string)
	// LeadEnded is called when this replica is no longer the leader.
	LeadEnded()
	// MeasureFailed counts a failed round or write.
	MeasureFailed()
}

// Run takes part in the election until ctx ends. While elected, it pulls from all proxies once an interval.
func Run(ctx context.Context, config *rest.Config, options Options) error {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("create client for the Lease, the token and Events of demand: %w", err)
	}
	return election.Run(ctx, election.Options{
		Leases: clients.CoordinationV1(), Namespace: options.Namespace, Lease: electionLease, Identity: options.Identity,
		Task: "measuring demand",
		Lead: func(ctx context.Context) error {
			r, err := newReconciler(config, options, clients.CoordinationV1())
			if err != nil {
				return err
			}
			l := &leader{
				options: options, reconciler: r,
				token: token{accounts: clients.CoreV1().ServiceAccounts(options.Namespace), account: options.Account},
				skewReporter: skewReporter{events: clients.EventsV1(), identity: options.Identity,
					minDuration: cmp.Or(options.MinSkewDuration, minSkewDuration)},
			}
			return l.lead(ctx, config)
		},
		Failed: options.Observer.MeasureFailed, Ended: options.Observer.LeadEnded, Log: options.Log,
	})
}

// leader pulls from the proxies during one term.
type leader struct {
	options      Options
	token        token
	objects      client.Reader
	skewReporter skewReporter
	aggregator   Aggregator
	failure      string // of the last round; empty if it succeeded
	coverage     coverage
	rounds       int

	reconciler *reconciler
}

func metadataOf(kind string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: kind}}
}

// cacheOptions returns the object types to cache, and the transforms that strip them.
func cacheOptions(proxies types.NamespacedName) map[client.Object]cache.ByObject {
	selector := labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: proxies.Name})
	return map[client.Object]cache.ByObject{
		metadataOf("Node"):           {Transform: strip},
		&corev1.Service{}:            {Transform: strip},
		&discoveryv1.EndpointSlice{}: {Namespaces: map[string]cache.Config{proxies.Namespace: {LabelSelector: selector}}},
	}
}

// strip keeps only the labels of a Node, and the fields of a Service that configure its load bound.
func strip(object any) (any, error) {
	switch full := object.(type) {
	case *metav1.PartialObjectMetadata:
		return &metav1.PartialObjectMetadata{TypeMeta: full.TypeMeta, ObjectMeta: metav1.ObjectMeta{
			Name: full.Name, UID: full.UID, ResourceVersion: full.ResourceVersion, Labels: full.Labels,
		}}, nil
	case *corev1.Service:
		stripped := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
			Name: full.Name, Namespace: full.Namespace, UID: full.UID, ResourceVersion: full.ResourceVersion,
		}}
		stripped.Spec.TrafficDistribution = full.Spec.TrafficDistribution
		for _, annotation := range policy.Annotations {
			if value, has := full.Annotations[annotation.Name]; has {
				metav1.SetMetaDataAnnotation(&stripped.ObjectMeta, annotation.Name, value)
			}
		}
		return stripped, nil
	}
	return object, nil // tombstones and EndpointSlices
}

func (l *leader) lead(ctx context.Context, config *rest.Config) error {
	scheme := runtime.NewScheme()
	if err := discoveryv1.AddToScheme(scheme); err != nil {
		return fmt.Errorf("add EndpointSlices to scheme: %w", err)
	}
	if err := corev1.AddToScheme(scheme); err != nil {
		return fmt.Errorf("add Services to scheme: %w", err)
	}
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		return fmt.Errorf("add metadata to scheme: %w", err)
	}
	mapper := meta.NewDefaultRESTMapper(nil) // the default mapper queries the API server, which may be down
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Service"), meta.RESTScopeNamespace)
	mapper.Add(discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), meta.RESTScopeNamespace)
	mapper.Add(discoveryv1.SchemeGroupVersion.WithKind("EndpointSliceList"), meta.RESTScopeNamespace) // needed if Namespaces are set
	objects, err := cache.New(config, cache.Options{Scheme: scheme, Mapper: mapper, ByObject: cacheOptions(l.options.Proxies)})
	if err != nil {
		return fmt.Errorf("create cache: %w", err)
	}
	for object := range cacheOptions(l.options.Proxies) {
		if _, err := objects.GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watch objects: %w", err)
		}
	}
	if _, err := l.reconciler.list(ctx); err != nil && !errors.Is(err, errNotListed) {
		return fmt.Errorf("watch ServiceDemands: %w", err)
	}
	ended := make(chan error, 2)
	go func() { ended <- objects.Start(ctx) }()
	go func() { ended <- l.reconciler.objects.Start(ctx) }()
	if objects.WaitForCacheSync(ctx) {
		l.objects = objects
		l.measure(ctx)
	}
	return errors.Join(<-ended, <-ended)
}

// measure runs rounds until ctx ends.
func (l *leader) measure(ctx context.Context) {
	defer l.reconciler.writing.Wait()
	for ctx.Err() == nil {
		began := time.Now()
		interval, err := l.round(ctx)
		l.report(ctx, err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(began.Add(interval))):
		}
	}
}

// report logs an error when rounds start to fail or the reason changes, and when they succeed again.
func (l *leader) report(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err == nil && l.failure != "":
		l.failure = ""
		l.options.Log.Info("measuring demand recovered")
	case err != nil:
		l.options.Observer.MeasureFailed()
		if err.Error() != l.failure {
			l.options.Log.Error("measuring demand failed; retrying", "error", err)
		}
		l.failure = err.Error()
	}
}

// round pulls from all proxies once, and returns the interval to the next round.
func (l *leader) round(ctx context.Context) (interval time.Duration, err error) {
	nodes, targets, err := l.nodes(ctx)
	interval = l.interval(len(nodes))
	if err != nil {
		return interval, err
	}
	pullErrs, err := l.pull(ctx, targets, interval)
	if err != nil {
		return interval, err
	}
	services, err := l.services(ctx)
	if err != nil || ctx.Err() != nil {
		return interval, err
	}
	now, settings := time.Now(), l.options.settings()
	round, err := l.finishRound(ctx, now, interval, nodes, len(targets), services, settings)
	l.rounds++
	l.logCoverage(round, pullErrs)
	maps.DeleteFunc(round.Services, func(name string, _ Report) bool { return !settings.isComparable(services[name]) })
	l.options.Observer.Measured(round)
	return interval, errors.Join(err, l.skewReporter.report(ctx, now, round, services))
}

// interval returns the pull interval for a number of nodes.
func (l *leader) interval(nodes int) time.Duration {
	if nodes > manyNodes {
		return cmp.Or(l.options.Every, largeInterval)
	}
	return cmp.Or(l.options.Every, interval)
}

// pull requests the counts of all proxies.
func (l *leader) pull(ctx context.Context, targets []Target, interval time.Duration) (PullErrors, error) {
	bearer, err := l.token.get(ctx, time.Now())
	if err != nil {
		return PullErrors{}, err
	}
	spread := time.Duration(requestSpread * float64(interval))
	return l.options.Puller.Pull(ctx, bearer, targets, spread, func(node string, page demandapi.Page) {
		l.aggregator.AddReport(node, time.Now(), page)
	}), nil
}

// finishRound aggregates the reports, and starts to publish the result.
func (l *leader) finishRound(
	ctx context.Context, now time.Time, interval time.Duration, nodes []Node, proxies int, services map[string]*corev1.Service,
	settings *settings,
) (Round, error) {
	objects, canPublish := l.reconciler.read(ctx)
	seen := &state{services, settings.publishesDemand, objects}
	for name := range objects {
		if seen.managed(name) != nil && seen.shouldPublish(services[name]) {
			l.aggregator.Track(name)
		}
	}
	round := l.aggregator.Aggregate(now, nodes, seen.lookupService())
	if !canPublish {
		return round, nil
	}
	return round, l.reconciler.publish(ctx, now, interval, proxies, seen, round)
}

// nodes returns all Linux nodes, and the addresses of those that have a proxy. Only proxies on Linux count connections.
func (l *leader) nodes(ctx context.Context) ([]Node, []Target, error) {
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
	if err := l.objects.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("list the metadata of Nodes: %w", err)
	}
	var proxies discoveryv1.EndpointSliceList
	if err := l.objects.List(ctx, &proxies, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("list the EndpointSlices of %s: %w", l.options.Proxies, err)
	}
	nodes := make([]Node, 0, len(list.Items))
	exists := map[string]bool{}
	for i := range list.Items {
		if !policy.IsLinux(list.Items[i].Labels) {
			continue
		}
		weight, _ := policy.DemandOf(list.Items[i].Labels)
		nodes = append(nodes, Node{list.Items[i].Name, list.Items[i].Labels[string(policy.Zone)], float64(weight)})
		exists[list.Items[i].Name] = true
	}
	addrs := map[string]netip.Addr{}
	for i := range proxies.Items {
		for _, endpoint := range proxies.Items[i].Endpoints {
			if endpoint.NodeName == nil || !exists[*endpoint.NodeName] || len(endpoint.Addresses) == 0 {
				continue
			}
			addr, err := netip.ParseAddr(endpoint.Addresses[0])
			lowest, has := addrs[*endpoint.NodeName]
			if err == nil && (!has || addr.Less(lowest)) {
				addrs[*endpoint.NodeName] = addr
			}
		}
	}
	targets := make([]Target, 0, len(addrs))
	for _, node := range slices.Sorted(maps.Keys(addrs)) {
		targets = append(targets, Target{node, addrs[node]})
	}
	return nodes, targets, nil
}

func (l *leader) services(ctx context.Context) (map[string]*corev1.Service, error) {
	var list corev1.ServiceList
	if err := l.objects.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Services: %w", err)
	}
	services := make(map[string]*corev1.Service, len(list.Items))
	for i := range list.Items {
		services[list.Items[i].Namespace+"/"+list.Items[i].Name] = &list.Items[i]
	}
	return services, nil
}
