package events_test

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// takenPort is the healthCheckNodePort of a Service on which somebody else listens on the node.
const takenPort = 32001

// told is what somebody finds who asks for the Events of one object, and for one reason.
type told struct {
	about  corev1.ObjectReference
	reason string
	kind   string // Normal or Warning
	words  []string
}

// TestTheDaemonTells is about the real program on a node, with what manifests/access.yaml allows and nothing else. Each sentence that
// it has for users has its cause here.
func TestTheDaemonTells(t *testing.T) {
	s := newSite(t)
	node := corev1.ObjectReference{Kind: "Node", Name: nodeName, UID: nodeName} // as kubectl describe asks for it
	wants := map[string]told{
		"on the Node that it starts": {
			node, "Starting", corev1.EventTypeNormal, []string{"Vicinity ", " starts to program this node's Services"},
		},
		"on a slice of which nothing is left that it is refused": {
			s.slice("nowhere", 70000), "Refused", corev1.EventTypeWarning,
			[]string{"Nodes keep to the last good version of this object", "ports[0].port", "70000"},
		},
		"on a slice with another port what is left out": {
			s.slice("half", 8080, 70000), "PartsLeftOut", corev1.EventTypeWarning,
			[]string{"The rest of this object is served: ", "ports[1].port", "70000"},
		},
		"on a Service what is wrong with its topology keys": {
			s.service("keyed", func(keyed *corev1.Service) {
				keyed.Annotations = map[string]string{policy.TopologyKeysAnnotation: "two words, *"}
			}),
			"TopologyKeysIgnored", corev1.EventTypeWarning, []string{"as if it had no topology keys: ", "two words"},
		},
		"on the Service that loses an address who has it": {
			s.twoWithOneAddress(), "FrontendConflict", corev1.EventTypeWarning,
			[]string{"192.0.2.77:80/TCP belongs to Service shop/first, which keeps it until it lets go"},
		},
		"on a Service that its health check cannot be served": {
			s.checkedWhereSomebodyListens(), "FailedToStartServiceHealthcheck", corev1.EventTypeWarning,
			[]string{"Load balancers take node " + nodeName, fmt.Sprintf(":%d: bind: address already in use", takenPort)},
		},
	}
	s.startProxy()
	eventually(t, "the first sync", func() string {
		return cmp.Diff(true, strings.Contains(s.output.String(), "the first sync is in the kernel"))
	})
	saboteur := s.sabotage()
	wants["on the Node who changed the tables"] = told{
		node, "TablesChanged", corev1.EventTypeWarning,
		[]string{fmt.Sprintf(`Process "saboteur" (pid %d) changed the nftables tables`, saboteur)},
	}
	for title, want := range wants {
		t.Run(title, func(t *testing.T) {
			s.t = t
			eventually(t, title, func() string { return cmp.Diff(1, len(s.events(want))) })
			event := s.events(want)[0]
			if event.Type != want.kind || event.ReportingController != "vicinity.dev/proxy" || event.ReportingInstance != nodeName {
				t.Errorf("an Event of type %s by %s on %s", event.Type, event.ReportingController, event.ReportingInstance)
			}
			for _, words := range want.words {
				if !strings.Contains(event.Message, words) {
					t.Errorf("it does not say %q: %s", words, event.Message)
				}
			}
		})
	}
	t.Run("and nothing else", func(t *testing.T) {
		s.t = t
		if all := s.allEvents(); len(all) != len(wants) {
			t.Errorf("%d Events, want %d: %v", len(all), len(wants), all)
		}
	})
	t.Run("and asks for nothing that it may not", func(t *testing.T) {
		s.t = t
		s.mayDoAllItDid()
	})
}

// twoWithOneAddress creates two Services with one external IP and port, and returns the one that must not get them: the younger one, or
// that with the greater name.
func (s *site) twoWithOneAddress() corev1.ObjectReference {
	s.t.Helper()
	wanting := func(service *corev1.Service) { service.Spec.ExternalIPs = []string{"192.0.2.77"} }
	s.service("first", wanting)
	return s.service("second", wanting)
}

// checkedWhereSomebodyListens creates a Service whose health check another program on the node is in the way of.
func (s *site) checkedWhereSomebodyListens() corev1.ObjectReference {
	s.t.Helper()
	listener, err := s.node.Listen("tcp", net.JoinHostPort(s.node.IPv4.String(), fmt.Sprint(takenPort)))
	must(s.t, err)
	s.t.Cleanup(func() { _ = listener.Close() })
	return s.service("checked", func(checked *corev1.Service) {
		checked.Spec.Type = corev1.ServiceTypeLoadBalancer
		checked.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		checked.Spec.HealthCheckNodePort = takenPort
	})
}

// sabotage deletes a table as a program that calls itself saboteur, and returns its process ID.
func (s *site) sabotage() int {
	s.t.Helper()
	process, err := s.node.Start(exec.Command(s.saboteur(), "delete table ip vicinity"))
	must(s.t, err)
	must(s.t, process.Wait())
	return process.PID()
}

// events returns the Events that a person finds with field selectors. kubectl describe asks for an object's Events so.
func (s *site) events(want told) []corev1.Event {
	s.t.Helper()
	selectors := []string{
		"involvedObject.kind=" + want.about.Kind, "involvedObject.namespace=" + want.about.Namespace,
		"involvedObject.name=" + want.about.Name, "involvedObject.uid=" + string(want.about.UID), "reason=" + want.reason,
	}
	list, err := s.admin.CoreV1().Events("").List(s.t.Context(), metav1.ListOptions{FieldSelector: strings.Join(selectors, ",")})
	must(s.t, err)
	return list.Items
}

// allEvents returns all that the proxy told, as text.
func (s *site) allEvents() []string {
	s.t.Helper()
	selector := metav1.ListOptions{FieldSelector: "reportingComponent=vicinity.dev/proxy"}
	list, err := s.admin.CoreV1().Events("").List(s.t.Context(), selector)
	must(s.t, err)
	var all []string
	for _, event := range list.Items {
		all = append(all, fmt.Sprintf("%s %s: %s: %s", event.InvolvedObject.Kind, event.InvolvedObject.Name, event.Reason, event.Message))
	}
	return all
}
