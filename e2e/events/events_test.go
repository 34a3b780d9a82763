// Package events_test checks, with a real API server and kubectl, the Events that package events creates, and those
// that the whole program creates on a node. It needs root, nft and Go.
package events_test

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/events"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// recorder starts a recorder for a node. It ends with the test.
func recorder(t *testing.T, config *rest.Config, node string) *events.Recorder {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	r := events.New(client.EventsV1(), node, slog.New(slog.NewTextHandler(t.Output(), nil)))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

// findingEvents returns the Events about one finding of a node.
func findingEvents(object events.Reference, node string, code model.FindingCode, reason string) []events.Event {
	local := code == model.HealthCheckListenFailed
	return events.Findings(object, node, []model.Finding{{Code: code, Reason: reason, Local: local}})
}

func TestEvent(t *testing.T) {
	c := newCluster(t)
	creator := c.eventCreator()
	web, slice, cidr := c.createAll()

	t.Run("is created by a client that may do nothing else", func(t *testing.T) {
		client, err := kubernetes.NewForConfig(creator)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.EventsV1().Events("shop").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("list Events: got %v, want Forbidden", err)
		}
	})

	t.Run("is created on each object, once if all nodes report the same", func(t *testing.T) {
		nodes := []string{"node-1", "node-2", "node-3"}
		for _, node := range nodes {
			r := recorder(t, creator, node)
			for _, event := range slices.Concat(
				findingEvents(web, node, model.Invalid, "spec.ports[0].port: why not"),
				findingEvents(web, node, "TopologyKeysIgnored", "the list is empty"),
				findingEvents(web, node, model.FrontendConflict, "*:30080/TCP belongs to the older Service bank/api, until that Service releases it."),
				findingEvents(web, node, model.HealthCheckListenFailed, "address already in use"),
				findingEvents(slice, node, model.PartiallyIgnored, "endpoints[0]: loopback"),
				findingEvents(cidr, node, model.Invalid, "spec.cidrs[0]: everything"),
			) {
				r.Report(event)
			}
			r.Report(events.ExternalChange(node, "nft", 4711))
			r.Report(events.Started(node, "v1.2.3"))
			defer func() {
				if r.Dropped() != 0 {
					t.Errorf("the recorder of %s dropped %d Events, want none", node, r.Dropped())
				}
			}()
		}
		want := map[string]int{
			"shop Service web Invalid":                         1,
			"shop Service web TopologyKeysIgnored":             1,
			"shop Service web FrontendConflict":                1,
			"shop Service web FailedToStartServiceHealthcheck": 3,
			"shop EndpointSlice web-1 PartiallyIgnored":        1,
			"default ServiceCIDR all Invalid":                  1,
		}
		for _, node := range nodes {
			want["default Node "+node+" TablesChanged"] = 1
			want["default Node "+node+" Starting"] = 1
		}
		wait.Equal(t, "all Events exist", want, c.count)
	})

	t.Run("is shown by kubectl describe", func(t *testing.T) {
		for arguments, notes := range map[string][]string{
			"service -n shop web": {
				"Invalid", "spec.ports[0].port: why not", "*:30080/TCP belongs to the older Service bank/api",
				"On node node-2: address already in use",
				"vicinity.dev/proxy",
			},
			"endpointslice -n shop web-1": {"PartiallyIgnored", "endpoints[0]: loopback"},
			"servicecidr all":             {"Invalid", "spec.cidrs[0]: everything"},
			"node node-1":                 {"Starting", "Vicinity v1.2.3 starts", "TablesChanged", `Process "nft" (pid 4711)`},
		} {
			got := c.Kubectl(t, append([]string{"describe"}, strings.Fields(arguments)...)...)
			for _, note := range notes {
				if !strings.Contains(got, note) {
					t.Errorf("kubectl describe %s does not show %q:\n%s", arguments, note, got)
				}
			}
		}
	})

	t.Run("is found by kubectl get events", func(t *testing.T) {
		got := c.Kubectl(t, "get", "events", "-A", "--field-selector", "reportingComponent=vicinity.dev/proxy")
		for _, want := range []string{"service/web", "endpointslice/web-1", "servicecidr/all", "node/node-3"} {
			if !strings.Contains(got, want) {
				t.Errorf("no Event about %s:\n%s", want, got)
			}
		}
	})

	t.Run("is accepted with long and invalid texts", func(t *testing.T) {
		node := strings.Repeat("n", 63) + strings.Repeat("."+strings.Repeat("n", 62), 3) // 252 bytes; 253 are allowed
		r := recorder(t, creator, node)
		strange := strings.Repeat("\x1b[31m\xff\n\u202eä", 100_000)
		r.Report(findingEvents(web, "node-1", model.Invalid, strange)[0])
		r.Report(events.ExternalChange(node, strange, 1))
		r.Report(events.Started(node, strange))
		wait.Equal(t, "three Events of a node with a long name", 3, func() int {
			return len(c.eventsWhere(func(event eventsv1.Event) bool { return strings.HasPrefix(event.ReportingInstance, "nnn") }))
		})
		if r.Dropped() != 0 {
			t.Errorf("%d Events were dropped, want none", r.Dropped())
		}
	})

	t.Run("is delayed while the API server is down", func(t *testing.T) {
		var refused atomic.Int32
		config := rest.CopyConfig(creator)
		config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err != nil {
				refused.Add(1)
			}
			return conn, err
		}
		r := recorder(t, config, "node-4")
		if err := c.StopAPIServer(); err != nil {
			t.Fatal(err)
		}
		r.Report(events.Started("node-4", "v1.2.3"))
		wait.Until(t, "a failed attempt", func() bool { return refused.Load() > 0 })
		if err := c.StartAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		wait.Equal(t, "the Event exists", 1, func() int { return c.count()["default Node node-4 Starting"] })
		if r.Dropped() != 0 {
			t.Errorf("%d Events were dropped, want none", r.Dropped())
		}
	})

	t.Run("is dropped for a namespace that does not exist", func(t *testing.T) {
		r := recorder(t, creator, "node-1")
		r.Report(findingEvents(events.Reference{Kind: "Service", Namespace: "gone", Name: "web"}, "node-4", model.Invalid, "why")[0])
		wait.Equal(t, "the dropped Event is counted", 1, r.Dropped)
	})
}
