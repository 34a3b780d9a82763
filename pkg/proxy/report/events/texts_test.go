package events

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

var (
	web   = Reference{Kind: "Service", Namespace: "shop", Name: "web", UID: "1-2-3"}
	slice = Reference{Kind: "EndpointSlice", Namespace: "shop", Name: "web-abc", UID: "4-5-6"}
)

// rejected returns the Event about an invalid object.
func rejected(object Reference, reason string) Event {
	return Findings(object, "node-1", []model.Finding{{Code: model.Invalid, Reason: reason}})[0]
}

// onlyEvent returns the only Event about findings.
func onlyEvent(t *testing.T, object Reference, findings ...model.Finding) Event {
	t.Helper()
	all := Findings(object, "node-1", findings)
	if len(all) != 1 {
		t.Fatalf("%d Events, want one: %v", len(all), all)
	}
	return all[0]
}

func TestTexts(t *testing.T) {
	node := Reference{Kind: "Node", Name: "node-1", UID: "node-1"}
	for title, test := range map[string]struct{ got, want Event }{
		"an invalid object": {
			onlyEvent(t, web, model.Finding{Code: model.Invalid, Field: "spec.ports[0].port", Reason: "Invalid value: 70000"}),
			Event{
				Regarding: web, Warning: true, Reason: "Invalid", Action: "Refuse",
				Note: "Nodes keep the last known good version of this object, if they have one: spec.ports[0].port: Invalid value: 70000",
			},
		},
		"an invalid label": {
			onlyEvent(t, node, model.Finding{Code: model.ValueIgnored, Field: "metadata.labels[a]", Reason: `Invalid value: "b"`}),
			Event{
				Regarding: node, Warning: true, Reason: "ValueIgnored", Action: "Ignore",
				Note: `The rest of this object is active, without an invalid value: metadata.labels[a]: Invalid value: "b"`,
			},
		},
		"parts that cannot be served": {
			onlyEvent(t, slice, model.Finding{Code: model.PartiallyIgnored, Field: "ports[1].port", Reason: "70000"},
				model.Finding{Code: model.PartiallyIgnored, Field: "endpoints[2]", Reason: "loopback"}),
			Event{
				Regarding: slice, Warning: true, Reason: "PartiallyIgnored", Action: "Skip",
				Note: "The rest of this object is served: ports[1].port: 70000; endpoints[2]: loopback",
			},
		},
		"topology keys without effect": {
			onlyEvent(t, web, model.Finding{Code: "TopologyKeysIgnored", Field: policy.TopologyKeysAnnotation, Reason: "the list is empty"}),
			Event{
				Regarding: web, Warning: true, Reason: "TopologyKeysIgnored", Action: "Ignore",
				Note: "The Service is served as if it had no topology keys: vicinity.dev/topology-keys: the list is empty",
			},
		},
		"another annotation without effect": {
			onlyEvent(t, web, model.Finding{Code: "ClientsIgnored", Field: policy.ClientsAnnotation, Reason: policy.NeedsBound}),
			Event{
				Regarding: web, Warning: true, Reason: "ClientsIgnored", Action: "Ignore",
				Note: "An annotation is ignored: vicinity.dev/clients: has no effect without a load bound; add vicinity.dev/max-load",
			},
		},
		"a frontend that another Service owns": {
			onlyEvent(t, web, model.LostFrontend{
				PortFrontend: model.PortFrontend{
					Frontend: model.Frontend{Addr: model.AnyAddr(model.IPv4), Protocol: model.TCP, Port: 30080}, Kind: model.NodePort,
				},
				Owner: model.ObjectName{Namespace: "bank", Name: "api"}, OwnerKind: model.NodePort, OwnerIsOlder: true,
			}.Finding()),
			Event{
				Regarding: web, Warning: true, Reason: "FrontendConflict", Action: "Skip",
				Note: "*:30080/TCP belongs to the older Service bank/api, until that Service releases it.",
			},
		},
		"a local finding": {
			onlyEvent(t, web, model.Finding{Code: model.SessionAffinityIgnored, Reason: "This Service is served without.", Local: true}),
			Event{
				Regarding: web, Warning: true, Reason: "SessionAffinityIgnored", Action: "Skip", Local: true,
				Note: "On node node-1: This Service is served without.",
			},
		},
		"a change of our tables by another process": {
			ExternalChange("node-1", "nft", 4711),
			Event{
				Regarding: node, Warning: true, Reason: "TablesChanged", Action: "Repair", Local: true, Topic: "nft",
				Note: `Process "nft" (pid 4711) changed the nftables tables of the service proxy; repairing them: ` +
					"connections may have failed until then",
			},
		},
		"another service proxy": {
			OtherProxy("node-1", "kube-proxy has rules on this node too", "stop it"),
			Event{
				Regarding: node, Warning: true, Reason: "OtherServiceProxy", Action: "Detect", Local: true,
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

// Codes of annotations have default texts.
func TestEveryCodeHasTexts(t *testing.T) {
	for _, code := range model.FindingCodes {
		if codeTexts := TextsOf(code); codeTexts.LogStart == "" || codeTexts.LogEnd == "" || codeTexts.Action == "" {
			t.Errorf("%s: %+v", code, codeTexts)
		}
	}
	for code := range texts {
		if !slices.Contains(model.FindingCodes, code) {
			t.Errorf("no finding has the code %s", code)
		}
	}
}

func TestReferenceString(t *testing.T) {
	for want, reference := range map[string]Reference{
		"Service shop/web": web,
		"Node node-1":      Node("node-1"),
	} {
		if got := reference.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
