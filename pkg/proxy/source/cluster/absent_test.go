package cluster

import (
	"errors"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

func TestAResourceThatTheClusterLacksIsEmptyAndSilent(t *testing.T) {
	api := answers{watch: apierrors.NewNotFound(schema.GroupResource{Resource: "servicecidrs"}, "")}
	api.list = api.watch
	told := 0
	listWatch := orNone(api.listWatch(), noServiceCIDRs, absence{missing: func() { told++ }})

	if _, err := listWatch.WatchWithContext(t.Context(), metav1.ListOptions{SendInitialEvents: new(true)}); !apierrors.IsNotFound(err) {
		t.Errorf("a watch that begins with a list: %v, want that there is no such resource", err)
	}
	list, err := listWatch.ListWithContext(t.Context(), metav1.ListOptions{})
	if err != nil || told != 1 {
		t.Fatalf("the list failed: %v; told %d times, want once", err, told)
	}
	if none, ok := list.(*networkingv1.ServiceCIDRList); !ok || len(none.Items) > 0 || none.ResourceVersion == "" {
		t.Errorf("list = %v, want an empty one with a version", list)
	}
	watched, err := listWatch.WatchWithContext(t.Context(), metav1.ListOptions{TimeoutSeconds: new(int64(3600))})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-watched.ResultChan():
		t.Error("the watch ended at once")
	default:
	}
	watched.Stop()
	watched.Stop()
	if _, open := <-watched.ResultChan(); open {
		t.Error("something came")
	}

	brief := newSilence(time.Millisecond)
	if _, open := <-brief.ResultChan(); open {
		t.Error("something came when the time was up")
	}

	api.list = errors.New("trouble")
	if _, err := listWatch.ListWithContext(t.Context(), metav1.ListOptions{}); !errors.Is(err, api.list) {
		t.Errorf("another error became %v", err)
	}
}

func TestAResourceThatWasThereIsNotTakenForMissing(t *testing.T) {
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "servicecidrs"}, "")
	for name, first := range map[string]metav1.ListOptions{"it was listed": {}, "it was watched": {SendInitialEvents: new(true)}} {
		t.Run(name, func(t *testing.T) {
			api := answers{watched: watch.NewFake()}
			listWatch := orNone(api.listWatch(), noServiceCIDRs, absence{missing: func() { t.Error("it was told to be missing") }})
			ask := func(options metav1.ListOptions) (err error) {
				if options.SendInitialEvents != nil || options.TimeoutSeconds != nil {
					_, err = listWatch.WatchWithContext(t.Context(), options)
				} else {
					_, err = listWatch.ListWithContext(t.Context(), options)
				}
				return err
			}
			if err := ask(first); err != nil {
				t.Fatal(err)
			}
			api.list, api.watch = missing, missing
			for _, options := range []metav1.ListOptions{{}, {TimeoutSeconds: new(int64(300))}, {SendInitialEvents: new(true)}} {
				if err := ask(options); !apierrors.IsNotFound(err) {
					t.Errorf("another API server lacks it: error %v, want that one", err)
				}
			}
		})
	}
}
