package apiserver

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// The size of the measured cluster.
const (
	memoryServices  = 10_000
	memoryEndpoints = 10 // of each Service
	memoryNodes     = 1000
)

// maxBytesPerService bounds the size of the cache for a Service, its slice and ten endpoints. Most of it is the endpoints
// themselves.
const maxBytesPerService = 3000

// maxBytesPerForeignService bounds the size of each Service of another proxy: not even its name is kept.
const maxBytesPerForeignService = 30

// serve returns a ListWatch of a server with a list that never changes. Each list is decoded again, as from a real one.
func serve(decode func() kruntime.Object) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (kruntime.Object, error) { return decode(), nil },
		WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if options.SendInitialEvents != nil {
				return nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil) // like an API server that is too old for it
			}
			return watch.NewFake(), nil
		},
	}
}

// emptyLists returns an empty list of each watched kind.
func emptyLists() map[*convert.Kind]*cache.ListWatch {
	nothing := &corev1.List{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	lists := map[*convert.Kind]*cache.ListWatch{}
	for _, kind := range watchedKinds() {
		lists[kind] = serve(func() kruntime.Object { return nothing })
	}
	return lists
}

// text returns a string that shares no bytes, as decoders do.
func text(format string, args ...any) string { return fmt.Sprintf(format, args...) }

func manyServices() kruntime.Object {
	list := &corev1.ServiceList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for i := range memoryServices {
		address := text("10.%d.%d.%d", 96+i/60000, i/250%250, i%250+1)
		list.Items = append(list.Items, corev1.Service{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: text("team-%d", i%50), Name: text("service-%d", i), UID: types.UID(text("%036d", i)), ResourceVersion: text("%d", 100_000+i),
				Labels: map[string]string{"app.kubernetes.io/name": text("service-%d", i)}, CreationTimestamp: metav1.Now(),
				ManagedFields: []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(string(make([]byte, 500)))}},
			},
			Spec: corev1.ServiceSpec{
				ClusterIP: address, ClusterIPs: []string{address}, Selector: map[string]string{"app": text("service-%d", i)},
				Ports: []corev1.ServicePort{{Name: text("http"), Protocol: "TCP", Port: 80}},
			},
		})
	}
	return list
}

func manySlices() kruntime.Object {
	list := &discoveryv1.EndpointSliceList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for i := range memoryServices {
		slice := discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: text("team-%d", i%50), Name: text("service-%d-x7k2p", i), UID: types.UID(text("%036d", i)),
				ResourceVersion: text("%d", 200_000+i),
				Labels:          map[string]string{discoveryv1.LabelServiceName: text("service-%d", i)},
				ManagedFields:   []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(string(make([]byte, 500)))}},
			},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: new(text("http")), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))}},
		}
		for e := range memoryEndpoints {
			n := i*memoryEndpoints + e
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{text("10.%d.%d.%d", 128+n/62500, n/250%250, n%250+1)},
				NodeName:  new(text("node-%04d.compute.internal", n%memoryNodes)), Zone: new(text("region-1-%d", n%3)),
				Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: text("region-1-%d", n%3)}}},
				TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: text("team-%d", i%50), Name: text("pod-%d", n),
					UID: types.UID(text("%036d", n))},
			})
		}
		list.Items = append(list.Items, slice)
	}
	return list
}

// manyOthersServices returns as many Services of another proxy.
func manyOthersServices() kruntime.Object {
	list := manyServices().(*corev1.ServiceList)
	for i := range list.Items {
		list.Items[i].Labels[policy.ServiceProxyNameLabel] = text("other")
	}
	return list
}

// heap returns the number of live bytes.
func heap() int64 {
	runtime.GC()
	runtime.GC() // frees the objects that finalizers kept alive in the first
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// measureCache watches a cluster with these Services and slices until the test ends. It returns the first update, and the
// number of bytes that stay in memory.
func measureCache(t *testing.T, services, slices func() kruntime.Object) (convert.Update, int64) {
	t.Helper()
	lists := emptyLists()
	lists[convert.Services], lists[convert.EndpointSlices] = serve(services), serve(slices)
	w := newWatcher(listWatches{byKind: lists},
		Options{View: convert.View{Node: "self"}, Log: slog.New(slog.DiscardHandler)})
	before := heap()
	ctx, cancel := context.WithCancel(t.Context())
	first, done := make(chan convert.Update, 1), make(chan error, 1)
	go func() { done <- w.Run(ctx, func(update convert.Update) { first <- update }) }()
	update := <-first
	bytes := heap() - before
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	runtime.KeepAlive(w)
	return update, bytes
}

func TestCacheSize(t *testing.T) {
	update, bytes := measureCache(t, manyServices, manySlices)
	t.Logf("%d Services with %d endpoints each: %d bytes a Service", memoryServices, memoryEndpoints, bytes/memoryServices)
	if len(update.Change.Services) != memoryServices || len(update.Change.Slices) != memoryServices {
		t.Errorf("%d Services and %d slices were delivered", len(update.Change.Services), len(update.Change.Slices))
	}
	if bytes > memoryServices*maxBytesPerService {
		t.Errorf("the cache takes %d bytes a Service, want at most %d", bytes/memoryServices, maxBytesPerService)
	}
}

// Services of other proxies are listed and watched nonetheless.
func TestCacheSizeOfOtherProxies(t *testing.T) {
	update, bytes := measureCache(t, manyOthersServices, func() kruntime.Object {
		return &discoveryv1.EndpointSliceList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	})
	t.Logf("%d Services of another proxy: %d bytes a Service", memoryServices, bytes/memoryServices)
	if len(update.Change.Services) > 0 {
		t.Errorf("%d Services were delivered", len(update.Change.Services))
	}
	if bytes > memoryServices*maxBytesPerForeignService {
		t.Errorf("%d bytes a Service of another proxy, want at most %d", bytes/memoryServices, maxBytesPerForeignService)
	}
}
