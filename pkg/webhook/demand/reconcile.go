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

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand/writequeue"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/election"
)

// reconciler writes the results of rounds to ServiceDemands. It handles one round at a time: writes may continue until
// the next one begins.
type reconciler struct {
	identity string
	leases   coordinationclient.LeaseInterface
	objects  cache.Cache // of ServiceDemands only: all else works without the CRD
	writer   client.Writer
	observer Observer
	log      *slog.Logger

	queue            writequeue.Queue
	writing          sync.WaitGroup
	logged           map[string]string // the last log text about an object, by namespace/name
	loggedUnreadable bool              // set after a log line about ServiceDemands that cannot be read
}

// newReconciler returns a reconciler whose cache is not started yet.
func newReconciler(config *rest.Config, options Options, leases coordinationclient.LeasesGetter) (*reconciler, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("add ServiceDemands to scheme: %w", err)
	}
	mapper := meta.NewDefaultRESTMapper(nil) // the default mapper queries the API server, which may be down
	mapper.Add(v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.ServiceDemandKind), meta.RESTScopeNamespace)
	jsonConfig := rest.CopyConfig(config) // custom resources do not support protobuf
	jsonConfig.ContentType = runtime.ContentTypeJSON
	// The queue limits writes.
	jsonConfig.QPS, jsonConfig.Burst = 2*writequeue.MaxPerSecond, 2*writequeue.MaxPerSecond
	objects, err := cache.New(jsonConfig, cache.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("create cache of ServiceDemands: %w", err)
	}
	writer, err := client.New(jsonConfig, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("create client for ServiceDemands: %w", err)
	}
	return &reconciler{
		identity: options.Identity, leases: leases.Leases(options.Namespace), objects: objects, writer: writer,
		observer: options.Observer, log: options.Log, logged: map[string]string{},
	}, nil
}

// errNotListed means that the list of ServiceDemands is not complete yet.
var errNotListed = errors.New("cache not synced")

// read returns the existing objects by namespace/name, after all writes of the last round. It returns false until they
// are listed.
func (r *reconciler) read(ctx context.Context) (map[string]*v1alpha1.ServiceDemand, bool) {
	r.writing.Wait()
	all, err := r.list(ctx)
	if err != nil && ctx.Err() == nil && !r.loggedUnreadable {
		r.log.Warn("publishing demand: cannot list ServiceDemands yet; apply the component demand if it is missing", "error", err)
	}
	r.loggedUnreadable = err != nil
	objects := make(map[string]*v1alpha1.ServiceDemand, len(all))
	for i := range all {
		objects[all[i].Namespace+"/"+all[i].Name] = &all[i]
	}
	return objects, err == nil
}

// list returns the objects in the cache, and starts their informer. It does not wait for the API server.
func (r *reconciler) list(ctx context.Context) ([]v1alpha1.ServiceDemand, error) {
	informer, err := r.objects.GetInformer(ctx, &v1alpha1.ServiceDemand{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	if !informer.HasSynced() {
		return nil, errNotListed
	}
	var all v1alpha1.ServiceDemandList
	err = r.objects.List(ctx, &all, client.UnsafeDisableDeepCopy)
	return all.Items, err
}

// publish starts the writes of a round, within the budget. It renews the Lease if enough nodes report, which confirms
// that the published state is current, and lists there what waits for the budget.
func (r *reconciler) publish(ctx context.Context, now time.Time, interval time.Duration, proxies int, s *state, round Round) error {
	changes, err := s.changes(now, round)
	isLogged := map[string]bool{}
	for _, c := range changes {
		isLogged[c.Key()] = true
	}
	for key, object := range s.objects {
		if !isManaged(object) {
			isLogged[key] = true
			r.logOnce(ctx, key, slog.LevelWarn, "not written by the webhook, because it lacks the label "+managedByLabel+"="+managerName+
				"; leaving it unchanged")
		}
	}
	maps.DeleteFunc(r.logged, func(key, _ string) bool { return !isLogged[key] })
	writes, backlog := r.queue.Plan(now, interval, proxies, changes)
	r.observer.Queued(backlog)
	r.writing.Go(func() {
		for _, w := range writes {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Until(w.At)):
				r.write(ctx, w.Change)
			}
		}
	})
	if hasMinCoverage(round) {
		annotations := map[string]string{v1alpha1.DemandBacklogAnnotation: backlog.String()}
		err = errors.Join(err, election.Heartbeat(ctx, r.leases, v1alpha1.DemandLeaseName, r.identity, v1alpha1.DemandFreshFor, annotations))
	}
	return err
}

// hasMinCoverage reports whether enough nodes report for published demand to count.
func hasMinCoverage(round Round) bool {
	return round.Nodes > 0 && float64(round.Reporting) >= minCoverage*float64(round.Nodes)
}

// write performs one write. If it fails, the next round decides again.
func (r *reconciler) write(ctx context.Context, w writequeue.Change) {
	operation, err := "create", error(nil)
	switch {
	case w.After == nil:
		operation = "delete"
		preconditions := client.Preconditions{UID: &w.Before.UID, ResourceVersion: &w.Before.ResourceVersion}
		err = r.writer.Delete(ctx, w.Before.DeepCopy(), preconditions)
	case w.Before == nil:
		err = r.writer.Create(ctx, w.After)
	default:
		operation = "update"
		err = r.writer.Update(ctx, w.After)
	}
	switch {
	case err == nil:
		delete(r.logged, w.Key())
		r.observer.Published(operation)
	case ctx.Err() != nil, apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
		// Another client wrote the object; the cache will show its version.
	default:
		r.observer.MeasureFailed()
		r.logOnce(ctx, w.Key(), slog.LevelError, fmt.Sprintf("%s: %v", operation, err))
	}
}

// logOnce logs a text about an object if it differs from the last one.
func (r *reconciler) logOnce(ctx context.Context, key string, level slog.Level, text string) {
	if r.logged[key] != text {
		r.logged[key] = text
		r.log.Log(ctx, level, "publishing demand: ServiceDemand not updated", "object", key, "reason", text)
	}
}
