package cache

import (
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// A program that had to query the API server first could not start while that is down, and would start late after it is
// back: kubelet waits minutes before it restarts a container.
func TestNewCacheWithoutAPIServer(t *testing.T) {
	unreachable := &rest.Config{Host: "http://127.0.0.1:1"}
	mapper, err := Mapper(unreachable, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cache.New(unreachable, cache.Options{ByObject: ByObject(), Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := NewCache(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if cluster.HasSynced() || cluster.Nodes() != nil || cluster.Namespace("shop").IsLoaded {
		t.Error("the cache has state that was never listed")
	}
}
