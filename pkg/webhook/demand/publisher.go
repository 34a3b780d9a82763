package demand

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/demandapi"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand/cluster"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand/overload"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand/pull"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/election"
)

const (
	// electionLease names the Lease that elects the replica that pulls from the proxies.
	electionLease = "vicinity-demand-publisher"
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
	Puller  *pull.Puller
	Log     *slog.Logger
	// Observer receives the results.
	Observer Observer
	// Settings decide for which Services demand is published.
	Settings cluster.Settings
	// Every overrides the pull interval, and MinProblemDuration how long a problem must last before an Event; 0 means the
	// default.
	Every, MinProblemDuration time.Duration
}

// Observer receives the results of rounds. Its methods must not block.
type Observer interface {
	// Measured is called after each round. The round omits Services whose assumed demand is unknown here, and those that
	// use measured demand.
	Measured(round Round)
	// Queued is called in each round with the backlog. Published is called after each write with "create", "update" or
	// "delete".
	Queued(waiting v1alpha1.DemandBacklog)
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
				token:     pull.Token{Accounts: clients.CoreV1().ServiceAccounts(options.Namespace), Account: options.Account},
				overloads: overload.Checker{Slices: clients.DiscoveryV1()},
				events: eventWriter{events: clients.EventsV1(), identity: options.Identity,
					minDuration: cmp.Or(options.MinProblemDuration, minProblemDuration)},
			}
			return l.lead(ctx, config)
		},
		Failed: options.Observer.MeasureFailed, Ended: options.Observer.LeadEnded, Log: options.Log,
	})
}

// leader pulls from the proxies during one term.
type leader struct {
	options    Options
	token      pull.Token
	objects    *cluster.Reader
	aggregator Aggregator
	reconciler *reconciler
	overloads  overload.Checker
	events     eventWriter
	failure    string // of the last round; empty if it succeeded
	coverage   coverage
}

func (l *leader) lead(ctx context.Context, config *rest.Config) error {
	objects, err := cluster.NewReader(ctx, config, l.options.Proxies)
	if err != nil {
		return err
	}
	if _, err := l.reconciler.list(ctx); err != nil && !errors.Is(err, errNotListed) {
		return fmt.Errorf("watch ServiceDemands: %w", err)
	}
	ended := make(chan error, 2)
	go func() { ended <- objects.Start(ctx) }()
	go func() { ended <- l.reconciler.objects.Start(ctx) }()
	if objects.WaitForSync(ctx) {
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
	nodes, err := l.objects.Nodes(ctx, time.Now())
	interval = l.interval(len(nodes.WithProxy))
	if err != nil {
		return interval, err
	}
	pullErrs, err := l.pull(ctx, nodes.Targets, interval)
	if err != nil {
		return interval, err
	}
	services, err := l.objects.Services(ctx)
	if err != nil || ctx.Err() != nil {
		return interval, err
	}
	now := time.Now()
	round, err := l.finishRound(ctx, now, interval, nodes, services)
	l.logCoverage(round, pullErrs)
	return interval, errors.Join(err, l.reportProblems(ctx, now, round, nodes, services, pullErrs))
}

// interval returns the pull interval for a number of nodes.
func (l *leader) interval(nodes int) time.Duration {
	if nodes > manyNodes {
		return cmp.Or(l.options.Every, largeInterval)
	}
	return cmp.Or(l.options.Every, interval)
}

// pull requests the counts of all proxies.
func (l *leader) pull(ctx context.Context, targets []pull.Target, interval time.Duration) (pull.Errors, error) {
	bearer, err := l.token.Get(ctx, time.Now())
	if err != nil {
		return nil, err
	}
	spread := time.Duration(requestSpread * float64(interval))
	return l.options.Puller.Pull(ctx, bearer, targets, spread, func(node string, page demandapi.Page) {
		l.aggregator.AddReport(node, time.Now(), page)
	}), nil
}

// finishRound aggregates the reports, and starts to publish the result.
func (l *leader) finishRound(
	ctx context.Context, now time.Time, interval time.Duration, nodes cluster.Nodes, services map[string]*corev1.Service,
) (Round, error) {
	objects, canPublish := l.reconciler.read(ctx)
	seen := &state{services, l.options.Settings.PublishesDemand, objects}
	for name := range objects {
		if seen.managed(name) != nil && seen.shouldPublish(services[name]) {
			l.aggregator.Track(name)
		}
	}
	round := l.aggregator.Aggregate(now, nodes.WithProxy, seen.lookupService())
	if !canPublish {
		return round, nil
	}
	return round, l.reconciler.publish(ctx, now, interval, len(nodes.Targets), seen, round)
}

// reportProblems updates metrics, and writes Events about load bounds that do not hold and proxies that never
// responded.
func (l *leader) reportProblems(
	ctx context.Context, now time.Time, round Round, nodes cluster.Nodes, services map[string]*corev1.Service, pullErrs pull.Errors,
) error {
	maps.DeleteFunc(round.Services, func(name string, _ Report) bool { return !l.options.Settings.IsComparable(services[name]) })
	demands := map[string]overload.Demand{}
	for name, report := range round.Services {
		// An endpoint gets at most MaxSkew times what the bound allows.
		if report.MaxSkew > minOverload && report.ConnectionsPerMinute > minRate {
			demands[name] = overload.Demand{Service: services[name], Topology: l.options.Settings.Topology(services[name]), Shares: report.Shares}
		}
	}
	overloads, err := l.overloads.Check(ctx, now, demands, nodes.Labels)
	var problems []problem
	for _, name := range slices.Sorted(maps.Keys(overloads)) {
		report := round.Services[name]
		report.Overload = overloads[name]
		round.Services[name] = report
		if report.Overload.Ratio() > minOverload {
			problems = append(problems, skewProblem(services[name], report))
		}
	}
	l.options.Observer.Measured(round)
	for _, node := range round.Unreported[:min(len(round.Unreported), maxEventsPerRound)] { // if it is all nodes, these are enough
		problems = append(problems, unreportedProblem(node, pullErrs[node]))
	}
	return errors.Join(err, l.events.write(ctx, now, problems))
}
