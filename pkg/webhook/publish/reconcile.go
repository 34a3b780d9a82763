package publish

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/printable"
	"github.com/vicinity-proxy/vicinity/pkg/topologyslice"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/election"
)

// sightPatience is how long a write may take to come back through the watch.
const sightPatience = 10 * time.Second

// reconciler brings the slices up to date. It is for one round at a time.
type reconciler struct {
	options Options
	objects client.Reader // the cache
	writer  client.Writer
	leases  coordinationclient.LeaseInterface
	changes *changes

	keys *keyring // nil before the first round

	renewed time.Time
	failure string // of the last round; empty if it worked
}

// Reconcile writes what differs, and confirms in the Lease that everything is written.
func (r *reconciler) Reconcile(ctx context.Context, _ round) (reconcile.Result, error) {
	since := r.changes.take()
	if err := r.round(ctx, since); err != nil {
		r.changes.putBack(since)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // somebody else wrote; the cache will show what
			return reconcile.Result{RequeueAfter: gather}, nil
		}
		r.failed(err)
		return reconcile.Result{}, err
	}
	if r.failure != "" {
		r.options.Log.Info("publishing the topology of nodes works again")
		r.failure = ""
	}
	return reconcile.Result{RequeueAfter: renewEvery}, nil
}

// failed counts a round that failed, and logs why once, however often it is tried again.
func (r *reconciler) failed(err error) {
	r.options.Observer.PublishFailed()
	if r.failure != err.Error() {
		r.failure = err.Error()
		r.options.Log.Error("publishing the topology of nodes failed; trying again", "error", err)
	}
}

func (r *reconciler) round(ctx context.Context, since time.Time) error {
	seen, err := r.read(ctx)
	if err != nil {
		return err
	}
	now := map[string]content{}
	for i := range seen.slices {
		now[seen.slices[i].Name] = content{seen.slices[i].Keys, seen.slices[i].Nodes}
	}
	keys, leftOut := r.chooseKeys(time.Now(), seen)
	nodes := make(map[string]map[string]string, len(seen.nodes))
	for name, labels := range seen.nodes {
		nodes[name] = describe(labels, keys)
	}
	writes := plan(now, keys, nodes, NodesPerSlice)
	if err := r.carryOut(ctx, seen, writes); err != nil {
		return err
	}
	at := time.Now()
	var lag time.Duration
	if !since.IsZero() {
		lag = at.Sub(since)
	}
	r.options.Observer.Published(at, countAfter(len(now), writes), len(nodes), leftOut, lag)
	return r.renew(ctx)
}

// chooseKeys returns the keys to publish, and how many keys in use are not published. The choice counts even if writing
// fails: the next round writes it.
func (r *reconciler) chooseKeys(now time.Time, seen sight) (keys []string, leftOut int) {
	if r.keys == nil {
		r.keys = newKeyring(now, seen.published())
	}
	waiting := r.keys.choose(now, seen.used, seen.carried)
	r.keys.log(r.options.Log, now, waiting)
	return r.keys.keys(), len(waiting)
}

// countAfter is how many slices there are after writes.
func countAfter(count int, writes []write) int {
	for _, w := range writes {
		switch {
		case w.content == nil:
			count--
		case w.name == "":
			count++
		}
	}
	return count
}

// sight is what the cache has.
type sight struct {
	nodes   map[string]map[string]string // labels by name
	used    usage
	carried map[string]bool // labels that some node has
	slices  []topologyslice.TopologySlice
}

func (r *reconciler) read(ctx context.Context) (sight, error) {
	seen := sight{nodes: map[string]map[string]string{}, used: usage{}, carried: map[string]bool{}}
	var all topologyslice.List
	if err := r.objects.List(ctx, &all); err != nil {
		return sight{}, fmt.Errorf("list TopologySlices: %w", err)
	}
	seen.slices = all.Items
	nodes, err := r.list(ctx, nodeKind)
	if err != nil {
		return sight{}, err
	}
	for i := range nodes {
		seen.nodes[nodes[i].Name] = nodes[i].Labels
		for key := range nodes[i].Labels {
			seen.carried[key] = true
		}
	}
	for kind, annotation := range map[string]string{
		serviceKind: policy.TopologyKeysAnnotation, namespaceKind: policy.DefaultTopologyKeysAnnotation,
	} {
		objects, err := r.list(ctx, kind)
		if err != nil {
			return sight{}, err
		}
		for i := range objects {
			namespace := objects[i].Namespace
			if kind == namespaceKind {
				namespace = objects[i].Name
			}
			seen.use(objects[i].Annotations[annotation], namespace == r.options.Namespace)
		}
	}
	seen.use(r.options.DefaultKeys(), true)
	return seen, nil
}

// use takes in a list of keys. Invalid lists and None are skipped.
func (s sight) use(list string, isAdministrators bool) {
	if list == "" || list == policy.None {
		return
	}
	keys, err := policy.ParseKeys(list)
	if err != nil {
		return
	}
	for _, key := range keys {
		s.used.add(key, isAdministrators)
	}
}

// published are the keys of all slices.
func (s sight) published() []string {
	var keys []string
	for i := range s.slices {
		keys = append(keys, s.slices[i].Keys...)
	}
	return keys
}

func (r *reconciler) list(ctx context.Context, kind string) ([]metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{TypeMeta: metadataOf(kind).TypeMeta}
	list.Kind += "List"
	if err := r.objects.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the metadata of %ss: %w", kind, err)
	}
	return list.Items, nil
}

// carryOut makes writes in their order, and waits until the cache has them: the next round must not make them again.
func (r *reconciler) carryOut(ctx context.Context, seen sight, writes []write) error {
	before := map[string]*topologyslice.TopologySlice{}
	for i := range seen.slices {
		before[seen.slices[i].Name] = &seen.slices[i]
	}
	written := map[string]string{} // versions by name; empty for what is gone
	for _, w := range writes {
		name, version, err := r.write(ctx, before[w.name], w)
		if err != nil {
			return errors.Join(err, r.awaitSight(ctx, written))
		}
		written[name] = version
	}
	return r.awaitSight(ctx, written)
}

// write makes one write, and returns the slice's name and version.
func (r *reconciler) write(ctx context.Context, before *topologyslice.TopologySlice, w write) (name, version string, err error) {
	slice := &topologyslice.TopologySlice{ObjectMeta: metav1.ObjectMeta{GenerateName: "nodes-"}}
	operation := "create"
	switch {
	case w.content == nil:
		operation = "delete"
		slice = before
		err = r.writer.Delete(ctx, slice, client.Preconditions{UID: new(before.UID), ResourceVersion: new(before.ResourceVersion)})
	case before == nil:
		slice.Keys, slice.Nodes = w.content.keys, w.content.nodes
		err = r.writer.Create(ctx, slice)
	default:
		operation = "update"
		slice = before.DeepCopy()
		slice.Keys, slice.Nodes = w.content.keys, w.content.nodes
		err = r.writer.Update(ctx, slice)
	}
	if err != nil {
		return "", "", fmt.Errorf("%s a TopologySlice of %s: %w", operation, printable.Count(len(slice.Nodes), "node"), err)
	}
	r.options.Observer.SliceWritten(operation)
	if w.content == nil {
		return slice.Name, "", nil
	}
	return slice.Name, slice.ResourceVersion, nil
}

// awaitSight waits until the cache has the versions that were written, or versions that were not seen before.
func (r *reconciler) awaitSight(ctx context.Context, written map[string]string) error {
	err := wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, sightPatience, true, func(ctx context.Context) (bool, error) {
		for name, version := range written {
			arrived, err := r.hasArrived(ctx, name, version)
			if err != nil || !arrived {
				return false, err
			}
			delete(written, name)
		}
		return true, nil
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("wait until what was written comes back, %s: %w", printable.Count(len(written), "TopologySlice"), err)
	}
	return err
}

// hasArrived reports whether the cache has a version of a slice or a newer one; or has it no longer, if the version is
// empty.
func (r *reconciler) hasArrived(ctx context.Context, name, version string) (bool, error) {
	var found topologyslice.TopologySlice
	err := r.objects.Get(ctx, types.NamespacedName{Name: name}, &found)
	if apierrors.IsNotFound(err) {
		return version == "", nil
	}
	if err != nil || version == "" {
		return false, err
	}
	order, err := resourceversion.CompareResourceVersion(found.ResourceVersion, version)
	return order >= 0, err
}

// renew confirms in the Lease that all slices are current.
func (r *reconciler) renew(ctx context.Context) error {
	now := time.Now()
	if now.Sub(r.renewed) < renewEvery {
		return nil
	}
	if err := election.Renew(ctx, r.leases, topologyslice.LeaseName, r.options.Identity, leaseDuration); err != nil {
		return err
	}
	r.renewed = now
	return nil
}
