package status

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSummary(t *testing.T) {
	var status Status
	summary := func(at int) Summary { return status.Summary("node-a", "v1", second(0), second(at)) }
	inSyncSince := func(at int) (since int) {
		t.Helper()
		if got := summary(at).InSyncSince; got != nil {
			return int(got.Sub(second(0)) / time.Second)
		}
		return -1
	}
	done := func(at, waiting int) {
		status.SyncSucceeded(second(at))
		status.SyncDone(Sync{At: second(at), Seconds: 0.5, Services: 2}, Numbers{
			Services: 5, Waiting: waiting, RejectedByKernel: 1, Contested: 3,
		})
	}
	for _, step := range []struct {
		desc string
		do   func()
		want int
	}{
		{"before the first sync", func() {}, -1},
		{"after the first sync", func() { done(1, 0) }, 1},
		{"after another", func() { done(5, 0) }, 1},
		{"while changes are pending", func() { done(6, 2) }, -1},
		{"when none is pending", func() { done(7, 0) }, 7},
		{"after a failure", func() { status.SyncFailed(second(8), errors.New("busy")) }, -1},
		{"after the next success", func() { done(9, 0) }, 9},
	} {
		step.do()
		if got := inSyncSince(20); got != step.want {
			t.Errorf("%s: in sync since second %d, want %d", step.desc, got, step.want)
		}
	}
	status.SetInvalidObjects(4)
	status.SetNodeEligibility(false, "it is being evacuated until the label vicinity.dev/evacuate is removed")
	status.SetTopologySource("topologyslices")
	status.WatchInterrupted("services", second(10), "connection refused")
	want := Summary{
		Node: "node-a", Version: "v1", Began: second(0), InSyncSince: new(second(9)), Newest: &Sync{At: second(9), Seconds: 0.5, Services: 2},
		Services: 5, RejectedByKernel: 1, Contested: 3, InvalidObjects: 4, NodeTopology: "topologyslices",
		IneligibleReason: "it is being evacuated until the label vicinity.dev/evacuate is removed",
		Interruptions:    []Interruption{{Resource: "services", Since: second(10), Reason: "connection refused"}},
	}
	if diff := cmp.Diff(want, summary(20)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
