package apiserver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// fakeNodeAPI is an API server with Nodes that lose labels or are deleted. It responds to lists by hostname labels.
type fakeNodeAPI struct {
	metadata.Getter
	mu     sync.Mutex
	exists map[string]bool
	isAway bool
	lists  []metav1.ListOptions

	evacuated chan watch.Event
}

func newFakeNodeAPI() *fakeNodeAPI {
	return &fakeNodeAPI{exists: map[string]bool{}, evacuated: make(chan watch.Event)}
}

func (c *fakeNodeAPI) List(_ context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lists = append(c.lists, options)
	if c.isAway {
		return nil, errAway
	}
	selector, err := labels.Parse(options.LabelSelector)
	if err != nil {
		return nil, err
	}
	list := &metav1.PartialObjectMetadataList{}
	for name, exists := range c.exists {
		if exists && selector.Matches(labels.Set{corev1.LabelHostname: "host-of-" + name}) {
			list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
	}
	return list, nil
}

// checkCount returns the number of lists.
func (c *fakeNodeAPI) checkCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.lists)
}

// watcher returns a Watcher of this API server.
func (c *fakeNodeAPI) watcher(options Options) *Watcher {
	a := newAPI(time.Millisecond)
	a.nodes = c
	a.byKind[convert.NodesByDemotionReason[model.Evacuated]].WatchFuncWithContext = func(
		_ context.Context, options metav1.ListOptions,
	) (watch.Interface, error) {
		if options.SendInitialEvents != nil {
			return nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil)
		}
		return watch.NewProxyWatcher(c.evacuated), nil
	}
	return a.watcher(options)
}

// label reports that a Node now has the label, or is no longer selected by it.
func (c *fakeNodeAPI) label(event watch.EventType, name, version string) {
	c.evacuated <- watch.Event{Type: event, Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: name, ResourceVersion: version,
		Labels: map[string]string{policy.EvacuateLabel: "true", corev1.LabelHostname: "host-of-" + name},
	}}}
}

// The watch by label reports a removed label and a deleted Node the same way. The demotion of a deleted Node must stay
// for two minutes.
func TestDeletedNodeAndRemovedLabelAreDistinguished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeNodeAPI()
		r := run(t, c.watcher)
		time.Sleep(time.Second)
		seen := 0
		expect := func(what string, pause time.Duration, want string) {
			t.Helper()
			time.Sleep(pause)
			synctest.Wait()
			var words []string
			for _, update := range r.delivered()[seen:] {
				words, seen = append(words, strings.Fields(updateText(update))...), seen+1
			}
			words = slices.DeleteFunc(words, func(word string) bool { return !strings.Contains(word, "demotion/") })
			if slices.Sort(words); strings.Join(words, " ") != want {
				t.Errorf("%s: delivered %q, want %q", what, words, want)
			}
		}
		for _, node := range []string{"n1", "n2", "n3", "n4"} {
			c.exists[node] = true
			c.label(watch.Added, node, "5")
		}
		expect("four get the label", time.Millisecond, "demotion/n1 demotion/n2 demotion/n3 demotion/n4")
		c.label(watch.Deleted, "n1", "7")
		expect("a node loses its label", time.Millisecond, "-demotion/n1")
		if got := c.lists[0]; got.ResourceVersion != "7" || got.ResourceVersionMatch != metav1.ResourceVersionMatchNotOlderThan {
			t.Errorf("list options %+v, want a result not older than the watch event", got)
		}
		c.exists["n2"] = false
		c.label(watch.Deleted, "n2", "8")
		expect("a node is deleted", 100*time.Second, "")
		expect("two minutes after the deletion", 21*time.Second, "-demotion/n2")
		c.isAway = true
		c.label(watch.Deleted, "n3", "9")
		expect("the API server does not respond", time.Second, "")
		expect("no response within checkTimeout", 3*time.Second, "-demotion/n3")
		r.end(t)
	})
}

// The nodes must be checked at most once a second.
func TestExistenceChecksAreBatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeNodeAPI()
		r := run(t, c.watcher)
		time.Sleep(time.Second)
		var names []string
		for i := range 300 {
			names = append(names, fmt.Sprintf("n%03d", i))
		}
		for i, name := range names {
			c.exists[name] = i%2 == 0
			c.label(watch.Added, name, "5")
		}
		synctest.Wait()
		for _, name := range names { // as kubectl does, 20 a second
			c.label(watch.Deleted, name, "7")
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(2 * nodeCheckInterval)
		synctest.Wait()
		lists := c.checkCount()
		demoted := map[string]bool{}
		for _, update := range r.delivered() {
			for key, demotion := range update.Change.Demotions {
				demoted[key.Node] = demotion != nil
			}
		}
		for i, name := range names {
			if demoted[name] != (i%2 == 1) {
				t.Errorf("%s is demoted: %v", name, demoted[name])
			}
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if later := c.checkCount() - lists; lists > 17 || later > 0 {
			t.Errorf("%d lists in 15 s, and %d in the three minutes after that", lists, later)
		}
		r.end(t)
	})
}

// An evacuation must end on time without an event from the API server.
func TestEvacuationExpiresWithoutAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeNodeAPI()
		r := run(t, c.watcher)
		time.Sleep(time.Second)
		end := time.Now().Truncate(time.Minute).Add(3 * time.Hour)
		c.evacuated <- watch.Event{Type: watch.Added, Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: "n1", ResourceVersion: "5", Labels: map[string]string{policy.EvacuateLabel: end.UTC().Format(policy.EvacuateEnd)},
		}}}
		time.Sleep(time.Until(end) - time.Millisecond)
		synctest.Wait()
		if got := updateText(r.delivered()[r.count()-1]); got != "demotion/n1" {
			t.Errorf("last update before the end: %q", got)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if got := updateText(r.delivered()[r.count()-1]); got != "-demotion/n1" {
			t.Errorf("last update at the end: %q", got)
		}
		r.end(t)
	})
}
