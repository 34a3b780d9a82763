package convert_test

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/servicedemand"
)

// TestWhatALeaseSaysToSomebodyWhoLooksOnce: as proxies decide, and demand of unknown age counts.
func TestWhatALeaseSaysToSomebodyWhoLooksOnce(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	read := func(age time.Duration) convert.DemandLease {
		lease := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "webhook", Name: servicedemand.LeaseName}}
		lease.Spec.RenewTime = new(metav1.NewMicroTime(now.Add(-age)))
		return convert.ReadDemandLease(&lease, now)
	}
	inFolder := read(72 * time.Hour)
	inFolder.IsOfFolder = true
	const (
		unknown = "The age of the ServiceDemands is not known, so they are taken as current: the Lease "
		nobody  = "Nobody publishes ServiceDemands: the Lease webhook/vicinity-demand does not exist, or was never renewed, so proxies plan " +
			"with the assumed demand."
		confirmed = "The ServiceDemands were last confirmed "
		counts    = " (Lease webhook/vicinity-demand), and count for 1 hour, so proxies plan with the assumed demand."
	)
	for name, c := range map[string]struct {
		lease    convert.DemandLease
		state    model.DemandState
		sentence string
	}{
		"it is not among the objects": {convert.DemandLease{Namespace: "webhook"}, model.DemandCounts, unknown +
			"that tells it is not among the objects ('kubectl get lease -n webhook vicinity-demand -o yaml' prints it)."},
		"it may not be read": {convert.DemandLease{Namespace: "webhook", Found: convert.LeaseForbidden}, model.DemandCounts, unknown +
			"webhook/vicinity-demand may not be read, which takes the verb get."},
		"there is none":        {convert.DemandLease{Namespace: "webhook", Found: convert.LeaseMissing}, model.DemandUnpublished, nobody},
		"it was never renewed": {convert.DemandLease{Namespace: "webhook", Found: convert.LeaseRead, Now: now}, model.DemandUnpublished, nobody},
		"it is new":            {read(0), model.DemandCounts, ""},
		"it is of tomorrow":    {read(-24 * time.Hour), model.DemandCounts, ""},
		"just less than old":   {read(servicedemand.GoodFor - 1), model.DemandCounts, ""},
		"just old":             {read(servicedemand.GoodFor), model.DemandStale, confirmed + "1 hour ago" + counts},
		"old":                  {read(2*time.Hour + 40*time.Minute), model.DemandStale, confirmed + "2 hours ago" + counts},
		"a little old":         {read(61 * time.Minute), model.DemandStale, confirmed + "61 minutes ago" + counts},
		"old in a folder":      {inFolder, model.DemandStale, confirmed + "3 days before these objects were written" + counts},
	} {
		if state, sentence := c.lease.State(), c.lease.Sentence(); state != c.state || sentence != c.sentence {
			t.Errorf("%s: state %d, want %d\n%s\nwant\n%s", name, state, c.state, sentence, c.sentence)
		}
	}
}

func TestObjectsTellTheTime(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 11, 27, 12, minute, 0, 0, time.UTC) }
	node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{LastHeartbeatTime: metav1.NewTime(at(2))}, {LastHeartbeatTime: metav1.NewTime(at(1))}, {},
	}}}
	lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(at(3)))}}
	for object, want := range map[convert.Object]time.Time{
		node: at(2), &corev1.Node{}: {}, lease: at(3), &coordinationv1.Lease{}: {}, &corev1.Service{}: {},
		&servicedemand.ServiceDemand{Since: metav1.NewTime(at(4))}: at(4),
	} {
		if got := convert.ToldAt(object); !got.Equal(want) {
			t.Errorf("%T tells %v, want %v", object, got, want)
		}
	}
}
