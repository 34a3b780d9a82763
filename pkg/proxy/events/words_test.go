package events

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

var (
	web   = Reference{Kind: "Service", Namespace: "shop", Name: "web", UID: "1-2-3"}
	slice = Reference{Kind: "EndpointSlice", Namespace: "shop", Name: "web-abc", UID: "4-5-6"}
)

func TestTheWords(t *testing.T) {
	node := Reference{Kind: "Node", Name: "node-1", UID: "node-1"}
	for title, test := range map[string]struct{ got, want Event }{
		"an object that cannot be right": {
			Refused(web, "spec.ports[0].port: Invalid value: 70000"),
			Event{
				Regarding: web, Warning: true, Reason: "Refused", Action: "Refuse",
				Note: "Nodes keep to the last good version of this object, if they have seen one: spec.ports[0].port: Invalid value: 70000",
			},
		},
		"a label that cannot be read": {
			Ignored(node, `metadata.labels[a]: Invalid value: "b"`),
			Event{
				Regarding: node, Warning: true, Reason: "ValueIgnored", Action: "Ignore",
				Note: `The rest of this object is in force, without what cannot be read: metadata.labels[a]: Invalid value: "b"`,
			},
		},
		"parts that cannot be served": {
			LeftOut(slice, []string{"ports[1].port: 70000", "endpoints[2]: loopback"}),
			Event{
				Regarding: slice, Warning: true, Reason: "PartsLeftOut", Action: "LeaveOut",
				Note: "The rest of this object is served: ports[1].port: 70000; endpoints[2]: loopback",
			},
		},
		"topology keys without effect": {
			TopologyIgnored(web, policy.Ignored{Annotation: policy.TopologyKeysAnnotation, Reason: "the list of topology keys is empty"}),
			Event{
				Regarding: web, Warning: true, Reason: "TopologyKeysIgnored", Action: "Ignore",
				Note: "The Service is served as if it had no topology keys: the list of topology keys is empty",
			},
		},
		"a frontend that another Service owns": {
			FrontendConflict(web, model.Frontend{Addr: model.AnyAddr(model.IPv4), Protocol: model.TCP, Port: 30080},
				model.ObjectName{Namespace: "bank", Name: "api"}),
			Event{
				Regarding: web, Warning: true, Reason: "FrontendConflict", Action: "LeaveOut",
				Note: "*:30080/TCP belongs to Service bank/api, which keeps it until it lets go; connections to it do not reach this Service",
			},
		},
		"a health check that is not served": {
			HealthCheckNotServed(web, "node-1", errors.New("listen tcp4 192.0.2.1:30000: bind: address already in use")),
			Event{
				Regarding: web, Warning: true, Reason: "FailedToStartServiceHealthcheck", Action: "Listen", Local: true,
				Note: "Load balancers take node node-1 for one without endpoints of this Service, and it tries again: " +
					"listen tcp4 192.0.2.1:30000: bind: address already in use",
			},
		},
		"a change of our tables by another process": {
			ForeignChange("node-1", "nft", 4711),
			Event{
				Regarding: node, Warning: true, Reason: "TablesChanged", Action: "Repair", Local: true, Topic: "nft",
				Note: `Process "nft" (pid 4711) changed the nftables tables of the service proxy, which repairs them: ` +
					"connections may have failed meanwhile",
			},
		},
		"another service proxy": {
			OtherProxy("node-1", "kube-proxy has rules on this node too", "stop it"),
			Event{
				Regarding: node, Warning: true, Reason: "OtherServiceProxy", Action: "Look", Local: true,
				Note: "kube-proxy has rules on this node too; stop it",
			},
		},
		"the start": {
			Started("node-1", "v1.2.3"),
			Event{
				Regarding: node, Reason: "Starting", Action: "StartProxy", Local: true,
				Note: "Vicinity v1.2.3 starts to program this node's Services",
			},
		},
	} {
		t.Run(title, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.got); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReferencesReadAsAPersonWritesThem(t *testing.T) {
	for want, reference := range map[string]Reference{
		"Service shop/web": web,
		"Node node-1":      Node("node-1"),
	} {
		if got := reference.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
