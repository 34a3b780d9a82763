package main

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/health"
	"github.com/vicinity-proxy/vicinity/pkg/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/source"
)

func TestWhatAChangeBringsThatIsHardlyMeantIsLogged(t *testing.T) {
	name := model.ObjectName{Namespace: "shop", Name: "web"}
	service := func(ignored string) model.Change {
		web := &model.Service{Name: name, Topology: policy.Topology{Ignored: ignored}}
		return model.Change{Services: map[model.ObjectName]*model.Service{name: web}}
	}
	node := func(node *model.Node) model.Change {
		return model.Change{Nodes: map[string]*model.Node{"node-a": node}}
	}
	here := node(&model.Node{Name: "node-a"})
	const (
		noNode     = `level=WARN msg="there is no Node of this name; its labels are unknown until there is one" node=node-a`
		annotation = `level=WARN msg="an annotation is ignored" service=shop/web annotation=vicinity.dev/topology-keys reason="no key"`
	)
	for name, test := range map[string]struct {
		changes []model.Change
		want    []string
	}{
		"the Node is there":                         {[]model.Change{here}, nil},
		"the Node is missing at the start":          {[]model.Change{{}, service("")}, []string{noNode}},
		"the Node is deleted later":                 {[]model.Change{here, node(nil)}, []string{noNode}},
		"an annotation is right":                    {[]model.Change{here, service("")}, nil},
		"an annotation is wrong":                    {[]model.Change{here, service("no key")}, []string{annotation}},
		"a Service with a wrong annotation is gone": {[]model.Change{here, {Services: map[model.ObjectName]*model.Service{name: nil}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			feed := &feed{
				node: "node-a", changes: make(chan model.Change, len(test.changes)), log: slog.New(slog.NewTextHandler(&log, nil)),
				status: &health.Status{}, recorder: metrics.NewRecorder(),
			}
			for _, change := range test.changes {
				feed.deliver(t.Context(), source.Update{Change: change})
			}
			var got []string
			for line := range strings.Lines(log.String()) {
				_, line, _ = strings.Cut(strings.TrimSpace(line), " ") // behind the time
				got = append(got, line)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
		})
	}
}
