package proxy_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// takeKnown returns, for each node port that was noted since the last call, who is or was an endpoint, with ? if there
// may have been others.
func (r *recordedFlows) takeKnown() []string {
	var lines []string
	for _, call := range r.calls {
		for _, flows := range call.flows {
			if !flows.Frontend.IsNodePort() {
				if len(flows.Endpoints) > 0 || flows.Incomplete {
					lines = append(lines, fmt.Sprintf("%s knows %v", flows.Frontend, flows.Endpoints))
				}
				continue
			}
			mark := ""
			if flows.Incomplete {
				mark = "?"
			}
			known := slices.SortedFunc(slices.Values(flows.Endpoints), netip.AddrPort.Compare)
			lines = append(lines, fmt.Sprintf("%s %s%s", flows.Frontend, addrsText(known), mark))
		}
	}
	r.calls = nil
	return lines
}

// knownStep is a change, and the known endpoints of the node ports that are looked at in its sync.
type knownStep struct {
	title  string
	change model.Change
	want   []string
}

func runKnownSteps(t *testing.T, p *proxy.Proxy, flows *recordedFlows, steps []knownStep) {
	t.Helper()
	for _, step := range steps {
		p.Apply(step.change)
		mustSync(t, p)
		if diff := cmp.Diff(step.want, flows.takeKnown()); diff != "" {
			t.Errorf("%s: known endpoints (-want +got):\n%s", step.title, diff)
		}
	}
}

// withState returns the endpoints of dns with one of them, the first, in a state.
func withState(endpoint model.Endpoint, numbers ...int) model.Change {
	slice := answeredBy("dns", numbers...)
	slice.Endpoints[0].Endpoint = endpoint
	return answers(slice)
}

// TestWhoIsOrWasAnEndpointOfANodePortIsKnown, whatever its state.
func TestWhoIsOrWasAnEndpointOfANodePortIsKnown(t *testing.T) {
	flows := &recordedFlows{}
	p := proxy.New(self, bothFamilies, &memoryKernel{}, noting(flows))
	one, two, three := "10.244.0.1:53", "10.244.0.2:53", "10.244.0.11:53"
	runKnownSteps(t, p, flows, []knownStep{
		{"a start: there may have been others", oneService(nameService("dns", "10.96.0.1", nodePort(30053)), answeredBy("dns", 1, 11)),
			[]string{"*:30053/UDP " + one + " " + three + "?"}},
		{"an endpoint that does not serve is one", withState(model.Endpoint{Node: self}, 1, 11), []string{"*:30053/UDP " + one + " " + three}},
		{"it leaves", answers(answeredBy("dns", 11)), []string{"*:30053/UDP " + one + " " + three}},
		{"another one joins", answers(answeredBy("dns", 2, 11)), nil},
		{"one that left is forgotten once it was noted", answers(answeredBy("dns", 11)), []string{"*:30053/UDP " + two + " " + three}},
		{"the number moves", oneService(nameService("dns", "10.96.0.1", nodePort(30054)), nil),
			[]string{"*:30053/UDP " + three, "*:30054/UDP " + three}},
		{"another Service has it, in one sync with the first's end", without("dns").Then(
			oneService(nameService("other", "10.96.0.2", nodePort(30054)), answeredBy("other", 2))),
			[]string{"*:30054/UDP " + two + " " + three}},
		{"the Service is deleted, and its endpoint leaves", without("other").Then(answers(answeredBy("other"))),
			[]string{"*:30054/UDP " + two}},
	})
}

// TestARepairKnowsWhoWasAnEndpoint: a foreign change of our tables does not add endpoints. If the kernel left open
// whether it took a change, the endpoints of that change count, too.
func TestARepairKnowsWhoWasAnEndpoint(t *testing.T) {
	flows, kernel := &recordedFlows{}, &scriptedKernel{}
	p := proxy.New(self, bothFamilies, kernel, noting(flows))
	p.Apply(oneService(nameService("dns", "10.96.0.1", nodePort(30053)), answeredBy("dns", 1)))
	mustSync(t, p)
	flows.takeKnown()
	p.Distrust()
	runKnownSteps(t, p, flows, []knownStep{{"the endpoint was replaced", answers(answeredBy("dns", 2)),
		[]string{"*:30053/UDP 10.244.0.1:53 10.244.0.2:53"}}})
	kernel.refuse = refuseAll
	for _, change := range []model.Change{
		answers(answeredBy("dns", 3)), oneService(nameService("other", "10.96.0.2", nodePort(30054)), answeredBy("other", 4)),
	} {
		p.Apply(change)
		if _, err := p.Sync(t.Context()); err == nil {
			t.Fatal("a sync succeeds though the kernel refuses all")
		}
	}
	kernel.refuse = nil
	runKnownSteps(t, p, flows, []knownStep{
		{"it was replaced again, and a Service came and went, while nothing succeeded",
			answers(answeredBy("dns", 5)).Then(without("other")),
			[]string{"*:30053/UDP 10.244.0.2:53 10.244.0.3:53 10.244.0.5:53", "*:30054/UDP 10.244.0.4:53"}},
		{"and once it was noted, that is forgotten", answers(answeredBy("dns", 6)), []string{"*:30053/UDP 10.244.0.5:53 10.244.0.6:53"}},
	})
}

// TestAProxyThatStartsRecallsWhoAnsweredNodePorts, as far as an earlier proxy's tables say so; they do not with session
// affinity.
func TestAProxyThatStartsRecallsWhoAnsweredNodePorts(t *testing.T) {
	sticky := func(service *model.Service) { service.AffinityTimeout = 1e9 }
	for name, makeKernel := range map[string]func(t *testing.T) proxy.Kernel{
		"in memory":     func(*testing.T) proxy.Kernel { return &memoryKernel{} },
		"in the kernel": func(t *testing.T) proxy.Kernel { return newRealKernel(t) },
	} {
		for title, test := range map[string]struct {
			earlier model.Change
			now     model.Change
			want    []string
		}{
			"the Service is gone": {
				oneService(nameService("dns", "10.96.0.1", nodePort(30053)), answeredBy("dns", 1, 2)), model.Change{},
				[]string{"*:30053/UDP 10.244.0.1:53 10.244.0.2:53?"}},
			"an endpoint is gone": {
				oneService(nameService("dns", "10.96.0.1", nodePort(30053), local), answeredBy("dns", 1, 11)),
				oneService(nameService("dns", "10.96.0.1", nodePort(30053), local), answeredBy("dns", 11)),
				[]string{"*:30053/UDP 10.244.0.1:53 10.244.0.11:53?"}},
			"it had session affinity": {
				oneService(nameService("dns", "10.96.0.1", nodePort(30053), sticky), answeredBy("dns", 1)), model.Change{},
				[]string{"*:30053/UDP ?"}},
		} {
			t.Run(name+", "+title, func(t *testing.T) {
				kernel := makeKernel(t)
				earlier := starting(kernel)
				earlier.Apply(test.earlier)
				mustSync(t, earlier)
				flows := &recordedFlows{}
				p := proxy.New(self, bothFamilies, kernel, noting(flows))
				runKnownSteps(t, p, flows, []knownStep{{title, test.now, test.want}})
			})
		}
	}
}

// TestTheEndpointsOfNodePortsAreReadWithinABound: a dump costs the square of its size, and only UDP needs it.
func TestTheEndpointsOfNodePortsAreReadWithinABound(t *testing.T) {
	many := make([]int, 201)
	for i := range many {
		many[i] = i + 1
	}
	services := func(count int, edits ...func(*model.Service)) model.Change {
		change := model.Change{}
		for number := range count {
			name := fmt.Sprintf("s%d", number)
			service := nameService(name, fmt.Sprintf("10.96.1.%d", number+1), append(edits, nodePort(uint16(30000+number)))...)
			change = change.Then(oneService(service, answeredBy(name, many...)))
		}
		return change
	}
	for name, test := range map[string]struct {
		change  model.Change
		isRead  bool
		isError bool
	}{
		"TCP alone":      {services(2, port(model.TCP, 53)), false, false},
		"a few of UDP":   {services(2), true, false},
		"far too many":   {services(100), false, true},
		"no UDP serving": {oneService(nameService("dns", "10.96.0.1", nodePort(30053)), nil), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			kernel := &scriptedKernel{}
			earlier := starting(kernel)
			earlier.Apply(test.change)
			for report := mustSync(t, earlier); report.Waiting > 0; report = mustSync(t, earlier) {
			}
			kernel.reads = nil
			var unrecalled error
			flows := noting(&recordedFlows{})
			flows.Unrecalled = func(err error) { unrecalled = err }
			p := starting(kernel, flows)
			p.Apply(test.change)
			mustSync(t, p)
			if isRead := slices.Contains(kernel.reads, ruleset.NodePortEndpoints.Name); isRead != test.isRead {
				t.Errorf("the sets %v were read", kernel.reads)
			}
			if (unrecalled != nil) != test.isError || errors.Is(unrecalled, errInjected) {
				t.Errorf("reported %v", unrecalled)
			}
		})
	}
}
