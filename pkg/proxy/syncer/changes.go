package syncer

import (
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Changes counts changed objects, including deleted ones. An object of both families counts once.
type Changes struct{ Services, EndpointSlices int }

func (c *Changes) add(change model.Change) {
	c.Services += len(change.Services)
	c.EndpointSlices += len(change.Slices)
}

// triggers holds, for each changed slice, when the cause of its change happened. Of several changes, the oldest one
// that is not synced yet counts, because it has waited longest. So the map does
// not grow while syncs keep failing.
type triggers map[model.ObjectName]trigger

type trigger struct {
	triggeredAt time.Time
	family      model.Family
	service     model.ObjectName
}

// record adds the slices whose trigger time differs from that of the version in the cluster. It must be called before
// the change is applied to the cluster. A deleted slice has no latency to report.
func (t triggers) record(cluster *model.Cluster, change model.Change) {
	for name, slice := range change.Slices {
		if slice == nil {
			delete(t, name)
			continue
		}
		if _, waits := t[name]; waits || slice.TriggeredAt.IsZero() || slice.TriggeredAt.Equal(triggerTimeOf(cluster, slice)) {
			continue
		}
		t[name] = trigger{slice.TriggeredAt, slice.Family, slice.Service}
	}
}

// triggerTimeOf returns the trigger time of the cluster's version of a slice; zero means that there is none.
func triggerTimeOf(cluster *model.Cluster, slice *model.EndpointSlice) time.Time {
	known := cluster.SlicesOf(slice.Service)
	index, found := slices.BinarySearchFunc(known, slice.Name, func(s *model.EndpointSlice, name model.ObjectName) int {
		return s.Name.Compare(name)
	})
	if !found {
		return time.Time{}
	}
	return known[index].TriggeredAt
}

// takeSynced returns, by family, the trigger times of synced changes, and removes them. Those of Services that still
// wait stay.
func (t *triggers) takeSynced(isWaiting func(model.ObjectName) bool) map[model.Family][]time.Time {
	synced, remaining := map[model.Family][]time.Time{}, triggers{}
	for name, trigger := range *t {
		if isWaiting(trigger.service) {
			remaining[name] = trigger
			continue
		}
		synced[trigger.family] = append(synced[trigger.family], trigger.triggeredAt)
	}
	*t = remaining
	return synced
}
