package topologypublisher

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

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/election"
)

// cacheTimeout bounds how long a write may take to reach the cache through the watch.
const cacheTimeout = 10 * time.Second

// retries are the pauses after failed rounds: one second, doubled up to a minute.
var retries = wait.Backoff{Duration: batchDelay, Factor: 2, Steps: 7, Cap: time.Minute}

// publisher updates the slices while this replica is the leader.
type publisher struct {
	options Options
	objects client.Reader // the cache
	writer  client.Writer
	leases  coordinationclient.LeaseInterface
	changes debouncer

	keys *keySet // nil before the first round

	renewed time.Time
	failure string // of the last round; empty if it succeeded
}

// run performs rounds until ctx ends: one at the start, one for each batch of changes, one second after the first of
// them, and one whenever the Lease is due.
func (p *publisher) run(ctx context.Context) {
	var firstChange time.Time // the time of the first change that is not written; zero if there is none
	for retry, pause := retries, time.Duration(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		case changed := <-p.changes:
			if firstChange.IsZero() {
				firstChange = changed
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(batchDelay):
			}
			select { // a change in the meantime belongs to the same round
			case <-p.changes:
			default:
			}
		}
		switch err := p.round(ctx, firstChange); {
		case err == nil:
			firstChange, retry, pause = time.Time{}, retries, renewInterval
			if p.failure != "" {
				p.options.Log.Info("publishing the topology of nodes recovered")
				p.failure = ""
			}
		case apierrors.IsConflict(err) || apierrors.IsNotFound(err): // another client wrote; the cache will show its version
			pause = batchDelay
		case ctx.Err() == nil:
			pause = retry.Step()
			p.logFailure(err)
		}
	}
}

// logFailure counts a failed round, and logs its error unless the last line had the same one.
func (p *publisher) logFailure(err error) {
	p.options.Observer.PublishFailed()
	if p.failure != err.Error() {
		p.failure = err.Error()
		p.options.Log.Error("publishing the topology of nodes failed; retrying", "error", err)
	}
}

func (p *publisher) round(ctx context.Context, firstChange time.Time) error {
	seen, err := p.read(ctx)
	if err != nil {
		return err
	}
	current := map[string]content{}
	for i := range seen.slices {
		current[seen.slices[i].Name] = content{seen.slices[i].Keys, seen.slices[i].Nodes}
	}
	keys, unpublished := p.chooseKeys(time.Now(), seen)
	nodes := make(map[string]map[string]string, len(seen.nodes))
	for name, labels := range seen.nodes {
		nodes[name] = publishedLabels(labels, keys)
	}
	writes := plan(current, keys, nodes, NodesPerSlice)
	if err := p.performWrites(ctx, seen, writes); err != nil {
		return err
	}
	publishedAt := time.Now()
	var lag time.Duration
	if !firstChange.IsZero() {
		lag = publishedAt.Sub(firstChange)
	}
	p.options.Observer.Published(publishedAt, countAfter(len(current), writes), len(nodes), unpublished, lag)
	return p.renew(ctx)
}

// chooseKeys returns the keys to publish, and how many keys in use are not published. The choice is kept even if
// writing fails: the next round writes it.
func (p *publisher) chooseKeys(now time.Time, seen observed) (keys []string, unpublished int) {
	if p.keys == nil {
		p.keys = newKeySet(now, seen.publishedKeys())
	}
	pending := p.keys.choose(now, seen.usage, seen.nodeKeys)
	p.keys.log(p.options.Log, now, pending)
	return p.keys.keys(), len(pending)
}

// countAfter returns the number of slices after the writes.
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

// observed is the content of the cache.
type observed struct {
	nodes    map[string]map[string]string // by name
	usage    keyUsage
	nodeKeys map[string]bool // label keys that some node has
	slices   []v1alpha1.TopologySlice
}

func (p *publisher) read(ctx context.Context) (observed, error) {
	seen := observed{nodes: map[string]map[string]string{}, usage: keyUsage{}, nodeKeys: map[string]bool{}}
	var all v1alpha1.TopologySliceList
	if err := p.objects.List(ctx, &all); err != nil {
		return observed{}, fmt.Errorf("list TopologySlices: %w", err)
	}
	seen.slices = all.Items
	nodes, err := p.list(ctx, nodeKind)
	if err != nil {
		return observed{}, err
	}
	for i := range nodes {
		seen.nodes[nodes[i].Name] = nodes[i].Labels
		for key := range nodes[i].Labels {
			seen.nodeKeys[key] = true
		}
	}
	for kind, annotation := range map[string]string{
		serviceKind: policy.TopologyKeysAnnotation, namespaceKind: policy.DefaultTopologyKeysAnnotation,
	} {
		objects, err := p.list(ctx, kind)
		if err != nil {
			return observed{}, err
		}
		for i := range objects {
			namespace := objects[i].Namespace
			if kind == namespaceKind {
				namespace = objects[i].Name
			}
			seen.addKeys(objects[i].Annotations[annotation], namespace == p.options.Namespace)
		}
	}
	seen.addKeys(p.options.DefaultKeys(), true)
	return seen, nil
}

// addKeys adds a list of keys. Invalid lists and None are skipped.
func (s observed) addKeys(list string, isAdministrators bool) {
	if list == "" || list == policy.None {
		return
	}
	keys, err := policy.ParseKeys(list)
	if err != nil {
		return
	}
	for _, key := range keys {
		s.usage.add(key, isAdministrators)
	}
}

// publishedKeys returns the keys of all slices.
func (s observed) publishedKeys() []string {
	var keys []string
	for i := range s.slices {
		keys = append(keys, s.slices[i].Keys...)
	}
	return keys
}

func (p *publisher) list(ctx context.Context, kind string) ([]metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{TypeMeta: metadataOf(kind).TypeMeta}
	list.Kind += "List"
	if err := p.objects.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the metadata of %ss: %w", kind, err)
	}
	return list.Items, nil
}

// performWrites performs writes in order, and waits until the cache has them: otherwise the next round would repeat
// them.
func (p *publisher) performWrites(ctx context.Context, seen observed, writes []write) error {
	existing := map[string]*v1alpha1.TopologySlice{}
	for i := range seen.slices {
		existing[seen.slices[i].Name] = &seen.slices[i]
	}
	written := map[string]string{} // resource versions by name; empty for a deleted slice
	for _, w := range writes {
		name, version, err := p.write(ctx, existing[w.name], w)
		if err != nil {
			return errors.Join(err, p.waitForCache(ctx, written))
		}
		written[name] = version
	}
	return p.waitForCache(ctx, written)
}

// write performs one write, and returns the slice's name and resource version.
func (p *publisher) write(ctx context.Context, existing *v1alpha1.TopologySlice, w write) (name, version string, err error) {
	slice := &v1alpha1.TopologySlice{ObjectMeta: metav1.ObjectMeta{GenerateName: "nodes-"}}
	operation := "create"
	switch {
	case w.content == nil:
		operation = "delete"
		slice = existing
		err = p.writer.Delete(ctx, slice, client.Preconditions{UID: new(existing.UID), ResourceVersion: new(existing.ResourceVersion)})
	case existing == nil:
		slice.Keys, slice.Nodes = w.content.keys, w.content.nodes
		err = p.writer.Create(ctx, slice)
	default:
		operation = "update"
		slice = existing.DeepCopy()
		slice.Keys, slice.Nodes = w.content.keys, w.content.nodes
		err = p.writer.Update(ctx, slice)
	}
	if err != nil {
		return "", "", fmt.Errorf("%s a TopologySlice of %s: %w", operation, sanitize.Count(len(slice.Nodes), "node"), err)
	}
	p.options.Observer.SliceWritten(operation)
	if w.content == nil {
		return slice.Name, "", nil
	}
	return slice.Name, slice.ResourceVersion, nil
}

// waitForCache waits until the cache has the written resource versions or newer ones.
func (p *publisher) waitForCache(ctx context.Context, written map[string]string) error {
	err := wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, cacheTimeout, true, func(ctx context.Context) (bool, error) {
		for name, version := range written {
			isCached, err := p.isCached(ctx, name, version)
			if err != nil || !isCached {
				return false, err
			}
			delete(written, name)
		}
		return true, nil
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("wait for the cache to show %s: %w", sanitize.Count(len(written), "TopologySlice"), err)
	}
	return err
}

// isCached reports whether the cache has this resource version of a slice or a newer one. If version is empty, it
// reports whether the cache no longer has the slice.
func (p *publisher) isCached(ctx context.Context, name, version string) (bool, error) {
	var found v1alpha1.TopologySlice
	err := p.objects.Get(ctx, types.NamespacedName{Name: name}, &found)
	if apierrors.IsNotFound(err) {
		return version == "", nil
	}
	if err != nil || version == "" {
		return false, err
	}
	order, err := resourceversion.CompareResourceVersion(found.ResourceVersion, version)
	return order >= 0, err
}

// renew renews the Lease, which confirms that all slices are current.
func (p *publisher) renew(ctx context.Context) error {
	now := time.Now()
	if now.Sub(p.renewed) < renewInterval {
		return nil
	}
	if err := election.Heartbeat(ctx, p.leases, v1alpha1.TopologyLeaseName, p.options.Identity, leaseDuration, nil); err != nil {
		return err
	}
	p.renewed = now
	return nil
}
