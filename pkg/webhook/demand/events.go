package demand

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

const (
	// minOverload is the ratio of the busiest endpoint's load to the load bound from which on it is a problem, at more
	// than minRate connections per minute. The alert VicinityDemandSkew uses the same numbers.
	minOverload, minRate = 1.25, 100
	// minProblemDuration is how long a problem must last before an Event about it. The alerts VicinityDemandSkew and
	// VicinityDemandUnreported use the same duration.
	minProblemDuration = 30 * time.Minute
	// maxEventsPerRound bounds the Events of one round; others wait for the next one.
	maxEventsPerRound = 10
	// maxNotedError bounds the error in a note, in bytes. The API server accepts notes of 1,024 bytes.
	maxNotedError = 500
	// ReasonDemandSkew is the reason of the Event on a Service.
	ReasonDemandSkew = "DemandSkew"
	// ReasonDemandUnreported is the reason of the Event on a Node.
	ReasonDemandUnreported = "DemandUnreported"
)

// problem is a problem of an object. It is identified by both, whatever the note.
type problem struct {
	regarding    corev1.ObjectReference
	reason, note string
}

func (p problem) key() string { return p.reason + " " + p.regarding.Namespace + "/" + p.regarding.Name }

// eventWriter writes one Event about each problem that lasts.
type eventWriter struct {
	events      eventsclient.EventsV1Interface
	identity    string
	minDuration time.Duration        // how long a problem must last
	since       map[string]time.Time // when each problem began
	notified    map[string]bool
}

// due returns the current problems about which an Event should be written now. There is another one about the same
// problem only after it was gone in between.
func (w *eventWriter) due(now time.Time, current []problem) []problem {
	since, notified := map[string]time.Time{}, map[string]bool{}
	var due []problem
	for _, p := range current {
		key := p.key()
		since[key], notified[key] = now, w.notified[key]
		if began, isKnown := w.since[key]; isKnown {
			since[key] = began
		}
		if !notified[key] && now.Sub(since[key]) >= w.minDuration && len(due) < maxEventsPerRound {
			due = append(due, p)
		}
	}
	w.since, w.notified = since, notified
	return due
}

// write writes an Event about each problem that is due. If that fails, the problem stays due.
func (w *eventWriter) write(ctx context.Context, now time.Time, current []problem) error {
	var errs []error
	for _, p := range w.due(now, current) {
		// The API server requires the namespace default for Events about objects without one.
		namespace := cmp.Or(p.regarding.Namespace, metav1.NamespaceDefault)
		event := &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "demand-", Namespace: namespace},
			EventTime:  metav1.NewMicroTime(now), Type: corev1.EventTypeWarning, Reason: p.reason, Action: "Measure",
			ReportingController: managerName, ReportingInstance: w.identity, Regarding: p.regarding, Note: p.note,
		}
		if _, err := w.events.Events(namespace).Create(ctx, event, metav1.CreateOptions{}); err != nil {
			errs = append(errs, fmt.Errorf("write an Event on %s %s/%s: %w", p.regarding.Kind, p.regarding.Namespace, p.regarding.Name, err))
			continue
		}
		w.notified[p.key()] = true
	}
	return errors.Join(errs...)
}

// skewProblem returns the problem of a Service whose load bound does not hold. A zone's name is a label value, and has
// 63 bytes at most.
func skewProblem(service *corev1.Service, report Report) problem {
	return problem{
		corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: service.Namespace, Name: service.Name, UID: service.UID},
		ReasonDemandSkew,
		fmt.Sprintf("%s open %.0f %% of %.0f new connections per minute, but the load bound assumes %.0f %%: planned with that, "+
			"%s get %.2f times the mean, and the bound allows %.2f. Fix: list the client Services in %s, set %s=%s, or label the "+
			"Nodes with more clients with %s.", inZone("Clients", report.MostSkewedZone), 100*report.Shares[report.MostSkewedZone],
			report.ConnectionsPerMinute, 100*report.Assumed[report.MostSkewedZone], inZone("endpoints", report.Overload.Zone),
			report.Overload.Load, report.Overload.Limit, policy.ClientsAnnotation, policy.DemandSourceAnnotation, policy.Measured,
			policy.DemandLabel),
	}
}

// unreportedProblem returns the problem of a node whose proxy never responded, with the error of the last request. Its
// reference has the UID that kubelet uses; kubectl describe node looks for it.
func unreportedProblem(node string, err error) problem {
	return problem{
		corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: types.UID(node)},
		ReasonDemandUnreported,
		fmt.Sprintf("The proxy of this Node never reported the demand of its clients: %s. So load bounds are planned as if its "+
			"zone had at least the assumed demand. Fix: let the webhook's pods reach the port of --secure-metrics-bind-address on "+
			"this Node, and set that flag for its proxy.", sanitize.Cut(fmt.Sprint(err), maxNotedError, "...")),
	}
}

func inZone(what, zone string) string {
	if zone == "" {
		return what + " on Nodes without a zone"
	}
	return what + " in zone " + zone
}
