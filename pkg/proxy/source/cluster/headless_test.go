package cluster

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// TestASliceMovesBetweenTheWatches when somebody gives it the label of headless Services, or takes it away: whichever
// watch reports first, it is neither lost nor outdated in the end.
func TestASliceMovesBetweenTheWatches(t *testing.T) {
	slice := func(addrs ...string) *object {
		return &object{name: nameOf("a"), value: &model.EndpointSlice{Name: nameOf("a"), Endpoints: endpointsAt(addrs...)}}
	}
	for title, moves := range map[string][2]*convert.Kind{
		"it becomes a headless Service's": {convert.EndpointSlices, convert.HeadlessSlices},
		"it stops being one's":            {convert.HeadlessSlices, convert.EndpointSlices},
	} {
		from, to := moves[0], moves[1]
		t.Run(title+", added first", func(t *testing.T) {
			history(t,
				step{"it is there", func(w *world) { w.put(from, slice("10.0.0.1")) }, "slice/a:1"},
				step{"it is in the other one", func(w *world) { w.put(to, slice("10.0.0.1", "10.0.0.2")) }, "slice/a:2"},
				step{"it is gone from the first", func(w *world) { w.remove(from, nameOf("a")) }, "slice/a:2"},
				step{"it is deleted", func(w *world) { w.remove(to, nameOf("a")) }, "-slice/a"},
			)
		})
		t.Run(title+", deleted first", func(t *testing.T) {
			history(t,
				step{"it is there", func(w *world) { w.put(from, slice("10.0.0.1")) }, "slice/a:1"},
				step{"it is gone from the first", func(w *world) { w.remove(from, nameOf("a")) }, "-slice/a"},
				step{"it is in the other one", func(w *world) { w.put(to, slice("10.0.0.1", "10.0.0.2")) }, "slice/a:2"},
			)
		})
	}
}

// TestHeadlessSlicesAreFollowedWhileAServiceNeedsThem, and taken back some time after the last one.
func TestHeadlessSlicesAreFollowedWhileAServiceNeedsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(time.Millisecond)
		var lists atomic.Int64
		served := serve(func() runtime.Object {
			return &discoveryv1.EndpointSliceList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []discoveryv1.EndpointSlice{{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "default", Name: "db-1", ResourceVersion: "1",
					Labels: map[string]string{discoveryv1.LabelServiceName: "db", corev1.IsHeadlessService: ""},
				},
				AddressType: discoveryv1.AddressTypeIPv4,
				Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
			}}}
		})
		api.byKind[convert.HeadlessSlices] = &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				lists.Add(1)
				return served.ListWithContext(ctx, options)
			},
			WatchFuncWithContext: served.WatchFuncWithContext,
		}
		r := run(t, func(options Options) *Watcher {
			options.WithHeadless = true
			return api.watcher(options)
		})
		version, seen := 1, 0
		edit := func(keys string) {
			version++
			service := keyedService("db", version, keys)
			service.Spec.ClusterIP, service.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
			api.services <- watch.Event{Type: watch.Modified, Object: &service}
		}
		expect := func(when string, pause time.Duration, wantLists int64, want string) {
			t.Helper()
			time.Sleep(pause)
			synctest.Wait()
			var words []string // of one update, or of several
			for _, update := range r.delivered()[seen:] {
				words, seen = append(words, strings.Fields(inWords(update))...), seen+1
			}
			slices.Sort(words)
			got := strings.Join(words, " ")
			if got != want || lists.Load() != wantLists {
				t.Errorf("%s: delivered %q after %d lists, want %q after %d", when, got, lists.Load(), want, wantLists)
			}
		}
		expect("at the start", time.Minute, 0, "range/kubernetes:[10.96.0.0/16]")
		edit("")
		expect("without keys", time.Minute, 0, "")
		edit("*")
		expect("with keys", tick, 1, "service/db:80 slice/db-1:1")
		edit("kubernetes.io/hostname, *")
		expect("with other keys", time.Hour, 1, "service/db:80")
		edit("")
		expect("without keys again", tick, 1, "-service/db")
		edit("*")
		expect("with keys soon after", demandLinger, 1, "service/db:80")
		edit("")
		expect("without keys for long", 2*demandLinger, 1, "-service/db -slice/db-1")
		edit("*")
		expect("with keys again", tick, 2, "service/db:80 slice/db-1:1")
		r.end(t)
	})
}
