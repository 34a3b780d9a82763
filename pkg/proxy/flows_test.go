package proxy_test

import (
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
)

// Each case starts with the same Service, dns, and the endpoints 1 and 11, unless it says otherwise.
func TestFlowsAreLookedAtWhen(t *testing.T) {
	before := oneService(nameService("dns", "10.96.0.1", externalIP("192.0.2.1"), nodePort(30053)), answeredBy("dns", 1, 11))
	state := func(number int, endpoint model.Endpoint) model.Change {
		slice := answeredBy("dns", 1, 11)
		slice.Endpoints[number].Endpoint = endpoint
		return answers(slice)
	}
	tests := map[string]struct {
		before model.Change
		change model.Change
		want   []string
	}{
		"a frontend is new": {
			change: oneService(nameService("dns", "10.96.0.1", externalIP("192.0.2.1"), externalIP("192.0.2.2"), nodePort(30053)), nil),
			want:   []string{"192.0.2.2:53/UDP [10.244.0.1:53 10.244.0.11:53]"},
		},
		"a frontend is new and has no endpoints": { // a node port may have answered there
			change: oneService(nameService("other", "172.16.0.1", port(model.UDP, 30053)), nil),
			want:   []string{"172.16.0.1:30053/UDP []"},
		},
		"a frontend is gone": {
			change: oneService(nameService("dns", "10.96.0.1", nodePort(30053)), nil),
			want:   []string{"192.0.2.1:53/UDP []"},
		},
		"the node port is another one": {
			change: oneService(nameService("dns", "10.96.0.1", externalIP("192.0.2.1"), nodePort(30054)), nil),
			want:   []string{"*:30053/UDP []", "*:30054/UDP [10.244.0.1:53 10.244.0.11:53]"},
		},
		"an endpoint is gone": {
			change: answers(answeredBy("dns", 11)),
			want:   []string{"*:30053/UDP [10.244.0.11:53]", "10.96.0.1:53/UDP [10.244.0.11:53]", "192.0.2.1:53/UDP [10.244.0.11:53]"},
		},
		"an endpoint is replaced": {
			change: answers(answeredBy("dns", 2, 11)),
			want: []string{
				"*:30053/UDP [10.244.0.2:53 10.244.0.11:53]", "10.96.0.1:53/UDP [10.244.0.2:53 10.244.0.11:53]",
				"192.0.2.1:53/UDP [10.244.0.2:53 10.244.0.11:53]",
			},
		},
		"a Service gets its first endpoint": { // it may answer a client that sent before there was a Service
			before: answers(answeredBy("dns")),
			change: answers(answeredBy("dns", 1)),
			want:   []string{"*:30053/UDP [10.244.0.1:53]", "10.96.0.1:53/UDP [10.244.0.1:53]", "192.0.2.1:53/UDP [10.244.0.1:53]"},
		},
		"the last endpoint is gone": {
			change: answers(answeredBy("dns")),
			want:   []string{"*:30053/UDP []", "10.96.0.1:53/UDP []", "192.0.2.1:53/UDP []"},
		},
		"the Service is deleted": {
			change: without("dns"),
			want:   []string{"*:30053/UDP []", "10.96.0.1:53/UDP []", "192.0.2.1:53/UDP []"},
		},
		"an endpoint neither serves nor is ready any more": {
			change: state(0, model.Endpoint{Node: self, Terminating: true}),
			want:   []string{"*:30053/UDP [10.244.0.11:53]", "10.96.0.1:53/UDP [10.244.0.11:53]", "192.0.2.1:53/UDP [10.244.0.11:53]"},
		},
		"a policy keeps clients outside on this node": {
			change: oneService(nameService("dns", "10.96.0.1", externalIP("192.0.2.1"), nodePort(30053), local), nil),
			want: []string{
				"*:30053/UDP [10.244.0.1:53 10.244.0.11:53 | 10.244.0.1:53]",
				"192.0.2.1:53/UDP [10.244.0.1:53 10.244.0.11:53 | 10.244.0.1:53]",
			},
		},
		"a frontend moves to another Service": {
			before: oneService(nameService("other", "10.96.0.2"), answeredBy("other", 3)),
			change: oneService(nameService("dns", "10.96.0.1", nodePort(30053)), nil).
				Then(oneService(nameService("other", "10.96.0.2", externalIP("192.0.2.1")), nil)),
			want: []string{"192.0.2.1:53/UDP [10.244.0.3:53]"},
		},
		"an older Service claims a frontend": {
			before: oneService(nameService("a-first", "10.96.0.2"), answeredBy("a-first", 3)),
			change: oneService(nameService("a-first", "10.96.0.2", externalIP("192.0.2.1")), nil),
			want:   []string{"192.0.2.1:53/UDP [10.244.0.3:53]"},
		},
		"a node port changes, and so a frontend with an address and its number": {
			before: oneService(nameService("other", "172.16.0.1", port(model.UDP, 30053)), answeredBy("other", 3)),
			change: oneService(nameService("dns", "10.96.0.1", externalIP("192.0.2.1")), nil),
			want:   []string{"*:30053/UDP []", "172.16.0.1:30053/UDP [10.244.0.3:53]"},
		},
		"a topology key forbids an endpoint's place": {
			change: oneService(nameService("dns", "10.96.0.1", externalIP("192.0.2.1"), nodePort(30053), onThisNode), nil),
			want:   []string{"*:30053/UDP [10.244.0.1:53]", "10.96.0.1:53/UDP [10.244.0.1:53]", "192.0.2.1:53/UDP [10.244.0.1:53]"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { lookAtChange(t, before.Then(test.before), test.change, test.want) })
	}
}

// The same start; nothing that could make a flow stale has happened.
func TestFlowsAreNotLookedAtWhen(t *testing.T) {
	full := func(slice *model.EndpointSlice) model.Change {
		return oneService(nameService("dns", "10.96.0.1", externalIP("192.0.2.1"), nodePort(30053)), slice)
	}
	terminating := answeredBy("dns", 1, 11)
	terminating.Endpoints[0].Endpoint = model.Endpoint{Node: self, Serving: true, Terminating: true}
	reordered := answeredBy("dns", 11, 1)
	tcp := oneService(nameService("dns", "10.96.0.1", nodePort(30053), port(model.TCP, 53)), answeredBy("dns", 1))
	sctp := oneService(nameService("dns", "10.96.0.1", nodePort(30053), port(model.SCTP, 53)), answeredBy("dns", 1))
	tests := map[string]struct{ before, change model.Change }{
		"endpoints are only added":                {full(answeredBy("dns", 1)), full(answeredBy("dns", 1, 2, 11))},
		"the same comes again":                    {full(answeredBy("dns", 1, 11)), full(answeredBy("dns", 1, 11))},
		"endpoints come in another order":         {full(answeredBy("dns", 1, 11)), full(reordered)},
		"an endpoint terminates and still serves": {full(answeredBy("dns", 1, 11)), full(terminating)},
		"a Service of TCP is new":                 {model.Change{}, tcp},
		"a Service of TCP loses an endpoint":      {tcp, answers(answeredBy("dns"))},
		"a Service of TCP is deleted":             {tcp, without("dns")},
		"a Service of SCTP is new":                {model.Change{}, sctp},
		"a Service of SCTP loses an endpoint":     {sctp, answers(answeredBy("dns"))},
		"a Service of SCTP is deleted":            {sctp, without("dns")},
		"a policy lets clients go to all nodes again": {
			oneService(nameService("dns", "10.96.0.1", nodePort(30053), local), answeredBy("dns", 1, 11)),
			oneService(nameService("dns", "10.96.0.1", nodePort(30053)), nil),
		},
		"a node is gone that no Service asks for": {
			full(answeredBy("dns", 1, 11)), model.Change{Nodes: map[string]*model.Node{"elsewhere": nil}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { lookAtChange(t, test.before, test.change, nil) })
	}
}

// lookAtChange syncs before and then the change, and checks which frontends' flows were looked at for the latter.
func lookAtChange(t *testing.T, before, change model.Change, want []string) {
	t.Helper()
	labelled := &model.Node{Name: self, Labels: map[string]string{string(policy.Hostname): self}}
	flows := &recordedFlows{}
	p := proxy.New(self, bothFamilies, &memoryKernel{}, noting(flows))
	p.Apply(before.Then(model.Change{Nodes: map[string]*model.Node{self: labelled}}))
	mustSync(t, p)
	flows.take()
	p.Apply(change)
	if report := mustSync(t, p); report.Complete {
		t.Error("the sync was complete, so that all flows are looked at")
	}
	wantFlows(t, "the change", flows, want...)
	mustSync(t, p)
	wantFlows(t, "a sync after it", flows)
}
