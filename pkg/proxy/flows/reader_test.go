package flows_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/flows"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// notes keeps what is to be looked at.
type notes []string

func (n *notes) Note(list []selection.Flows, _ selection.Scope) {
	for _, one := range list {
		*n = append(*n, fmt.Sprintf("%s %v %v", one.Frontend, one.Inside, one.Endpoints))
	}
}

// TestWhatComesAndLeavesInOneSyncIsJudgedTogether, in whatever order it is handed over.
func TestWhatComesAndLeavesInOneSyncIsJudgedTogether(t *testing.T) {
	type call = func(*flows.Reader)
	at := func(port uint16) model.Frontend {
		return model.Frontend{Addr: netip.IPv4Unspecified(), Protocol: model.UDP, Port: port}
	}
	to := func(port uint16, answerers ...string) selection.Flows {
		of := selection.Flows{Frontend: at(port)}
		for _, text := range answerers {
			of.Inside = append(of.Inside, netip.MustParseAddrPort(text))
		}
		of.Endpoints = of.Inside
		return of
	}
	accept := func(name string, list ...selection.Flows) call {
		return func(r *flows.Reader) { r.Accept(model.ObjectName{Name: name}, list) }
	}
	lose := func(name string, ports ...uint16) call {
		var frontends []model.Frontend
		for _, port := range ports {
			frontends = append(frontends, at(port), model.Frontend{Addr: netip.IPv4Unspecified(), Protocol: model.TCP, Port: port})
		}
		return func(r *flows.Reader) { r.Lose(model.ObjectName{Name: name}, frontends) }
	}
	const one, two, three = "10.0.0.1:53", "10.0.0.2:53", "10.0.0.3:53"
	for title, test := range map[string]struct {
		calls []call
		want  notes
	}{
		"nothing": {},
		"the same again": {
			calls: []call{accept("a", to(1, one), to(2, one))},
		},
		"an endpoint more": {
			calls: []call{accept("a", to(1, one, two), to(2, one))},
		},
		"an endpoint that comes and goes in one sync": {
			calls: []call{accept("a", to(1, one, two), to(2, one)), accept("a", to(1, one), to(2, one))},
			want:  notes{"*:1/UDP [10.0.0.1:53] [10.0.0.1:53 10.0.0.2:53]"},
		},
		"a Service that waits loses a frontend, and nobody has it": {
			calls: []call{lose("a", 2)},
			want:  notes{"*:2/UDP [] [10.0.0.1:53]"},
		},
		"it loses all": {
			calls: []call{lose("a", 1, 2)},
			want:  notes{"*:1/UDP [] [10.0.0.1:53]", "*:2/UDP [] [10.0.0.1:53]"},
		},
		"another Service gets it, and is heard of afterwards": {
			calls: []call{lose("a", 2), accept("b", to(2, three))},
			want:  notes{"*:2/UDP [10.0.0.3:53] [10.0.0.3:53 10.0.0.1:53]"},
		},
		"another Service gets it, and is heard of before": {
			calls: []call{accept("b", to(2, three)), accept("a", to(1, one))},
			want:  notes{"*:2/UDP [10.0.0.3:53] [10.0.0.3:53 10.0.0.1:53]"},
		},
		"another Service gets it, and loses it to a third": {
			calls: []call{accept("b", to(2, two)), accept("a", to(1, one)), accept("b"), accept("c", to(2, three))},
			want:  notes{"*:2/UDP [10.0.0.3:53] [10.0.0.3:53 10.0.0.2:53 10.0.0.1:53]"},
		},
		"another Service with the same endpoint gets it": {
			calls: []call{lose("a", 2), accept("b", to(2, one))},
		},
	} {
		t.Run(title, func(t *testing.T) {
			var noted notes
			reader := flows.NewReader(&noted)
			reader.Accept(model.ObjectName{Name: "a"}, []selection.Flows{to(1, one), to(2, one)})
			reader.Synced(selection.Sync{})
			noted = nil
			for _, call := range test.calls {
				call(reader)
			}
			reader.Synced(selection.Sync{})
			if diff := cmp.Diff(test.want, noted); diff != "" {
				t.Errorf("looked at (-want +got):\n%s", diff)
			}
			noted = nil
			if reader.Synced(selection.Sync{}); len(noted) > 0 {
				t.Errorf("looked at again: %v", noted)
			}
		})
	}
}
