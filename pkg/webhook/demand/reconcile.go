package demand

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vicinity-proxy/vicinity/pkg/servicedemand"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/election"
)

// reconciler writes what rounds found into ServiceDemands. It handles one round at a time: its writes go on until the
// next one.
type reconciler struct {
	identity string
	leases   coordinationclient.LeaseInterface
	objects  cache.Cache // of ServiceDemands alone: where there is no such resource, all else works
	writer   client.Writer
	observer Observer
	log      *slog.Logger

	planner          fairQueue
	writing          sync.WaitGroup
	logged           map[string]string // what was last logged about an object, by namespace and name
	loggedUnreadable bool              // it was logged that ServiceDemands cannot be read
}

// newReconciler returns one that has not looked yet. Its cache has to be started.
func newReconciler(config *rest.Config, options Options, leases coordinationclient.LeasesGetter) (*reconciler, error) {
	scheme := runtime.NewScheme()
	if err := servicedemand.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("describe ServiceDemands: %w", err)
	}
	mapper := meta.NewDefaultRESTMapper(nil) // the usual one asks the API server, which may be away
	mapper.Add(servicedemand.Group.WithKind(servicedemand.Kind), meta.RESTScopeNamespace)
	inJSON := rest.CopyConfig(config) // custom resources know no protobuf
	inJSON.ContentType = runtime.ContentTypeJSON
	// The budget is in plan.go.
	inJSON.QPS, inJSON.Burst = 2*writesPerSecond, 2*writesPerSecond
	objects, err := cache.New(inJSON, cache.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("make a cache of ServiceDemands: %w", err)
	}
	writer, err := client.New(inJSON, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("make a client for ServiceDemands: %w", err)
	}
	return &reconciler{
		identity: options.Identity, leases: leases.Leases(options.Namespace), objects: objects, writer: writer,
		observer: options.Observer, log: options.Log, logged: map[string]string{},
	}, nil
}

// errNotListed: the list of ServiceDemands is not complete yet.
var errNotListed = errors.New("they are not listed yet")

// read returns the existing objects, by namespace and name, after all writes of the last round; false until they are
// known.
func (r *reconciler) read(ctx context.Context) (map[string]*servicedemand.ServiceDemand, bool) {
	r.writing.Wait()
	all, err := r.list(ctx)
	if err != nil && ctx.Err() == nil && !r.loggedUnreadable {
		r.log.Warn("publishing demand waits until ServiceDemands can be listed: is the component demand applied?", "error", err)
	}
	r.loggedUnreadable = err != nil
	objects := make(map[string]*servicedemand.ServiceDemand, len(all))
	for i := range all {
		objects[all[i].Namespace+"/"+all[i].Name] = &all[i]
	}
	return objects, err == nil
}

// list returns what the cache has, and makes it follow ServiceDemands. It does not wait for the API server's answer.
func (r *reconciler) list(ctx context.Context) ([]servicedemand.ServiceDemand, error) {
	informer, err := r.objects.GetInformer(ctx, &servicedemand.ServiceDemand{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	if !informer.HasSynced() {
		return nil, errNotListed
	}
	var all servicedemand.List
	err = r.objects.List(ctx, &all, client.UnsafeDisableDeepCopy)
	return all.Items, err
}

// publish begins to write what a round found, within the budget, and confirms in the Lease that the published state is
// current.
func (r *reconciler) publish(ctx context.Context, now time.Time, interval time.Duration, proxies int, s *state, round Round) error {
	rewrites, err := s.changes(now, round)
	byKey := make(map[string]objectChange, len(rewrites))
	changes := make([]change, 0, len(rewrites))
	for _, each := range rewrites {
		c := each.change()
		changes, byKey[c.key()] = append(changes, c), each
	}
	strangers := s.unmanaged()
	maps.DeleteFunc(r.logged, func(key, _ string) bool {
		_, isWanted := byKey[key]
		_, isStranger := strangers[key]
		return !isWanted && !isStranger
	})
	for key, text := range strangers {
		r.logOnce(ctx, key, slog.LevelWarn, text)
	}
	writes, waiting := r.planner.plan(now, interval, proxies, changes)
	r.observer.Queued(waiting)
	r.writing.Go(func() {
		for _, w := range writes {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Until(w.at)):
				r.write(ctx, w.key(), byKey[w.key()])
			}
		}
	})
	if hasMinCoverage(round) {
		err = errors.Join(err, election.Heartbeat(ctx, r.leases, servicedemand.LeaseName, r.identity, servicedemand.FreshFor))
	}
	return err
}

// hasMinCoverage reports whether enough nodes are heard for what is published to count.
func hasMinCoverage(round Round) bool {
	return round.Nodes > 0 && float64(round.Reporting) >= minCoverage*float64(round.Nodes)
}

// write makes one write. If it fails, the next round decides and tries again.
func (r *reconciler) write(ctx context.Context, key string, w objectChange) {
	operation, err := "create", error(nil)
	switch {
	case w.after == nil:
		operation = "delete"
		same := client.Preconditions{UID: &w.before.UID, ResourceVersion: &w.before.ResourceVersion}
		err = r.writer.Delete(ctx, w.before.DeepCopy(), same)
	case w.before == nil:
		err = r.writer.Create(ctx, w.after)
	default:
		operation = "update"
		err = r.writer.Update(ctx, w.after)
	}
	switch {
	case err == nil:
		delete(r.logged, key)
		r.observer.Published(operation)
	case ctx.Err() != nil, apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
		// Somebody else wrote; the cache will show what.
	default:
		r.observer.MeasureFailed()
		r.logOnce(ctx, key, slog.LevelError, fmt.Sprintf("%s it: %v", operation, err))
	}
}

// logOnce logs something about an object once.
func (r *reconciler) logOnce(ctx context.Context, key string, level slog.Level, text string) {
	if r.logged[key] != text {
		r.logged[key] = text
		r.log.Log(ctx, level, "publishing demand: a ServiceDemand is not as it should be", "object", key, "reason", text)
	}
}
