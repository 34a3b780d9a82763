package events_test

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// takenPort is the healthCheckNodePort of a Service. On the node another program listens on it. An API server allocates
// the first 86 of its node ports automatically only when all others are in use (KEP-3668).
const takenPort = 30001

// expectedEvent is the Event that a user finds for one object with one reason.
type expectedEvent struct {
	object corev1.ObjectReference
	reason string
	kind   string // Normal or Warning
	texts  []string
}

// TestDaemonEvents runs the real program on a node, with exactly the rights in manifests/access.yaml. It causes
// each of the program's Events.
func TestDaemonEvents(t *testing.T) {
	n := newNode(t)
	object := corev1.ObjectReference{Kind: "Node", Name: nodeName, UID: nodeName} // as in the query of kubectl describe
	wants := map[string]expectedEvent{
		"Starting on the Node": {
			object, "Starting", corev1.EventTypeNormal, []string{"Vicinity ", " starts to program this node's Services"},
		},
		"Invalid on a slice without a valid port": {
			n.slice("nowhere", 70000), "Invalid", corev1.EventTypeWarning,
			[]string{"Nodes keep the last known good version of this object", "ports[0].port", "70000"},
		},
		"PartiallyIgnored on a slice with another port": {
			n.slice("half", 8080, 70000), "PartiallyIgnored", corev1.EventTypeWarning,
			[]string{"The rest of this object is served: ", "ports[1].port", "70000"},
		},
		"TopologyKeysIgnored on a Service": {
			n.service("keyed", func(keyed *corev1.Service) {
				keyed.Annotations = map[string]string{policy.TopologyKeysAnnotation: "two words, *"}
			}),
			"TopologyKeysIgnored", corev1.EventTypeWarning, []string{"as if it had no topology keys: ", "two words"},
		},
		"FrontendConflict on the Service that loses an address": {
			n.createConflict(), "FrontendConflict", corev1.EventTypeWarning,
			[]string{"192.0.2.77:80/TCP belongs to the ", " Service shop/first, ", "until that Service releases it"},
		},
		"FrontendIsAPIServer on a Service": {
			n.createAPIServerConflict(), "FrontendIsAPIServer", corev1.EventTypeWarning,
			[]string{"On node " + nodeName + ": " + n.apiServer().String() + "/TCP is not served because the proxy reaches the API server there"},
		},
		"FailedToStartServiceHealthcheck on a Service": {
			n.createServiceOnTakenPort(), "FailedToStartServiceHealthcheck", corev1.EventTypeWarning,
			[]string{
				"On node " + nodeName + ": Load balancers treat this node as one without endpoints",
				fmt.Sprintf(":%d: bind: address already in use", takenPort),
			},
		},
	}
	n.startProxy()
	n.proxy.Log.WaitFor(t, "the first sync is in the kernel")
	saboteur := n.sabotage()
	wants["TablesChanged on the Node"] = expectedEvent{
		object, "TablesChanged", corev1.EventTypeWarning,
		[]string{fmt.Sprintf(`Process "saboteur" (pid %d) changed the nftables tables`, saboteur)},
	}
	for title, want := range wants {
		t.Run(title, func(t *testing.T) {
			n.t = t
			wait.Equal(t, title, 1, func() int { return len(n.events(want)) })
			event := n.events(want)[0]
			if event.Type != want.kind || event.ReportingController != "vicinity.dev/proxy" || event.ReportingInstance != nodeName {
				t.Errorf("the Event has type %s, controller %s and instance %s", event.Type, event.ReportingController, event.ReportingInstance)
			}
			for _, words := range want.texts {
				if !strings.Contains(event.Message, words) {
					t.Errorf("the message lacks %q: %s", words, event.Message)
				}
			}
		})
	}
	t.Run("no other Event", func(t *testing.T) {
		n.t = t
		if all := n.allEvents(); len(all) != len(wants) {
			t.Errorf("%d Events, want %d: %v", len(all), len(wants), all)
		}
	})
	t.Run("only granted requests", func(t *testing.T) {
		n.t = t
		n.expectOnlyGrantedRequests()
	})
}

// createConflict creates two Services with one external IP and port. It returns the one that must not get them: the
// younger one, or the one with the greater name.
func (n *node) createConflict() corev1.ObjectReference {
	n.t.Helper()
	withAddress := func(service *corev1.Service) { service.Spec.ExternalIPs = []string{"192.0.2.77"} }
	n.service("first", withAddress)
	return n.service("second", withAddress)
}

// apiServer returns the API server's address.
func (n *node) apiServer() netip.AddrPort {
	return netip.MustParseAddrPort(strings.TrimPrefix(n.api.URL(), "https://"))
}

// createAPIServerConflict creates a Service with the API server's address and port.
func (n *node) createAPIServerConflict() corev1.ObjectReference {
	n.t.Helper()
	return n.service("greedy", func(greedy *corev1.Service) {
		greedy.Spec.ExternalIPs = []string{n.apiServer().Addr().String()}
		greedy.Spec.Ports[0].Port = int32(n.apiServer().Port())
	})
}

// TestServiceWithAPIServerAddressDoesNotBlockProxies checks that another process on the node reaches the API server,
// and so does a proxy that restarts.
func TestServiceWithAPIServerAddressDoesNotBlockProxies(t *testing.T) {
	n := newNode(t)
	n.createAPIServerConflict()
	for range 2 {
		n.startProxy()
		n.proxy.Log.WaitFor(t, "the first sync is in the kernel")
		connection, err := n.Dial("tcp", n.apiServer().String(), wait.Timeout)
		must.Succeed(t, err)
		must.Succeed(t, connection.Close())
		must.Succeed(t, n.proxy.Stop(wait.Timeout))
	}
}

// createServiceOnTakenPort creates a Service with a health check node port that another program on the node uses.
func (n *node) createServiceOnTakenPort() corev1.ObjectReference {
	n.t.Helper()
	listener, err := n.Listen("tcp", net.JoinHostPort(n.IPv4.String(), fmt.Sprint(takenPort)))
	must.Succeed(n.t, err)
	n.t.Cleanup(func() { _ = listener.Close() })
	return n.service("checked", func(checked *corev1.Service) {
		checked.Spec.Type = corev1.ServiceTypeLoadBalancer
		checked.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		checked.Spec.HealthCheckNodePort = takenPort
	})
}

// sabotage deletes a table as a program named saboteur, and returns its process ID.
func (n *node) sabotage() int {
	n.t.Helper()
	process, err := n.Start(exec.Command(site.Saboteur(n.t), "delete table ip vicinity"))
	must.Succeed(n.t, err)
	must.Succeed(n.t, process.Wait())
	return process.PID()
}

// events returns the Events that a user finds with field selectors. kubectl describe queries an object's Events in this
// way.
func (n *node) events(want expectedEvent) []corev1.Event {
	n.t.Helper()
	selectors := []string{
		"involvedObject.kind=" + want.object.Kind, "involvedObject.namespace=" + want.object.Namespace,
		"involvedObject.name=" + want.object.Name, "involvedObject.uid=" + string(want.object.UID), "reason=" + want.reason,
	}
	list, err := n.api.Admin.CoreV1().Events("").List(n.t.Context(), metav1.ListOptions{FieldSelector: strings.Join(selectors, ",")})
	must.Succeed(n.t, err)
	return list.Items
}

// allEvents returns all Events of the proxy, as text.
func (n *node) allEvents() []string {
	n.t.Helper()
	selector := metav1.ListOptions{FieldSelector: "reportingComponent=vicinity.dev/proxy"}
	list, err := n.api.Admin.CoreV1().Events("").List(n.t.Context(), selector)
	must.Succeed(n.t, err)
	var all []string
	for _, event := range list.Items {
		all = append(all, fmt.Sprintf("%s %s: %s: %s", event.InvolvedObject.Kind, event.InvolvedObject.Name, event.Reason, event.Message))
	}
	return all
}
