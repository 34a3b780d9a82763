package apiserver

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// TestAddressesOfProxiesAreReported: the addresses come from all slices, and are reported at most once a second.
func TestAddressesOfProxiesAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slice := func(name, addr string) discoveryv1.EndpointSlice {
			return discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: "1"},
				Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{addr}, NodeName: new("n1"), Zone: new("a")}},
			}
		}
		api, changes := newAPI(time.Millisecond), make(chan watch.Event)
		proxyList := serve(func() runtime.Object {
			return &discoveryv1.EndpointSliceList{
				ListMeta: metav1.ListMeta{ResourceVersion: "1"},
				Items:    []discoveryv1.EndpointSlice{slice("six", "fd00::1"), slice("four", "10.0.0.1")},
			}
		})
		inner := proxyList.WatchFuncWithContext
		proxyList.WatchFuncWithContext = func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if watched, err := inner(ctx, options); err != nil {
				return watched, err
			}
			return watch.NewProxyWatcher(changes), nil
		}
		api.byKind[convert.ProxyAddresses] = proxyList
		var calls []map[string]*model.Node
		r := run(t, func(options Options) *Watcher {
			options.Proxies = model.ObjectName{Namespace: "default", Name: "proxies"}
			options.OnProxyAddresses = func(nodes map[string]*model.Node) { calls = append(calls, nodes) }
			return api.watcher(options)
		})
		wants := func(when string, times int, addr string) {
			t.Helper()
			time.Sleep(2 * minAddressesInterval)
			synctest.Wait()
			if len(calls) != times || addr != "" && calls[times-1]["n1"].Addresses[0].String() != addr {
				t.Fatalf("%s: %d calls, want %d; last %v, want %s", when, len(calls), times, calls[len(calls)-1], addr)
			}
		}
		wants("first list", 1, "10.0.0.1")
		for _, addr := range []string{"10.0.0.2", "10.0.0.3"} {
			changed := slice("four", addr)
			changes <- watch.Event{Type: watch.Modified, Object: &changed}
			synctest.Wait()
		}
		wants("two changes at once", 3, "10.0.0.3")
		deleted := slice("four", "10.0.0.3")
		changes <- watch.Event{Type: watch.Deleted, Object: &deleted}
		wants("a slice is deleted", 4, "fd00::1")
		r.end(t)
	})
}
