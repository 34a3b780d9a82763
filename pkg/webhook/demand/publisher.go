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
	// electionLease says who asks the proxies.
	electionLease = "vicinity-demand-publisher"
	// minCoverage is the part of the nodes that has to be heard. The alert VicinityDemandNotPublished has the same number.
	minCoverage = 0.9
	// interval is how often the proxies are asked, and everyLarge beyond manyNodes.
	interval, largeInterval = 30 * time.Second, time.Minute
	manyNodes               = 1000
	// requestSpread is the part of an interval over which the requests are spread. The rest is for the last answers.
	requestSpread = 0.8
)

// Options say whom to ask.
type Options struct {
	// Namespace is where the Lease and the account are, and Identity who this replica is among the others.
	Namespace, Identity string
	// Account is the account whose token is shown to the proxies.
	Account string
	// Proxies is the Service whose EndpointSlices have the proxies' addresses.
	Proxies types.NamespacedName
	Puller  *Puller
	Log     *slog.Logger
	// Observer learns what was found.
	Observer Observer
	// MeasuredByDefault: the demand on Services with a bound that name no clients is published, too.
	MeasuredByDefault bool
	// Every is how often the proxies are asked, and TellAfter after how long an owner is told; 0 for the usual.
	Every, MinSkewDuration time.Duration
}

// Observer learns what was found. Its methods return at once.
type Observer interface {
	// Measured is called after each round. It leaves out Services for which no demand is assumed, or the assumption is
	// unknown.
	Measured(round Round)
	// Queued is called in each round, with what waits to be published. Published is called after each write: create, update
	// or delete.
	Queued(waiting Backlog)
	Published(operation string)
	// LeadEnded is called when another replica may ask.
	LeadEnded()
	// MeasureFailed counts a round, or a write, in which something failed.
	MeasureFailed()
}

// Run stands for election until ctx ends, and asks all proxies again and again while elected.
func Run(ctx context.Context, config *rest.Config, options Options) error {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client for the Lease, the token and Events of demand: %w", err)
	}
	return election.Run(ctx, election.Options{
		Leases: clients.CoordinationV1(), Namespace: options.Namespace, Lease: electionLease, Identity: options.Identity,
		Task: "measuring demand",
		Lead: func(ctx context.Context) error {
			publishing, err := newReconciler(config, options, clients.CoordinationV1())
			if err != nil {
				return err
			}
			l := &leader{
				options: options, publishing: publishing,
				token:   token{accounts: clients.CoreV1().ServiceAccounts(options.Namespace), account: options.Account},
				adviser: skewReporter{events: clients.EventsV1(), identity: options.Identity, after: cmp.Or(options.MinSkewDuration, minSkewDuration)},
			}
			return l.lead(ctx, config)
		},
		Failed: options.Observer.MeasureFailed, Ended: options.Observer.LeadEnded, Log: options.Log,
	})
}

// leader asks the proxies during one term.
type leader struct {
	options  Options
	token    token
	objects  client.Reader
	adviser  skewReporter
	follower Aggregator
	failure  string // of the last round; empty if it worked
	coverage coverage
	rounds   int // rounds

	publishing *reconciler
}

func metadataOf(kind string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: kind}}
}

// cacheOptions are the objects that are followed, and what is kept of them.
func cacheOptions(proxies types.NamespacedName) map[client.Object]cache.ByObject {
	of := labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: proxies.Name})
	return map[client.Object]cache.ByObject{
		metadataOf("Node"):           {Transform: strip},
		&corev1.Service{}:            {Transform: strip},
		&discoveryv1.EndpointSlice{}: {Namespaces: map[string]cache.Config{proxies.Namespace: {LabelSelector: of}}},
	}
}

// strip keeps only the labels of a Node, and those parts of a Service that say how its load is bounded.
func strip(object any) (any, error) {
	switch full := object.(type) {
	case *metav1.PartialObjectMetadata:
		return &metav1.PartialObjectMetadata{TypeMeta: full.TypeMeta, ObjectMeta: metav1.ObjectMeta{
			Name: full.Name, UID: full.UID, ResourceVersion: full.ResourceVersion, Labels: full.Labels,
		}}, nil
	case *corev1.Service:
		left := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
			Name: full.Name, Namespace: full.Namespace, UID: full.UID, ResourceVersion: full.ResourceVersion,
		}}
		left.Spec.TrafficDistribution = full.Spec.TrafficDistribution
		for _, each := range policy.Annotations {
			if value, has := full.Annotations[each.Name]; has {
				metav1.SetMetaDataAnnotation(&left.ObjectMeta, each.Name, value)
			}
		}
		return left, nil
	}
	return object, nil // what stands for an object that is gone, and EndpointSlices
}

func (l *leader) lead(ctx context.Context, config *rest.Config) error {
	scheme := runtime.NewScheme()
	if err := discoveryv1.AddToScheme(scheme); err != nil {
		return fmt.Errorf("describe the types: %w", err)
	}
	if err := corev1.AddToScheme(scheme); err != nil {
		return fmt.Errorf("describe Services: %w", err)
	}
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		return fmt.Errorf("describe metadata: %w", err)
	}
	mapper := meta.NewDefaultRESTMapper(nil) // the usual one asks the API server, which may be away
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Service"), meta.RESTScopeNamespace)
	mapper.Add(discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), meta.RESTScopeNamespace)
	mapper.Add(discoveryv1.SchemeGroupVersion.WithKind("EndpointSliceList"), meta.RESTScopeNamespace) // asked for where Namespaces are given
	objects, err := cache.New(config, cache.Options{Scheme: scheme, Mapper: mapper, ByObject: cacheOptions(l.options.Proxies)})
	if err != nil {
		return fmt.Errorf("make a cache: %w", err)
	}
	for object := range cacheOptions(l.options.Proxies) {
		if _, err := objects.GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("follow objects: %w", err)
		}
	}
	if _, err := l.publishing.list(ctx); err != nil && !errors.Is(err, errNotListed) {
		return fmt.Errorf("follow ServiceDemands: %w", err)
	}
	ended := make(chan error, 2)
	go func() { ended <- objects.Start(ctx) }()
	go func() { ended <- l.publishing.objects.Start(ctx) }()
	if objects.WaitForCacheSync(ctx) {
		l.objects = objects
		l.measure(ctx)
	}
	return errors.Join(<-ended, <-ended)
}

// measure asks all proxies again and again until ctx ends.
func (l *leader) measure(ctx context.Context) {
	defer l.publishing.writing.Wait()
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

// report logs once why rounds fail, however often they fail.
func (l *leader) report(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err == nil && l.failure != "":
		l.failure = ""
		l.options.Log.Info("measuring demand works again")
	case err != nil:
		l.options.Observer.MeasureFailed()
		if err.Error() != l.failure {
			l.options.Log.Error("measuring demand failed; trying again", "error", err)
		}
		l.failure = err.Error()
	}
}

// round asks all proxies once, and returns when to begin the next round.
func (l *leader) round(ctx context.Context) (interval time.Duration, err error) {
	nodes, targets, err := l.nodes(ctx)
	interval = l.interval(len(nodes))
	if err != nil {
		return interval, err
	}
	silence, err := l.pull(ctx, targets, interval)
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
	l.logCoverage(round, silence)
	maps.DeleteFunc(round.Services, func(name string, _ Report) bool { return !settings.isComparable(services[name]) })
	l.options.Observer.Measured(round)
	return interval, errors.Join(err, l.adviser.report(ctx, now, round, services))
}

// interval is how often the proxies of that many nodes are asked.
func (l *leader) interval(nodes int) time.Duration {
	if nodes > manyNodes {
		return cmp.Or(l.options.Every, largeInterval)
	}
	return cmp.Or(l.options.Every, interval)
}

// pull asks the proxies.
func (l *leader) pull(ctx context.Context, targets []Target, interval time.Duration) (PullErrors, error) {
	shown, err := l.token.get(ctx, time.Now())
	if err != nil {
		return PullErrors{}, err
	}
	over := time.Duration(requestSpread * float64(interval))
	return l.options.Puller.Pull(ctx, shown, targets, over, func(node string, page demandapi.Page) {
		l.follower.AddReport(node, time.Now(), page)
	}), nil
}

// finishRound sums up what was heard, and begins to publish it.
func (l *leader) finishRound(
	ctx context.Context, now time.Time, interval time.Duration, nodes []Node, proxies int, services map[string]*corev1.Service,
	settings *settings,
) (Round, error) {
	objects, canPublish := l.publishing.read(ctx)
	seen := &state{services, settings.publishesDemand, objects}
	for name := range objects {
		if seen.managed(name) != nil && seen.shouldPublish(services[name]) {
			l.follower.Track(name)
		}
	}
	round := l.follower.Aggregate(now, nodes, seen.lookupService())
	if !canPublish {
		return round, nil
	}
	return round, l.publishing.publish(ctx, now, interval, proxies, seen, round)
}

// nodes returns all nodes that run Linux, with the addresses of their proxies if they have one. No others have a proxy that
// counts.
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
			known, has := addrs[*endpoint.NodeName]
			if err == nil && (!has || addr.Less(known)) {
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
