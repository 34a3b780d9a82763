package demand

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// An Event is written if skew exceeds minSkew for minSkewDuration, at more than minRate connections per minute. The
// alert VicinityDemandSkew uses the same numbers.
const (
	minSkew         = 2
	minSkewDuration = 30 * time.Minute
	minRate         = 100
	reportedBy      = "vicinity-webhook"
	// maxEventsPerRound bounds the Events of one round; others wait for the next one.
	maxEventsPerRound = 10
	// ReasonDemandSkew is the reason of the Event.
	ReasonDemandSkew = "DemandSkew"
)

// skewReporter writes one Event on a Service when its demand becomes skewed.
type skewReporter struct {
	events      eventsclient.EventsV1Interface
	identity    string
	minDuration time.Duration        // how long skew must last
	skewedSince map[string]time.Time // when the demand on a Service became skewed
	notified    map[string]bool
}

// due returns the Services that should get an Event now, sorted. A Service gets another one only after its skew was
// below the threshold in between.
func (r *skewReporter) due(now time.Time, round Round) []string {
	since, notified := map[string]time.Time{}, map[string]bool{}
	var due []string
	for _, name := range slices.Sorted(maps.Keys(round.Services)) {
		report := round.Services[name]
		if report.MaxSkew <= minSkew || report.ConnectionsPerMinute <= minRate {
			continue
		}
		since[name] = now
		if start, wasSkewed := r.skewedSince[name]; wasSkewed {
			since[name] = start
		}
		if notified[name] = r.notified[name]; !notified[name] && now.Sub(since[name]) >= r.minDuration && len(due) < maxEventsPerRound {
			due = append(due, name)
		}
	}
	r.skewedSince, r.notified = since, notified
	return due
}

// report writes an Event on each Service that is due. If that fails, the Service stays due.
func (r *skewReporter) report(ctx context.Context, now time.Time, round Round, services map[string]*corev1.Service) error {
	var errs []error
	for _, name := range r.due(now, round) {
		service := services[name]
		event := &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "demand-", Namespace: service.Namespace},
			EventTime:  metav1.NewMicroTime(now), Type: corev1.EventTypeWarning, Reason: ReasonDemandSkew, Action: "Measure",
			ReportingController: reportedBy, ReportingInstance: r.identity,
			Regarding: corev1.ObjectReference{
				APIVersion: "v1", Kind: "Service", Namespace: service.Namespace, Name: service.Name, UID: service.UID,
			},
			Note: eventNote(round.Services[name]),
		}
		if _, err := r.events.Events(service.Namespace).Create(ctx, event, metav1.CreateOptions{}); err != nil {
			errs = append(errs, fmt.Errorf("write an Event on Service %s: %w", name, err))
			continue
		}
		r.notified[name] = true
	}
	return errors.Join(errs...)
}

// eventNote returns the problem and its fix. A zone's name is a label value, and has 63 bytes at most.
func eventNote(report Report) string {
	return fmt.Sprintf("%s open %.0f %% of %.0f new connections per minute, but the load bound assumes %.0f %%: "+
		"endpoints near them may get %.1f times what it allows. Fix: list the client Services in %s, set %s=%s, "+
		"or label the Nodes with more clients with %s.", zoneClients(report.MostSkewedZone),
		100*report.Shares[report.MostSkewedZone], report.ConnectionsPerMinute,
		100*report.Assumed[report.MostSkewedZone], report.MaxSkew, policy.ClientsAnnotation,
		policy.DemandSourceAnnotation, policy.Measured, policy.DemandLabel)
}

func zoneClients(zone string) string {
	if zone == "" {
		return "Clients on Nodes without a zone"
	}
	return "Clients in zone " + zone
}
