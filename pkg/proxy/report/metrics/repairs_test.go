package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestAnExternalChangeCountsAsRepairedAfterALaterFullSync(t *testing.T) {
	r := NewRecorder()
	moment := time.Unix(1700000000, 0)
	for _, step := range []struct {
		title             string
		do                func()
		noticed, repaired float64
	}{
		{"a change is detected", func() { r.ExternalChange("IPv4") }, 1, 0},
		{"a partial sync", func() { r.SyncQueued(moment); r.SyncDone(moment, false) }, 1, 0},
		{"a full sync fails", func() { r.SyncQueued(moment) }, 1, 0},
		{"the next one begins, and the tables are changed again", func() { r.SyncQueued(moment); r.ExternalChange("IPv4") }, 2, 0},
		{"it succeeds", func() { r.SyncDone(moment, true) }, 2, 1},
		{"one more", func() { r.SyncQueued(moment); r.SyncDone(moment, true) }, 2, 2},
		{"one for another reason", func() { r.SyncQueued(moment); r.SyncDone(moment, true) }, 2, 2},
	} {
		step.do()
		detected := testutil.ToFloat64(externalChanges.collector(r).WithLabelValues("IPv4", stageDetected))
		repaired := testutil.ToFloat64(externalChanges.collector(r).WithLabelValues("IPv4", stageRepaired))
		if detected != step.noticed || repaired != step.repaired {
			t.Errorf("%s: %v detected and %v repaired, want %v and %v", step.title, detected, repaired, step.noticed, step.repaired)
		}
	}
}

func TestACauseInTheFutureTakesNoTime(t *testing.T) {
	r := NewRecorder()
	r.EndpointChangeProgrammed("IPv4", -time.Hour)
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != programmingDuration.name {
			continue
		}
		observed := family.GetMetric()[0].GetHistogram() // IPv4 is the first of the labels
		if observed.GetSampleCount() != 1 || observed.GetSampleSum() != 0 {
			t.Errorf("%d observations of %v seconds together, want one of zero", observed.GetSampleCount(), observed.GetSampleSum())
		}
		return
	}
	t.Errorf("%s is not in a scrape", programmingDuration.name)
}
