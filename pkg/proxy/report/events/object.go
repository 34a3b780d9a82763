package events

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

// controller is the reporting controller, as `kubectl describe` shows it.
const controller = "vicinity.dev/proxy"

// apiVersions are the API versions of the kinds of object that events are about.
var apiVersions = map[string]string{
	"Service":       "v1",
	"Node":          "v1",
	"EndpointSlice": "discovery.k8s.io/v1",
	"ServiceCIDR":   "networking.k8s.io/v1",
	"ServiceDemand": "vicinity.dev/v1alpha1",
}

// objectOf returns the API object of an event that a node reported at a time.
func objectOf(event Event, node string, at time.Time) *eventsv1.Event {
	eventType := corev1.EventTypeNormal
	if event.Warning {
		eventType = corev1.EventTypeWarning
	}
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Name: nameOf(event, node, at),
			// The API server requires this namespace for Events about objects without one.
			Namespace: cmp.Or(event.Regarding.Namespace, metav1.NamespaceDefault),
		},
		EventTime:           metav1.NewMicroTime(at),
		ReportingController: controller,
		ReportingInstance:   truncate(node, maxInstance),
		Action:              event.Action,
		Reason:              event.Reason,
		Regarding: corev1.ObjectReference{
			APIVersion: apiVersions[event.Regarding.Kind],
			Kind:       event.Regarding.Kind,
			Namespace:  event.Regarding.Namespace,
			Name:       event.Regarding.Name,
			UID:        types.UID(event.Regarding.UID),
		},
		Note: event.Note,
		Type: eventType,
	}
}

// nameOf returns the Event's name: the same on all nodes, unless the note is about one of them; then a new one each
// time.
func nameOf(event Event, node string, at time.Time) string {
	object := event.Regarding
	parts := []string{object.Kind, object.Namespace, object.Name, object.UID, event.Reason, event.Note}
	if event.Local {
		parts = append(parts, node, strconv.FormatInt(at.UnixNano(), 10))
	}
	hash := sha256.New()
	for _, part := range parts {
		// Each part has its length, so that no two lists of parts give the same text.
		fmt.Fprintf(hash, "%d:%s", len(part), part)
	}
	return "vicinity-proxy." + hex.EncodeToString(hash.Sum(nil)[:16])
}

// The API server rejects Events with more bytes than these (pkg/apis/core/validation/events.go of Kubernetes 1.37).
const (
	maxNote     = 1024
	maxInstance = 128
)

// truncateNote returns a text that the API server accepts. It is cut first, because it may have many megabytes, and
// again after quoting, because a quoted unprintable character takes more bytes.
func truncateNote(text string) string {
	return truncate(sanitize.Text(truncate(text, maxNote)), maxNote)
}

// truncate truncates a text to limit bytes, between two characters, and marks that with three dots.
func truncate(text string, limit int) string {
	const dots = "..."
	if len(text) <= limit {
		return text
	}
	return sanitize.Cut(text, limit-len(dots), dots)
}
